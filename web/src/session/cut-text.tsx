import { type ReactNode, useState } from "react";
import { Button } from "../ui/button.tsx";
import { count } from "../ui/format.ts";
import { cut } from "../ui/text.ts";

const CHARS_MAX = 20_000;

/** Draws the beginning of a huge text, and all of it on request. */
export function CutText({
  text,
  children,
}: {
  readonly text: string;
  readonly children: (part: string) => ReactNode;
}) {
  const [isWhole, setIsWhole] = useState(false);
  const shown = isWhole ? text : cut(text, CHARS_MAX);
  return (
    <>
      {children(shown)}
      {shown.length < text.length && (
        <Button onClick={() => setIsWhole(true)}>Show all {count(text.length)} characters</Button>
      )}
    </>
  );
}
