/**
 * Spans by OpenTelemetry's SDK, sent in batches as OTLP over HTTP in JSON. Only this file loads the
 * SDK; tracing.ts loads this file when traces are on.
 *
 * The SDK does not report dropped spans or failed exports. So a gate stands before its queue, and a
 * meter after it:
 *
 *   span ends ─► gate: waiting < SPANS_WAITING_MAX ─► SDK's batches ─► meter ─► exporter
 *                  └─ else dropped, counted                              ├─ sent, counted
 *                                                                        └─ failed, counted, logged once
 *
 * A span counts as waiting until its export has ended, so a collector that does not answer fills
 * only the gate. No call waits for this code.
 */
import {
  type Context,
  ROOT_CONTEXT,
  type Span as OtelSpan,
  SpanKind,
  SpanStatusCode,
  trace,
  type Tracer as OtelTracer,
} from "@opentelemetry/api";
import { type ExportResult, ExportResultCode, parseTraceParent } from "@opentelemetry/core";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { resourceFromAttributes } from "@opentelemetry/resources";
import {
  BatchSpanProcessor,
  ParentBasedSampler,
  type ReadableSpan,
  type SpanExporter,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from "@opentelemetry/sdk-trace";
import { within } from "@session-ledger/base/timers";
import type { Attributes, Elapsed, Span, Tracer, TracingDeps, OtlpOptions } from "./trace.ts";

/** Ended spans in memory, including those being exported. */
export const SPANS_WAITING_MAX = 4_096;
/** The limit of one export with its retries, and of a stop that waits for the last spans. */
const EXPORT_LIMIT_MS = 2_000;

export class OtlpTracing implements Tracer {
  readonly #provider: TracerProvider;
  readonly #tracer: OtelTracer;
  #stopped: Promise<void> | undefined;

  constructor(deps: TracingDeps, { endpoint, serviceName, sampleRatio }: OtlpOptions) {
    const url = `${endpoint.replace(/\/$/, "")}/v1/traces`;
    const exporter = new OTLPTraceExporter({ url, timeoutMillis: EXPORT_LIMIT_MS });
    this.#provider = new TracerProvider({
      resource: resourceFromAttributes({ "service.name": serviceName }),
      sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(sampleRatio) }),
      // A watch may last for days; only its first events are recorded.
      spanLimits: { eventCountLimit: 64 },
      spanProcessors: [new Gate(deps, new Meter(deps, exporter))],
    });
    this.#tracer = this.#provider.getTracer("session-ledger");
  }

  stop(): Promise<void> {
    // Spans that are not sent by then are lost; a stop must not wait longer for a collector.
    this.#stopped ??= within(this.#provider.shutdown().catch(ignore), {
      limitMs: EXPORT_LIMIT_MS,
      onTimeout: ignore,
    });
    return this.#stopped;
  }

  span(
    name: string,
    traceparent: string | undefined,
    attributes: Attributes | undefined,
  ): Span | undefined {
    if (this.#stopped !== undefined) return undefined;
    const startTime = Date.now();
    const epochMs = startTime - performance.now();
    const kind = SpanKind.SERVER;
    const options = { kind, startTime, ...(attributes === undefined ? {} : { attributes }) };
    const span = this.#tracer.startSpan(name, options, contextOf(traceparent));
    return span.isRecording() ? new OtlpSpan(this.#tracer, span, epochMs) : undefined;
  }
}

/**
 * All times of a span and its parts use the monotonic clock, with one reading of the wall clock.
 * The SDK itself reads the wall clock once per span, in milliseconds, and parts may seem to begin
 * before the whole.
 */
class OtlpSpan implements Span {
  readonly #tracer: OtelTracer;
  readonly #span: OtelSpan;
  /** The wall-clock time of the monotonic clock's zero. */
  readonly #epochMs: number;
  readonly #context: Context;

  constructor(tracer: OtelTracer, span: OtelSpan, epochMs: number) {
    this.#tracer = tracer;
    this.#span = span;
    this.#epochMs = epochMs;
    this.#context = trace.setSpan(ROOT_CONTEXT, span);
  }

  set(attributes: Attributes): void {
    this.#span.setAttributes(attributes);
  }

  event(name: string, attributes?: Attributes): void {
    this.#span.addEvent(name, attributes, this.#nowMs);
  }

  took(name: string, { fromMs, untilMs }: Elapsed, attributes?: Attributes): void {
    const startTime = this.#epochMs + fromMs;
    const options = { startTime, ...(attributes === undefined ? {} : { attributes }) };
    this.#tracer.startSpan(name, options, this.#context).end(this.#epochMs + untilMs);
  }

  end(failure?: string): void {
    if (failure !== undefined) {
      this.#span.setStatus({ code: SpanStatusCode.ERROR, message: failure });
    }
    this.#span.end(this.#nowMs);
  }

  get #nowMs(): number {
    return this.#epochMs + performance.now();
  }
}

/** An invalid `traceparent` begins a new trace, as W3C requires. */
function contextOf(traceparent: string | undefined): Context {
  const parent = traceparent === undefined ? null : parseTraceParent(traceparent);
  return parent === null
    ? ROOT_CONTEXT
    : trace.setSpanContext(ROOT_CONTEXT, { ...parent, isRemote: true });
}

/** After the SDK's queue. */
class Meter implements SpanExporter {
  /** Accepted spans whose export has not ended. */
  waiting = 0;
  readonly #deps: TracingDeps;
  readonly #exporter: SpanExporter;
  #isFailing = false;

  constructor(deps: TracingDeps, exporter: SpanExporter) {
    this.#deps = deps;
    this.#exporter = exporter;
  }

  export(spans: ReadableSpan[], done: (result: ExportResult) => void): void {
    this.#exporter.export(spans, (result) => {
      this.waiting -= spans.length;
      this.#count(spans.length, result);
      done(result);
    });
  }

  shutdown(): Promise<void> {
    return this.#exporter.shutdown();
  }

  #count(spans: number, { code, error }: ExportResult): void {
    const { log, metrics } = this.#deps;
    const isSent = code === ExportResultCode.SUCCESS;
    metrics.traceSpans.inc({ outcome: isSent ? "sent" : "failed" }, spans);
    if (isSent === !this.#isFailing) return;
    this.#isFailing = !isSent;
    if (isSent) log.info({}, "traces_sent_again");
    else log.warn({ err: error }, "traces_not_sent");
  }
}

/** Before the SDK's queue, which is as long as the limit of this gate. */
class Gate extends BatchSpanProcessor {
  readonly #meter: Meter;
  readonly #dropped: () => void;

  constructor({ metrics }: TracingDeps, meter: Meter) {
    super({
      exporter: meter,
      maxQueueSize: SPANS_WAITING_MAX,
      maxExportBatchSize: 512,
      scheduledDelayMillis: 1_000,
      exportTimeoutMillis: EXPORT_LIMIT_MS,
    });
    this.#meter = meter;
    this.#dropped = () => metrics.traceSpans.inc({ outcome: "dropped" });
  }

  override onEnd(span: ReadableSpan): void {
    if (this.#meter.waiting >= SPANS_WAITING_MAX) return this.#dropped();
    this.#meter.waiting += 1;
    super.onEnd(span);
  }
}

function ignore(): void {}
