/**
 * The time of a replay: which raw event shows how long after the beginning of the session.
 *
 *   recorded   |a|b|            …an hour…            |ccccc|d|
 *   played     |a|b|…2 s…|ccccc|d|
 *
 * A gap counts as at most GAP_MS_MAX. A row of merged events spreads them evenly from its first to its
 * last one. Times that step back count as no time.
 */
export interface TimedRow {
  readonly seq: number;
  readonly lastSeq: number;
  readonly atMs: number;
  readonly endMs: number;
}

/** The longest wait between two events of a replay at recorded speed. */
export const GAP_MS_MAX = 2_000;

export const SPEEDS = [0.25, 0.5, 1, 2, 4, 10, 25, 100] as const;
export type Speed = (typeof SPEEDS)[number];

export class PlayClock {
  readonly #rows: readonly TimedRow[];
  /** For each row, the played time of its first and of its last event. */
  readonly #starts: Float64Array;
  readonly #ends: Float64Array;

  /** Rows in the order of their numbers. */
  constructor(rows: readonly TimedRow[]) {
    this.#rows = rows.slice();
    this.#starts = new Float64Array(rows.length);
    this.#ends = new Float64Array(rows.length);
    let played = 0;
    let recorded = rows[0]?.atMs ?? 0;
    for (const [at, row] of rows.entries()) {
      played += shortened(row.atMs - recorded);
      this.#starts[at] = played;
      played += shortened(row.endMs - row.atMs, row.lastSeq - row.seq);
      this.#ends[at] = played;
      recorded = Math.max(recorded, row.endMs, row.atMs);
    }
  }

  get durationMs(): number {
    return this.#ends.at(-1) ?? 0;
  }

  /** When the event with this number shows; of a number before the first one, 0. */
  timeOf(seq: number): number {
    const at = lastAtMost(this.#rows.length, (index) => (this.#rows[index]?.seq ?? 0) <= seq);
    const row = this.#rows[at];
    if (row === undefined) return 0;
    const [start = 0, end = 0] = [this.#starts[at], this.#ends[at]];
    const span = row.lastSeq - row.seq;
    return span === 0 ? start : start + ((end - start) * Math.min(seq - row.seq, span)) / span;
  }

  /** The number of the last event that shows at this time; 0: none. */
  seqAt(ms: number): number {
    const at = lastAtMost(this.#rows.length, (index) => (this.#starts[index] ?? 0) <= ms);
    const row = this.#rows[at];
    if (row === undefined) return 0;
    const [start = 0, end = 0] = [this.#starts[at], this.#ends[at]];
    if (ms >= end) return row.lastSeq;
    return row.seq + Math.floor(((row.lastSeq - row.seq) * (ms - start)) / (end - start));
  }
}

/** The played part of a time with this many gaps. */
function shortened(ms: number, gaps = 1): number {
  return Math.min(Math.max(ms, 0), gaps * GAP_MS_MAX);
}

/** The last index that holds; the indexes that hold come first. -1: none. */
function lastAtMost(length: number, holds: (index: number) => boolean): number {
  let [low, high] = [0, length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (holds(middle)) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
