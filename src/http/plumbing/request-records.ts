import type { IncomingHttpHeaders } from "node:http";
import type { ServiceError } from "@session-ledger/base/errors";
import {
  CallRecords,
  type LoggedCalls,
  type RecordDeps,
} from "../../observability/call-records.ts";
import type { Metrics } from "../../observability/metrics.ts";
import type { Span } from "../../observability/trace.ts";
import { problemOf, statusOf } from "./problem.ts";

const FIELD_CHARS_MAX = 128;

export const UNKNOWN_ROUTE = "unknown";
const UNKNOWN_METHOD = "unknown";

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

type RequestMetrics = Pick<Metrics, "httpRequests" | "httpSeconds" | "refused">;

/** Writes one record per request, when its answer was sent. */
export class RequestRecords {
  readonly #records: CallRecords;
  readonly #metrics: RequestMetrics;

  constructor(
    deps: RecordDeps & { readonly metrics: RequestMetrics },
    options: { readonly logRequests: LoggedCalls },
  ) {
    this.#records = new CallRecords(deps, "request", options.logRequests);
    this.#metrics = deps.metrics;
  }

  startedMs(): number {
    return this.#records.clock.monotonicMs();
  }

  /** Undefined where no trace is recorded; `route` is the pattern. */
  span(
    { method, headers }: { readonly method: string; readonly headers: IncomingHttpHeaders },
    route: string | undefined,
  ): Span | undefined {
    if (route === undefined) return undefined;
    const { traceparent } = headers;
    return this.#records.tracer?.span(
      `${method} ${route}`,
      typeof traceparent === "string" ? traceparent : undefined,
      { "http.request.method": method, "http.route": route },
    );
  }

  recordEnd({ method, route, status, wasLeft, sessionId, ...end }: RequestEnd): void {
    const { error, span } = end;
    const durationMs = this.#records.recordEnd({
      ...end,
      where: route,
      // Any client that reaches the port can request unknown paths, or send no requests.
      isNoise: route === UNKNOWN_ROUTE,
      span,
      failure: error?.reason ?? "",
      sessionId: () => sessionId,
      fields: () => ({
        method,
        route,
        status,
        ...(wasLeft ? { left: true } : {}),
        ...(error === undefined ? {} : fieldOf(error)),
      }),
      attributes: () => ({ "http.response.status_code": status }),
    });
    this.#metrics.httpRequests.inc({ route, method, status });
    this.#metrics.httpSeconds.observe({ route }, durationMs / 1_000);
  }

  /** For bytes that never became a request. */
  recordEarly(error: ServiceError): void {
    this.recordEnd({
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
}

/**
 * The field at fault, as in the answer; an unknown one has no name here, because the caller made it
 * up.
 */
function fieldOf(error: ServiceError): { readonly field?: string } {
  const named = problemOf(error).violations?.find(({ field }) => field !== "")?.field;
  return named === undefined ? {} : { field: named.slice(0, FIELD_CHARS_MAX) };
}
