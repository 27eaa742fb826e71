/**
 * Limits the log lines per second that callers can cause at any rate. The log is written
 * synchronously (log.ts), so a flood of lines slows every call, and fills a disk.
 *
 *   take(kind) ── fewer than perKindMax of its kind, and than allMax, in this span ──► true, write it
 *             └── else counted; SPAN_MS after the first of those, `tell` gets the omitted counts
 *
 * A span is a second, and begins with the first line after the last span. Kinds are fixed words
 * (methods, routes, reasons), and never a part of a request, so their number is limited.
 */
import type { Clock } from "../base/clock.ts";

/** Enough lines to see the problem, its callers and its targets; the metrics count all of them. */
export const LINES_PER_KIND_MAX = 20;
const SPAN_MS = 1_000;

/** The number of omitted lines of each kind. */
type LeftOut = ReadonlyMap<string, number>;

export interface LineBudgetParts {
  readonly clock: Clock;
  readonly tell: (leftOut: LeftOut) => void;
}

export class LineBudget {
  readonly #parts: LineBudgetParts;
  readonly #limits: { readonly perKindMax: number; readonly allMax: number };
  #beganMs = Number.NEGATIVE_INFINITY;
  #taken = 0;
  readonly #takenOf = new Map<string, number>();
  #leftOut = new Map<string, number>();

  constructor(
    parts: LineBudgetParts,
    limits: { readonly perKindMax: number; readonly allMax: number },
  ) {
    this.#parts = parts;
    this.#limits = limits;
  }

  take(kind: string): boolean {
    const nowMs = this.#parts.clock.monotonicMs();
    if (nowMs - this.#beganMs >= SPAN_MS) {
      this.#beganMs = nowMs;
      this.#taken = 0;
      this.#takenOf.clear();
    }
    const takenOfKind = this.#takenOf.get(kind) ?? 0;
    if (takenOfKind < this.#limits.perKindMax && this.#taken < this.#limits.allMax) {
      this.#taken += 1;
      this.#takenOf.set(kind, takenOfKind + 1);
      return true;
    }
    // Reported by a timer, because the flood may end here, and then no further line would report
    // it.
    if (this.#leftOut.size === 0) setTimeout(() => this.#tell(), SPAN_MS).unref();
    this.#leftOut.set(kind, (this.#leftOut.get(kind) ?? 0) + 1);
    return false;
  }

  #tell(): void {
    const leftOut = this.#leftOut;
    this.#leftOut = new Map();
    this.#parts.tell(leftOut);
  }
}
