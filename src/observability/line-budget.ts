/**
 * How many lines a second the log may have of what callers can bring about as often as they like. It is
 * written synchronously (log.ts), so a flood of lines slows every call, and fills a disk.
 *
 *   take(kind) ── fewer than perKindMax of its kind, and than allMax, in this span ──► true, write it
 *             └── else counted; SPAN_MS after the first of those, `tell` is given what was left out
 *
 * A span is a second, and begins with the first line after the last one. Kinds are words of ours (methods,
 * routes, reasons), never a part of what came, so there are only so many.
 */
import type { Clock } from "../base/clock.ts";
import type { Log } from "./log.ts";

/** Enough to see what it is, who does it and to whom; the metrics count them all. */
export const LINES_PER_KIND_MAX = 20;
/** Of all kinds of one level, of gRPC and of HTTP each. */
const FAILURE_LINES_MAX = 100;
const SPAN_MS = 1_000;

/** How many lines of each kind were left out. */
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
    // By a timer, because the flood may end here, and then no line comes that could say it.
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

/** The lines of calls or requests that failed, and of streams that ended well; each level by itself: whose fault it is hides nobody else's. */
export class FailureLines {
  readonly #ofLevel: Readonly<Record<"info" | "warn", LineBudget>>;

  constructor({ log, clock }: { readonly log: Log; readonly clock: Clock }, what: string) {
    const budget = (level: "info" | "warn"): LineBudget =>
      new LineBudget(
        {
          clock,
          tell: (leftOut) => {
            const lines = [...leftOut.values()].reduce((sum, count) => sum + count, 0);
            log[level]({ lines, of: Object.fromEntries(leftOut) }, `${what} lines left out`);
          },
        },
        { perKindMax: LINES_PER_KIND_MAX, allMax: FAILURE_LINES_MAX },
      );
    this.#ofLevel = { info: budget("info"), warn: budget("warn") };
  }

  /** `where` is the method or the route. Errors and what is for debugging are not in the budget. */
  take(
    level: "error" | "warn" | "info" | "debug",
    { where, reason }: { readonly where: string; readonly reason: string },
  ): boolean {
    if (level === "error" || level === "debug") return true;
    return this.#ofLevel[level].take(`${where} ${reason}`);
  }
}
