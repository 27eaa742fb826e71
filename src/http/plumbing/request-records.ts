import type { IncomingHttpHeaders } from "node:http";
import type { Clock } from "../../base/clock.ts";
import type { ServiceError } from "../../base/errors.ts";
import { FailureLines } from "../../observability/line-budget.ts";
import type { Log } from "../../observability/log.ts";
import type { Metrics } from "../../observability/metrics.ts";
import type { Span, Tracer } from "../../observability/trace.ts";
import { problemOf, statusOf } from "./problem.ts";

/** A valid session id is at most this long; a caller may send any text in its place. */
const SESSION_ID_LOGGED_CHARS_MAX = 128;

const FIELD_LOGGED_CHARS_MAX = 128;

/** The route of a request that fits no route. */
export const UNKNOWN_ROUTE = "unknown";
const UNKNOWN_METHOD = "unknown";

/** Which ended requests the log has at its usual level; streams and defects are always logged. */
export type LoggedRequests = "all" | "failures";

export interface RequestEnd {
  readonly method: string;
  /** The pattern, and never the path. */
  readonly route: string;
  readonly status: number;
  readonly startedMs: number;
  readonly isStream: boolean;
  /** True when the caller left before the whole answer was sent. */
  readonly wasLeft: boolean;
  readonly sessionId: string | undefined;
  readonly error: ServiceError | undefined;
  readonly span?: Span | undefined;
}

export interface RecordDeps {
  readonly log: Log;
  readonly metrics: Pick<Metrics, "httpRequests" | "httpSeconds" | "refused">;
  readonly clock: Clock;
  readonly tracer?: Tracer | undefined;
}

/**
 * Writes one record per request, to the log, the metrics and the end of its span, when its answer
 * was sent. As for gRPC calls, a record never has a payload, an error message (which may quote a
 * payload), a path or a query. The number of failure lines per second is limited.
 */
export class RequestRecords {
  readonly #deps: RecordDeps;
  readonly #logged: LoggedRequests;
  /** Undefined: every failure is written. */
  readonly #failureLines: FailureLines | undefined;

  constructor(deps: RecordDeps, options: { readonly logRequests: LoggedRequests }) {
    this.#deps = deps;
    this.#logged = options.logRequests;
    this.#failureLines =
      options.logRequests === "all" ? undefined : new FailureLines(deps, "request");
  }

  startedMs(): number {
    return this.#deps.clock.monotonicMs();
  }

  /** Undefined where no trace is recorded; `route` is the pattern. */
  span(
    { method, headers }: { readonly method: string; readonly headers: IncomingHttpHeaders },
    route: string | undefined,
  ): Span | undefined {
    const { tracer } = this.#deps;
    if (tracer === undefined || route === undefined) return undefined;
    const { traceparent } = headers;
    return tracer.span(
      `${method} ${route}`,
      typeof traceparent === "string" ? traceparent : undefined,
      { "http.request.method": method, "http.route": route },
    );
  }

  ended(end: RequestEnd): void {
    const { method, route, status, error } = end;
    if (end.span !== undefined) endSpan(end.span, end);
    const { log, metrics, clock } = this.#deps;
    const durationMs = clock.monotonicMs() - end.startedMs;
    metrics.httpRequests.inc({ route, method, status });
    metrics.httpSeconds.observe({ route }, durationMs / 1_000);
    // A caller who left was not refused.
    if (error !== undefined && error.code !== "cancelled") metrics.refused(error.reason);
    const level = error === undefined ? this.#okLevel(end) : this.#failureLevel(end, error);
    if (!log.isLevelEnabled(level) || !this.#hasLine(level, end)) return;
    const record = {
      method,
      route,
      status,
      durationMs: Math.round(durationMs * 1_000) / 1_000,
      sessionId: end.sessionId?.slice(0, SESSION_ID_LOGGED_CHARS_MAX),
      ...(end.wasLeft ? { left: true } : {}),
      ...(error === undefined ? {} : whyOf(error)),
    };
    log[level](record, "request");
  }

  /** For bytes that never became a request. */
  endedEarly(error: ServiceError): void {
    this.ended({
      method: UNKNOWN_METHOD,
      route: UNKNOWN_ROUTE,
      status: statusOf(error),
      startedMs: this.startedMs(),
      isStream: false,
      wasLeft: false,
      sessionId: undefined,
      error,
    });
  }

  #okLevel({ isStream }: RequestEnd): Level {
    return isStream || this.#logged === "all" ? "info" : "debug";
  }

  /** Anyone who reaches the port can request unknown paths or send noise without a token. */
  #failureLevel({ route }: RequestEnd, error: ServiceError): Level {
    const level = levelOf(error);
    const isNoise = level === "info" && route === UNKNOWN_ROUTE && this.#logged === "failures";
    return isNoise ? "debug" : level;
  }

  #hasLine(level: Level, { route, error }: RequestEnd): boolean {
    if (this.#failureLines === undefined) return true;
    return this.#failureLines.take(level, { where: route, reason: error?.reason ?? "OK" });
  }
}

function endSpan(span: Span, { status, sessionId, error }: RequestEnd): void {
  span.set({
    "http.response.status_code": status,
    ...(sessionId === undefined ? {} : { "session.id": sessionId }),
    ...(error === undefined ? {} : { "session_ledger.reason": error.reason }),
  });
  const isOurs = error !== undefined && ["error", "warn"].includes(levelOf(error));
  span.end(isOurs ? error.reason : undefined);
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

/**
 * For a field its name, as the caller was told; for an unknown field no name, because the caller
 * made it up.
 */
function whyOf(error: ServiceError): object {
  const named = problemOf(error).violations?.find(({ field }) => field !== "")?.field;
  const field = named?.slice(0, FIELD_LOGGED_CHARS_MAX);
  return {
    reason: error.reason,
    ...(field === undefined ? {} : { field }),
    ...(error.cause === undefined ? {} : { err: error.cause }),
  };
}
