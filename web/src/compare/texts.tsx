/** Two texts side by side; words that only one has are marked. */
import { useMemo, useState } from "react";
import { difference, type Part, wordsOf } from "../model/difference.ts";
import { Button } from "@session-ledger/react/components/ui/button";
import { count } from "@session-ledger/react/internal/ui/format";
import { cut, visible } from "@session-ledger/react/internal/ui/text";

/** Longer texts are cut until the reader asks for all. */
const SHOWN_CHARS_MAX = 20_000;

export function Texts({
  title,
  left,
  right,
  isClosed = false,
}: {
  readonly title: string;
  readonly left: string;
  readonly right: string;
  readonly isClosed?: boolean;
}) {
  const [isOpen, setOpen] = useState(!isClosed);
  const [isWhole, setWhole] = useState(false);
  const charsMax = isWhole ? Number.POSITIVE_INFINITY : SHOWN_CHARS_MAX;
  const isCut = Math.max(left.length, right.length) > charsMax;
  return (
    <details
      className="texts"
      open={isOpen}
      onToggle={(event) => setOpen(event.currentTarget.open)}
    >
      <summary>
        <h2>{title}</h2>
        {left === right && <span className="compare-note">the same</span>}
      </summary>
      {isOpen && <Columns left={cut(left, charsMax)} right={cut(right, charsMax)} />}
      {isOpen && isCut && (
        <Button onClick={() => setWhole(true)}>
          Show all {count(Math.max(left.length, right.length))} characters
        </Button>
      )}
    </details>
  );
}

function Columns({ left, right }: { readonly left: string; readonly right: string }) {
  const parts = useMemo(() => difference(wordsOf(left), wordsOf(right)), [left, right]);
  return (
    <div className="compare-sides">
      <Column name="A" parts={parts} side="left" />
      <Column name="B" parts={parts} side="right" />
    </div>
  );
}

function Column({
  name,
  parts,
  side,
}: {
  readonly name: string;
  readonly parts: readonly Part<string>[];
  readonly side: "left" | "right";
}) {
  const shown = parts.filter((part) => part.in === "both" || part.in === side);
  return (
    <section className="texts-column" aria-label={name} dir="auto">
      {shown.length === 0 && <p className="compare-note">no text</p>}
      {shown.map((part, at) => {
        const text = visible(part[side].join(""));
        // oxlint-disable-next-line react/no-array-index-key -- Parts of a text never move.
        return part.in === "both" ? <span key={at}>{text}</span> : <mark key={at}>{text}</mark>;
      })}
    </section>
  );
}
