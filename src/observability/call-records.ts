/**
 * Writes one record per call of either edge to the log, the metrics and its span, when the call
 * ends for its caller: fixed words, the duration, the session, never a payload, an error message, a
 * path or a query. Log lines of failures and streams are limited, unless all calls are logged.
 */
import type { Clock } from "@session-ledger/base/clock";
import type { ServiceError } from "@session-ledger/base/errors";
import { ID_BYTES_MAX } from "@session-ledger/base/ids";
import type { Log } from "./log.ts";
import type { Metrics } from "./metrics.ts";
import type { Attributes, Span, Tracer } from "./trace.ts";

/** Which ended calls the log has at its usual level; streams and defects are always logged. */
export type LoggedCalls = "all" | "failures";

/** The functions are called only where their result is needed. */
interface CallEnd {
  readonly startedMs: number;
  /** A method or a route: a fixed word, and never a part of the request. */
  readonly where: string;
  readonly isStream: boolean;
  /** True when any client can cause the record at any rate, without a token. */
  readonly isNoise?: boolean;
  /** Undefined means success. */
  readonly error: ServiceError | undefined;
  readonly span: Span | undefined;
  /** The word that marks the span of a failure of ours. */
  readonly failure: string;
  /** Undefined where the call names none; a caller may send any text as its session id. */
  readonly sessionId: () => string | undefined;
  readonly fields: () => object;
  readonly attributes: () => Attributes;
}

export interface RecordDeps {
  readonly log: Log;
  readonly metrics: Pick<Metrics, "refused">;
  readonly clock: Clock;
  readonly tracer?: Tracer | undefined;
}

/** The lines of one level per second, separately for gRPC and HTTP. */
const LINES_MAX = 100;

type Level = "error" | "warn" | "info" | "debug";

export class CallRecords {
  /** Undefined where no trace is recorded. */
  readonly tracer: Tracer | undefined;
  readonly clock: Clock;
  /** True: no line is written for a call that succeeds and is no stream. */
  readonly isQuiet: boolean;
  readonly #deps: RecordDeps;
  readonly #what: string;
  readonly #logged: LoggedCalls;
  /** Each level has its own budget, so that one cannot hide another. */
  readonly #budgets: Readonly<Record<"info" | "warn", LineBudget>>;

  /** `what` is the message of the log lines. */
  constructor(deps: RecordDeps, what: "call" | "request", logged: LoggedCalls) {
    this.tracer = deps.tracer;
    this.clock = deps.clock;
    this.isQuiet = logged !== "all" && !deps.log.isLevelEnabled("debug");
    this.#deps = deps;
    this.#what = what;
    this.#logged = logged;
    this.#budgets = { info: this.#budget("info"), warn: this.#budget("warn") };
  }

  /** Returns the duration. */
  recordEnd(end: CallEnd): number {
    const { log, metrics, clock } = this.#deps;
    const { error } = end;
    if (end.span !== undefined) endSpan(end.span, end);
    const durationMs = clock.monotonicMs() - end.startedMs;
    // A caller who left was not refused.
    if (error !== undefined && error.code !== "cancelled") metrics.refused(error.reason);
    const level = this.#levelOf(end);
    if (!log.isLevelEnabled(level) || !this.#hasLine(level, end)) return durationMs;
    const record = {
      ...end.fields(),
      durationMs: Math.round(durationMs * 1_000) / 1_000,
      sessionId: end.sessionId()?.slice(0, ID_BYTES_MAX),
      ...(error === undefined ? {} : { reason: error.reason }),
      ...(error?.cause === undefined ? {} : { err: error.cause }),
    };
    log[level](record, this.#what);
    return durationMs;
  }

  /** A handler failed after its call was over; only the log reports it. */
  failedAfterEnd(method: string, error: ServiceError): void {
    const record = { method, err: error.cause ?? error };
    this.#deps.log.error(record, `${this.#what} failed after its end`);
  }

  #levelOf({ error, isStream, isNoise }: CallEnd): Level {
    if (error === undefined) return isStream || this.#logged === "all" ? "info" : "debug";
    const level = levelOf(error);
    return isNoise && level === "info" && this.#logged === "failures" ? "debug" : level;
  }

  /** Defects and lines for debugging are not limited. */
  #hasLine(level: Level, { where, error }: CallEnd): boolean {
    if (this.#logged === "all" || level === "error" || level === "debug") return true;
    return this.#budgets[level].take(`${where} ${error?.reason ?? "OK"}`);
  }

  #budget(level: "info" | "warn"): LineBudget {
    const { log, clock } = this.#deps;
    const report = (leftOut: ReadonlyMap<string, number>): void => {
      const lines = [...leftOut.values()].reduce((sum, count) => sum + count, 0);
      log[level]({ lines, of: Object.fromEntries(leftOut) }, `${this.#what} lines left out`);
    };
    return new LineBudget({ clock, report }, LINES_MAX);
  }
}

