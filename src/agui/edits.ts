import type { Member, Span } from "./spans.ts";

/** Text that replaces a span; the edits of one text do not overlap. */
export interface Edit extends Span {
  readonly text: string;
}

/** Edits come in any order. */
export function applyEdits(text: string, edits: readonly Edit[]): string {
  let result = "";
  let copied = 0;
  for (const edit of edits.toSorted((a, b) => a.start - b.start)) {
    result += text.slice(copied, edit.start) + edit.text;
    copied = edit.end;
  }
  return result + text.slice(copied);
}

/** Removes members from an object, each with one of the commas around it. */
export function dropEdits(members: readonly Member[], isDropped: readonly boolean[]): Edit[] {
  const edits: Edit[] = [];
  const lastKept = isDropped.lastIndexOf(false);
  members.forEach(({ keySpan }, index) => {
    const next = members[index + 1]; // A member is removed with the comma after it, …
    if (isDropped[index] === true && index < lastKept && next !== undefined)
      edits.push({ start: keySpan.start, end: next.keySpan.start, text: "" });
  });
  const last = members.at(-1); // … and members at the end with the comma before the first of them.
  const start = members[lastKept]?.valueSpan.end ?? members[0]?.keySpan.start;
  if (last !== undefined && start !== undefined && lastKept < members.length - 1)
    edits.push({ start, end: last.valueSpan.end, text: "" });
  return edits;
}
