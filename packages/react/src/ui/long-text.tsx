import { useState } from "react";
import { Button } from "./button.tsx";
import { count } from "./format.ts";
import { cut, visible } from "./text.ts";

const SHOWN_CHARS_MAX = 4_000;

/** Text of a session: isolated from its neighbours, and cut with a way to see the rest. */
export function LongText({
  text,
  charsMax = SHOWN_CHARS_MAX,
}: {
  readonly text: string;
  readonly charsMax?: number;
}) {
  const [isWhole, setWhole] = useState(false);
  const shown = isWhole ? text : cut(text, charsMax);
  return (
    <>
      <bdi>{visible(shown)}</bdi>
      {shown.length < text.length && (
        <>
          …{" "}
          <Button look="plain" onClick={() => setWhole(true)}>
            Show all {count(text.length)} characters
          </Button>
        </>
      )}
    </>
  );
}