function endSpan(span: Span, { error, failure, ...end }: CallEnd): void {
  const sessionId = end.sessionId()?.slice(0, ID_BYTES_MAX);
  span.set({
    ...end.attributes(),
    ...(sessionId === undefined ? {} : { "session.id": sessionId }),
    ...(error === undefined ? {} : { "session_ledger.reason": error.reason }),
  });
  const isOurs = error !== undefined && ["error", "warn"].includes(levelOf(error));
  span.end(isOurs ? failure : undefined);
}

/** Defects are `error`; a refusal by the database or a full queue is `warn`; others are lower. */
function levelOf(error: ServiceError): Level {
  // A caller without a token may try at any rate; the audit log records such tries, within limits.
  if (error.code === "unauthenticated") return "debug";
  if (error.code === "internal") return "error";
  const isOurs = error.code === "unavailable" || error.code === "overloaded";
  return isOurs && error.reason !== "SHUTTING_DOWN" ? "warn" : "info";
}

/** Enough lines to see the problem, its callers and its targets; the metrics count all of them. */
const LINES_PER_KIND_MAX = 20;
const SPAN_MS = 1_000;

interface LineBudgetParts {
  readonly clock: Clock;
  /** Gets the number of omitted lines of each kind. */
  readonly report: (leftOut: ReadonlyMap<string, number>) => void;
}

/**
 * Limits the log lines per second that callers can cause at any rate. The log is written
 * synchronously (log.ts), so a flood of lines slows every call, and fills a disk.
 *
 *   take(kind) ── few of its kind, and of all, in this span ──► true, write it
 *             └── else counted; SPAN_MS after the first of those, `tell` gets the omitted counts
 *
 * A span is a second, and begins with the first line after the last span. Kinds are fixed words
 * (methods, routes, reasons), and never a part of a request, so their number is limited.
 */
export class LineBudget {
  readonly #parts: LineBudgetParts;
  readonly #linesMax: number;
  #beganMs = Number.NEGATIVE_INFINITY;
  #taken = 0;
  readonly #takenOf = new Map<string, number>();
  #leftOut = new Map<string, number>();

  constructor(parts: LineBudgetParts, linesMax: number) {
    this.#parts = parts;
    this.#linesMax = linesMax;
  }

  take(kind: string): boolean {
    const nowMs = this.#parts.clock.monotonicMs();
    if (nowMs - this.#beganMs >= SPAN_MS) {
      this.#beganMs = nowMs;
      this.#taken = 0;
      this.#takenOf.clear();
    }
    const takenOfKind = this.#takenOf.get(kind) ?? 0;
    if (takenOfKind < LINES_PER_KIND_MAX && this.#taken < this.#linesMax) {
      this.#taken += 1;
      this.#takenOf.set(kind, takenOfKind + 1);
      return true;
    }
    // By a timer: the flood may end here, and then no further line would report it.
    if (this.#leftOut.size === 0) setTimeout(() => this.#report(), SPAN_MS).unref();
    this.#leftOut.set(kind, (this.#leftOut.get(kind) ?? 0) + 1);
    return false;
  }

  #report(): void {
    const leftOut = this.#leftOut;
    this.#leftOut = new Map();
    this.#parts.report(leftOut);
  }
}
