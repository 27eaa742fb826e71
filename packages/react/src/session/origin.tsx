import { clockText, timeText } from "../ui/format.ts";
import { visible } from "../ui/text.ts";
import { useInSession } from "./in-session.ts";

/** The time of an item. A press moves the page to the event that made it. */
export function At({ seq, atMs }: { readonly seq: number; readonly atMs: number }) {
  const { moveTo } = useInSession();
  return (
    <button
      type="button"
      className="at"
      onClick={() => moveTo(seq)}
      title={`${timeText(atMs)}: go to event ${seq}`}
      aria-label={`Go to event ${seq}, ${clockText(atMs)}`}
    >
      {clockText(atMs)}
    </button>
  );
}

/** Who did it, if it was not the agent itself. */
export function OfSubagent({ name }: { readonly name: string | undefined }) {
  if (name === undefined) return null;
  return (
    <span className="message-role">
      by <bdi>{visible(name)}</bdi>
    </span>
  );
}
