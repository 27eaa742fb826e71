import { visible } from "../ui/text.ts";

/** Who did it, if it was not the agent itself. */
export function OfSubagent({ name }: { readonly name: string | undefined }) {
  if (name === undefined) return null;
  return (
    <span className="message-role">
      by <bdi>{visible(name)}</bdi>
    </span>
  );
}
