/** The order of the rows of both streams of a session: the order of their commits (../merging.ts). */

export interface CommitTimes {
  /** The time of the commit; the rows of an import share one. */
  readonly recordedMicros: number;
  readonly createdMicros: number;
}

/** The times of one stream, made to never step back. */
export class MonotonicTimes {
  #latest: CommitTimes = { recordedMicros: 0, createdMicros: 0 };

  of(row: CommitTimes): CommitTimes {
    if (isAfter(row, this.#latest)) this.#latest = row;
    return this.#latest;
  }
}

export function isAfter(one: CommitTimes, other: CommitTimes): boolean {
  if (one.recordedMicros !== other.recordedMicros) return one.recordedMicros > other.recordedMicros;
  return one.createdMicros > other.createdMicros;
}
