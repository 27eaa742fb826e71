/**
 * Traces, for services with OTEL_EXPORTER_OTLP_ENDPOINT. "Off" is `undefined` everywhere: a service
 * without the setting has no tracer, its calls have no span, and OpenTelemetry's SDK is not loaded
 * (test/e2e/tracing.test.ts checks it).
 *
 *   call ── begins ──► Span, or undefined: not sampled, not on
 *     ├── took(queue, commit …)   parts that are over, with their times: nothing is left open
 *     ├── event(attached, live …) moments of a stream
 *     └── end ──► processor, bounded ──► exporter ──► collector
 *                    └─ full: dropped, counted
 *
 * A trace contains names, codes, counts and the session's id, and never content that a caller
 * stored.
 */
import type { Unit } from "../base/unit.ts";
import type { Log } from "./log.ts";
import type { Metrics } from "./metrics.ts";

export type Attributes = Readonly<Record<string, string | number | boolean>>;

/** Times of the monotonic clock. */
export interface Elapsed {
  readonly fromMs: number;
  readonly untilMs: number;
}

export interface Span {
  set(attributes: Attributes): void;
  event(name: string, attributes?: Attributes): void;
  took(name: string, elapsed: Elapsed, attributes?: Attributes): void;
  /** Call this once. `failure` is a fixed word, like the code, and marks the span as failed. */
  end(failure?: string): void;
}

export interface Tracer {
  /**
   * The span of a call from outside. `traceparent` is the caller's unparsed header: the span joins
   * its trace and follows its sampling decision. Undefined: the span is not recorded.
   */
  span(
    name: string,
    traceparent: string | undefined,
    attributes: Attributes | undefined,
  ): Span | undefined;
}

export interface Tracing extends Unit, Tracer {}

export interface OtlpOptions {
  /** The base URL of the collector's OTLP over HTTP; `/v1/traces` is added. */
  readonly endpoint: string;
  readonly serviceName: string;
  /** The share of recorded traces among those that begin here, from 0 to 1. */
  readonly sampleRatio: number;
}

export interface TracingDeps {
  readonly log: Log;
  readonly metrics: Pick<Metrics, "traceSpans">;
}
