/** The places of a session that a reader jumps to: where runs begin and end, and what went wrong. */
import type { TimedRow } from "./player.ts";

interface MarkedRow extends TimedRow {
  readonly type: string;
  readonly runId: string;
}

export interface Mark {
  readonly seq: number;
  readonly kind: "start" | "end" | "error";
  readonly runId: string;
}

const KINDS: Readonly<Record<string, Mark["kind"]>> = {
  RUN_STARTED: "start",
  RUN_FINISHED: "end",
  RUN_ERROR: "error",
  SUBAGENT_ERROR: "error",
};

/** The marks of a list that grows: rows at its end cost nothing but themselves. */
export class Marks {
  #marks: readonly Mark[] = [];
  #count = 0;
  #last: MarkedRow | undefined;

  /** The same list of marks as before, without a new one. */
  of(rows: readonly MarkedRow[]): readonly Mark[] {
    // Rows before the known ones move the last of them.
    if (this.#count > 0 && rows[this.#count - 1] !== this.#last) {
      this.#marks = [];
      this.#count = 0;
    }
    const fresh: Mark[] = [];
    for (; this.#count < rows.length; this.#count += 1) {
      const row = rows[this.#count];
      const kind = KINDS[row?.type ?? ""];
      if (row !== undefined && kind !== undefined)
        fresh.push({ seq: row.seq, kind, runId: row.runId });
    }
    this.#last = rows[this.#count - 1];
    if (fresh.length > 0) this.#marks = [...this.#marks, ...fresh];
    return this.#marks;
  }
}

const WEIGHTS = { end: 0, start: 1, error: 2 };

/** At most one mark for each of the equal parts of the session. An error has precedence. */
export function thinned(
  marks: readonly Mark[],
  { head, parts }: { readonly head: number; readonly parts: number },
): readonly Mark[] {
  const byPart = new Map<number, Mark>();
  for (const mark of marks) {
    const part = Math.floor((mark.seq / Math.max(head, 1)) * parts);
    const known = byPart.get(part);
    if (known === undefined || WEIGHTS[mark.kind] > WEIGHTS[known.kind]) byPart.set(part, mark);
  }
  return [...byPart.values()];
}

/** The start of a run before, or after, the event at the cursor. */
export function runBeside(
  marks: readonly Mark[],
  { seq, step }: { readonly seq: number; readonly step: -1 | 1 },
): number | undefined {
  const starts = marks.filter(({ kind }) => kind === "start");
  if (step === 1) return starts.find((mark) => mark.seq > seq)?.seq;
  return starts.findLast((mark) => mark.seq < seq)?.seq;
}
