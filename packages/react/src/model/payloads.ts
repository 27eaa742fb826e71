/**
 * The payloads that a log holds, up to two bounds. Above them the payloads that came first are dropped:
 * those of the oldest rows, until a view has asked for one of them again.
 */
import type { LoggedRow } from "./source.ts";

/** Fewer places of dropped payloads are not worth a copy of the list. */
const DROPPED_MAX = 10_000;

export interface PayloadLimits {
  readonly payloadCharsMax: number;
  readonly payloadRowsMax: number;
}

export class Payloads {
  readonly #limits: PayloadLimits;
  /** In the order in which they came; those before #oldest are dropped. */
  #rows: LoggedRow[] = [];
  #oldest = 0;
  #chars = 0;

  constructor(limits: PayloadLimits) {
    this.#limits = limits;
  }

  emptied(): Payloads {
    return new Payloads(this.#limits);
  }

  retain(row: LoggedRow): LoggedRow {
    this.#rows.push(row);
    this.#chars += row.payload?.length ?? 0;
    return row;
  }

  /** Rows above `foldedSeq` keep theirs, and so does the row with the number `keep`. */
  drop(foldedSeq = Number.POSITIVE_INFINITY, keep = -1): void {
    let retained: LoggedRow | undefined;
    const { payloadCharsMax, payloadRowsMax } = this.#limits;
    while (this.#chars > payloadCharsMax || this.#rows.length - this.#oldest > payloadRowsMax) {
      const row = this.#rows[this.#oldest];
      if (row === undefined || row.lastSeq > foldedSeq) break;
      this.#oldest += 1;
      if (row.seq === keep) retained = row;
      else {
        this.#chars -= row.payload?.length ?? 0;
        row.payload = undefined;
      }
    }
    if (retained !== undefined) this.#rows.push(retained);
    if (this.#oldest < DROPPED_MAX || this.#oldest * 2 < this.#rows.length) return;
    this.#rows = this.#rows.slice(this.#oldest);
    this.#oldest = 0;
  }
}
