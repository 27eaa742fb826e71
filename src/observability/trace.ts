/**
 * Traces, for whoever set OTEL_EXPORTER_OTLP_ENDPOINT. Off is `undefined` everywhere: a service
 * without the setting has no tracer, its calls have no span, and nothing of OpenTelemetry's SDK is
 * loaded (test/e2e/tracing.test.ts looks).
 *
 *   call ── begins ──► Span, or undefined: not sampled, not on
 *     ├── took(queue, commit …)   parts that are over, with their times: nothing is left open
 *     ├── event(attached, live …) moments of a stream
 *     └── end ──► processor, bounded ──► exporter ──► collector
 *                    └─ full: dropped, counted
 *
 * A trace never has what a caller stored: names, codes, counts, and the session's id.
 */
import type { Unit } from "../base/unit.ts";
import type { Log } from "./log.ts";
import type { Metrics } from "./metrics.ts";

export type Attributes = Readonly<Record<string, string | number | boolean>>;

/** Of the monotonic clock. */
export interface Elapsed {
  readonly fromMs: number;
  readonly untilMs: number;
}

export interface Span {
  set(attributes: Attributes): void;
  event(name: string, attributes?: Attributes): void;
  took(name: string, elapsed: Elapsed, attributes?: Attributes): void;
  /** Once. `failure` is a word of ours, like the code, and marks the span as failed. */
  end(failure?: string): void;
}

export interface Tracer {
  /**
   * The span of a call that came from outside. `traceparent` is the caller's, unread: the span joins
   * its trace and follows its choice whether to record. Undefined: it is not recorded.
   */
  span(
    name: string,
    traceparent: string | undefined,
    attributes: Attributes | undefined,
  ): Span | undefined;
}

export interface Tracing extends Unit, Tracer {}

export interface TracingOptions {
  /** Base of the collector's OTLP over HTTP; `/v1/traces` is added. */
  readonly endpoint: string;
  readonly serviceName: string;
  /** Of the traces that begin here, from 0 to 1. */
  readonly sampleRatio: number;
}

export interface TracingDeps {
  readonly log: Log;
  readonly metrics: Pick<Metrics, "traceSpans">;
}
