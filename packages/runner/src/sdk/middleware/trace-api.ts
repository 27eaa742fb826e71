/**
 * The part of OpenTelemetry that the tracing uses, as types: users pass their `@opentelemetry/api`
 * in. And the attribute names of Langfuse, which reads spans at its OTLP endpoint.
 */

export interface SpanContext {
  readonly traceId: string;
  readonly spanId: string;
  readonly traceFlags: number;
}

type AttributeValue = string | number | boolean;
export type SpanAttributes = Record<string, AttributeValue>;

export interface ApiSpan {
  spanContext(): SpanContext;
  setAttributes(attributes: SpanAttributes): unknown;
  setStatus(status: { readonly code: number; readonly message?: string }): unknown;
  end(time?: Date): void;
}

export interface ApiTracer {
  startSpan(
    name: string,
    options?: { readonly root?: boolean; readonly attributes?: SpanAttributes },
    context?: unknown,
  ): ApiSpan;
}

/** All of the module `@opentelemetry/api` is one. Methods, so that its own types fit. */
export interface TraceApi {
  readonly trace: {
    getTracer(name: string): ApiTracer;
    setSpan(context: unknown, span: ApiSpan): unknown;
    setSpanContext(context: unknown, spanContext: SpanContext): unknown;
  };
  readonly ROOT_CONTEXT: unknown;
}

/** OpenTelemetry's SpanStatusCode.ERROR. */
export const STATUS_ERROR = 2;

/** The id of a trace that is not recorded. */
export const NO_TRACE_ID = "0".repeat(32);

/** The attributes of Langfuse; those without its prefix are OpenTelemetry's own. */
export const NAMES = {
  session: "session.id",
  user: "user.id",
  traceName: "langfuse.trace.name",
  traceInput: "langfuse.trace.input",
  traceOutput: "langfuse.trace.output",
  /** The span is the root of its trace, although it has a parent. Langfuse 4 reads the second name. */
  asRoot: "langfuse.internal.as_root",
  isAppRoot: "langfuse.internal.is_app_root",
  type: "langfuse.observation.type",
  input: "langfuse.observation.input",
  output: "langfuse.observation.output",
  level: "langfuse.observation.level",
  statusMessage: "langfuse.observation.status_message",
  model: "langfuse.observation.model.name",
  usage: "langfuse.observation.usage_details",
  firstOutputAt: "langfuse.observation.completion_start_time",
  metadata: "langfuse.observation.metadata.",
} as const;
