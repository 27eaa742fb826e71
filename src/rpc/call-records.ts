import { type Metadata, status } from "@grpc/grpc-js";
import { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import type { Clock } from "../base/clock.ts";
import type { ErrorReason, ServiceError } from "../base/errors.ts";
import type { FailureLines } from "../observability/line-budget.ts";
import type { Log } from "../observability/log.ts";
import type { CallMetrics, Metrics } from "../observability/metrics.ts";
import type { Span, Tracer } from "../observability/trace.ts";
import { GRPC_STATUS } from "./status.ts";

/** A valid session id is at most this long; a caller may send any text in its place. */
const SESSION_ID_LOGGED_CHARS_MAX = 128;

/**
 * Which ended unary calls the log has at its usual level; streams and defects are always logged.
 */
export type LoggedCalls = "all" | "failures";

export interface CallEnd {
  readonly startedMs: number;
  readonly request: unknown;
  /** Undefined means OK. */
  readonly error: ServiceError | undefined;
  /** The counts that a stream reports. */
  readonly counts?: Readonly<Record<string, number>> | undefined;
  readonly span?: Span | undefined;
}

/**
 * Writes one record per call, to the log, the metrics and the end of its span, when the call ends
 * for its caller. A record has the method, the code, the duration and the session. It never has a
 * payload or an error message, which may quote a payload. The number of log lines per second is
 * limited for failures and for streams, unless all calls are logged. Metrics and spans cover every
 * call.
 */
export class CallRecords {
  readonly #log: Log;
  readonly #metrics: CallMetrics;
  readonly #refused: (reason: ErrorReason) => void;
  readonly #failureLines: FailureLines | undefined;
  readonly #method: string;
  readonly #clock: Clock;
  readonly #okLevel: "info" | "debug";
  readonly #tracer: Tracer | undefined;
  readonly #spanName: string;
  readonly #spanAttributes: Readonly<Record<string, string>>;

  constructor(
    deps: {
      readonly log: Log;
      readonly metrics: Metrics;
      readonly clock: Clock;
      /** The limit for all methods together; undefined: every failure is written. */
      readonly failureLines: FailureLines | undefined;
      readonly tracer?: Tracer | undefined;
    },
    options: { readonly method: string; readonly okLevel: "info" | "debug" },
  ) {
    this.#log = deps.log.child({ method: options.method });
    this.#metrics = deps.metrics.callsOf(options.method);
    this.#refused = (reason) => deps.metrics.refused(reason);
    this.#failureLines = deps.failureLines;
    this.#method = options.method;
    this.#clock = deps.clock;
    this.#okLevel = options.okLevel;
    this.#tracer = deps.tracer;
    const { typeName } = SessionService;
    this.#spanName = `${typeName}/${options.method}`;
    this.#spanAttributes = {
      "rpc.system": "grpc",
      "rpc.service": typeName,
      "rpc.method": options.method,
    };
  }

  startedMs(): number {
    return this.#clock.monotonicMs();
  }

  /** Undefined where no trace is recorded, which costs a call one check. */
  span(metadata: Metadata): Span | undefined {
    if (this.#tracer === undefined) return undefined;
    const given = metadata.get("traceparent");
    const traceparent = given.length === 1 ? String(given[0]) : undefined;
    return this.#tracer.span(this.#spanName, traceparent, this.#spanAttributes);
  }

  ended(end: CallEnd): void {
    const { error } = end;
    if (end.span !== undefined) endSpan(end.span, end);
    const code = error === undefined ? "OK" : codeName(error);
    const durationMs = this.#clock.monotonicMs() - end.startedMs;
    this.#metrics.ended(code, durationMs);
    // A caller who left was not refused.
    if (error !== undefined && error.code !== "cancelled") this.#refused(error.reason);
    const level = error === undefined ? this.#okLevel : levelOf(error);
    if (!this.#log.isLevelEnabled(level) || !this.#hasLine(level, error)) return;
    const sessionId = sessionIdOf(end.request);
    const record = { code, durationMs: rounded(durationMs), sessionId, ...end.counts };
    this.#log[level](error === undefined ? record : { ...record, ...whyOf(error) }, "call");
  }

  #hasLine(level: Level, error: ServiceError | undefined): boolean {
    if (this.#failureLines === undefined) return true;
    return this.#failureLines.take(level, { where: this.#method, reason: error?.reason ?? "OK" });
  }

  /** A handler failed after its call was over; only the log reports it. */
  failedAfterEnd(error: ServiceError): void {
    this.#log.error({ err: error.cause ?? error }, "call failed after its end");
  }
}

function endSpan(span: Span, { error, request, counts }: CallEnd): void {
  const sessionId = sessionIdOf(request);
  span.set({
    "rpc.grpc.status_code": error === undefined ? status.OK : GRPC_STATUS[error.code],
    ...(sessionId === undefined ? {} : { "session.id": sessionId }),
    ...(error === undefined ? {} : { "session_ledger.reason": error.reason }),
    ...countsOf(counts),
  });
  const isOurs = error !== undefined && ["error", "warn"].includes(levelOf(error));
  span.end(isOurs ? codeName(error) : undefined);
}

function countsOf(counts: CallEnd["counts"]): Readonly<Record<string, number>> {
  const named = Object.entries(counts ?? {});
  return Object.fromEntries(named.map(([name, count]) => [`session_ledger.${name}`, count]));
}

function codeName(error: ServiceError): string {
  return status[GRPC_STATUS[error.code]];
}

type Level = "error" | "warn" | "info" | "debug";

/**
 * Our defects are `error`; refusals caused by the database or a full queue are `warn`; errors of
 * callers are lower.
 */
function levelOf(error: ServiceError): Level {
  // A caller without a token may try at any rate; the audit log records such tries, within limits.
  if (error.code === "unauthenticated") return "debug";
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
