import { status } from "@grpc/grpc-js";
import type { Clock } from "../base/clock.ts";
import type { ErrorReason, ServiceError } from "../base/errors.ts";
import type { Log } from "../observability/log.ts";
import type { CallMetrics, Metrics } from "../observability/metrics.ts";
import { GRPC_STATUS } from "./status.ts";

/** A session id is at most this long; what a caller sent in its place may be anything. */
const SESSION_ID_LOGGED_CHARS_MAX = 128;

/** Which ends of unary calls are in the log at its usual level; streams and defects always are. */
export type LoggedCalls = "all" | "failures";

export interface CallEnd {
  readonly startedMs: number;
  readonly request: unknown;
  /** Undefined: OK. */
  readonly error: ServiceError | undefined;
  /** What a stream says of itself. */
  readonly counts?: Readonly<Record<string, number>> | undefined;
}

/**
 * One record a call, in the log and in the metrics, written when the call ends for its caller. It has
 * the method, the code, how long it took and the session; never a payload, nor a message of an error,
 * which may quote one.
 */
export class CallRecords {
  readonly #log: Log;
  readonly #metrics: CallMetrics;
  readonly #refused: (reason: ErrorReason) => void;
  readonly #clock: Clock;
  readonly #okLevel: "info" | "debug";

  constructor(
    deps: { readonly log: Log; readonly metrics: Metrics; readonly clock: Clock },
    options: { readonly method: string; readonly okLevel: "info" | "debug" },
  ) {
    this.#log = deps.log.child({ method: options.method });
    this.#metrics = deps.metrics.callsOf(options.method);
    this.#refused = (reason) => deps.metrics.refused(reason);
    this.#clock = deps.clock;
    this.#okLevel = options.okLevel;
  }

  startedMs(): number {
    return this.#clock.monotonicMs();
  }

  ended(end: CallEnd): void {
    const { error } = end;
    const code = error === undefined ? "OK" : codeName(error);
    const durationMs = this.#clock.monotonicMs() - end.startedMs;
    this.#metrics.ended(code, durationMs);
    if (error !== undefined) this.#refused(error.reason);
    const level = error === undefined ? this.#okLevel : levelOf(error);
    if (!this.#log.isLevelEnabled(level)) return;
    const sessionId = sessionIdOf(end.request);
    const record = { code, durationMs: rounded(durationMs), sessionId, ...end.counts };
    this.#log[level](error === undefined ? record : { ...record, ...whyOf(error) }, "call");
  }

  /** A handler failed when its call was over; nobody is told but the log. */
  failedAfterEnd(error: ServiceError): void {
    this.#log.error({ err: error.cause ?? error }, "call failed after its end");
  }
}

function codeName(error: ServiceError): string {
  return status[GRPC_STATUS[error.code]];
}

/** Errors of ours are `error`, what a database or a full queue made us refuse `warn`, the rest theirs. */
function levelOf(error: ServiceError): "error" | "warn" | "info" {
  if (error.code === "internal") return "error";
  const isOurs = error.code === "unavailable" || error.code === "overloaded";
  return isOurs && error.reason !== "SHUTTING_DOWN" ? "warn" : "info";
}

function whyOf(error: ServiceError): object {
  return { reason: error.reason, ...(error.cause === undefined ? {} : { err: error.cause }) };
}

function rounded(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}

function sessionIdOf(request: unknown): string | undefined {
  if (typeof request !== "object" || request === null) return undefined;
  const named = "sessionId" in request ? request.sessionId : "id" in request && request.id;
  if (typeof named !== "string" || named === "") return undefined;
  return named.slice(0, SESSION_ID_LOGGED_CHARS_MAX);
}
