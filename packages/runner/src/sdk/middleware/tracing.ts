/**
 * A trace of each run, by the OpenTelemetry of the user, for Langfuse and any other collector:
 *
 *   run                the whole run
 *   └─ turn            from the first event of the agent to the end: model, usage, answer
 *      ├─ generation   one assistant message ─ START opens it, CONTENT is its output, END closes it
 *      └─ tool         one call ─ START opens it, RESULT closes it; without a RESULT its END does
 *
 * RUN_FINISHED closes the turn with its usage. RUN_ERROR marks run and turn as failed. Spans that
 * are open then are closed too.
 *
 * The id of the trace is in the metadata of RUN_STARTED, where a client that joins later finds it. A
 * claim stores RUN_STARTED before the run begins, so `metadataOf` takes an id for it: the one of a span
 * that is never ended, and so never sent. The run then has a parent that no collector knows, so
 * Langfuse gets a mark (`as_root`).
 */
import { ChunkLanes, EFFECTS, type EventAddress, addressOf } from "@session-ledger/agui/constructs";
import { lookup } from "@session-ledger/agui/catalogue";
import { isObject } from "@session-ledger/agui/json";
import { BoundedMap } from "@session-ledger/base/bounded-map";
import type { AgentEvent } from "../bridge.ts";
import type { Middleware, RunContext } from "./middleware.ts";
import {
  type SpanAttributes,
  NAMES,
  NO_TRACE_ID,
  type ApiSpan,
  type SpanContext,
  STATUS_ERROR,
  type TraceApi,
  type ApiTracer,
} from "./trace-api.ts";
import { finishOf, lastUserText, printed, BoundedText } from "./trace-values.ts";

export interface TracingOptions {
  /** The name of the traces; default: that of the framework. */
  readonly name?: string;
  /** Default: the tracer `session-ledger` of the API's global provider. */
  readonly tracer?: ApiTracer;
  /** Called once for each run that cannot be traced any more, because OpenTelemetry threw. */
  readonly onError?: (error: unknown) => void;
}

/** Claims in progress whose trace has an id; only the newest one of a session is needed. */
const CLAIMS_MAX = 1_000;

/** `api`: all of the module `@opentelemetry/api`. */
export function tracing(api: TraceApi, options: TracingOptions = {}): Middleware {
  const tracer = options.tracer ?? api.trace.getTracer("session-ledger");
  const claims = new BoundedMap<string, SpanContext>(CLAIMS_MAX);
  const { onError = () => undefined, name } = options;

  async function* traced(
    events: AsyncIterable<AgentEvent>,
    context: RunContext,
  ): AsyncGenerator<AgentEvent, void, undefined> {
    const parent = claims.get(context.runId);
    claims.delete(context.runId);
    const run = safely(() => new TracedRun(api, tracer, { context, parent, name }));
    let isTraced = run !== undefined;
    try {
      for await (const event of events) {
        if (isTraced) isTraced = safely(() => run?.observe(event)) !== undefined;
        const { traceId } = run ?? { traceId: undefined };
        if (event.type !== "RUN_STARTED" || traceId === undefined) yield event;
        else {
          yield withTraceId(event, traceId);
          yield { type: "CUSTOM", name: "ambient:trace_id", value: { traceId } };
        }
      }
    } finally {
      if (isTraced) safely(() => run?.leave());
    }
  }

  return Object.assign(traced, {
    metadataOf(runId: string) {
      const claim = safely(() => tracer.startSpan("run", { root: true }).spanContext());
      if (claim === undefined || claim.traceId === NO_TRACE_ID) return undefined;
      claims.set(runId, claim); // The run is sampled as this span was.
      return isSampled(claim) ? { traceId: claim.traceId } : undefined;
    },
  });

  /** Undefined: it has thrown. A fault of the tracing is none of the agent's. */
  function safely<T>(work: () => T): T | undefined {
    try {
      return work();
    } catch (error) {
      onError(error);
      return undefined;
    }
  }
}

function isSampled({ traceFlags }: SpanContext): boolean {
  return (traceFlags & 1) === 1;
}

function withTraceId(event: AgentEvent, traceId: string): AgentEvent {
  const { metadata } = event;
  return { ...event, metadata: { ...(isObject(metadata) && metadata), traceId } };
}

/** A message or a call that is open. */
interface OpenSpan {
  readonly span: ApiSpan;
  readonly text: BoundedText;
  /** When the first piece of its text came. */
  firstAt?: Date;
  /** Of a call: when its END came. */
  endedAt?: Date;
}

/** Spans that are open at once in a run; further ones are not traced. */
const OPEN_MAX = 1_000;

class TracedRun {
  /** Undefined: the run is not recorded. */
  readonly traceId: string | undefined;
  readonly #tracer: ApiTracer;
  readonly #common: SpanAttributes;
  readonly #input: string;
  readonly #run: ApiSpan;
  readonly #inRun: unknown;
  readonly #api: TraceApi;
  #turn: { readonly span: ApiSpan; readonly inTurn: unknown } | undefined;
  readonly #open = new Map<string, OpenSpan>();
  readonly #lanes = new ChunkLanes();
  #answer = "";
  #isOver = false;

  constructor(
    api: TraceApi,
    tracer: ApiTracer,
    about: {
      readonly context: RunContext;
      readonly parent: SpanContext | undefined;
      readonly name: string | undefined;
    },
  ) {
    const { bridge, input, runId, sessionId } = about.context;
    const { text, userId } = lastUserText(input.messages);
    this.#api = api;
    this.#tracer = tracer;
    this.#common = { [NAMES.session]: sessionId, ...(userId !== "" && { [NAMES.user]: userId }) };
    this.#input = text;
    const { parent, name = bridge.capabilities().framework } = about;
    const attributes = {
      ...this.#common,
      [NAMES.type]: "agent",
      [NAMES.traceName]: name,
      [NAMES.traceInput]: text,
      [NAMES.input]: text,
      [`${NAMES.metadata}run_id`]: runId,
      ...(parent !== undefined && { [NAMES.asRoot]: true, [NAMES.isAppRoot]: true }),
    };
    this.#run =
      parent === undefined
        ? tracer.startSpan("run", { root: true, attributes }, api.ROOT_CONTEXT)
        : tracer.startSpan(
            "run",
            { attributes },
            api.trace.setSpanContext(api.ROOT_CONTEXT, parent),
          );
    this.#inRun = api.trace.setSpan(api.ROOT_CONTEXT, this.#run);
    const own = this.#run.spanContext();
    this.traceId = isSampled(own) ? own.traceId : undefined;
  }

  /** Returns true, to distinguish it from a failure. */
  observe(event: AgentEvent): true {
    const entry = lookup(event.type);
    const effect = entry && EFFECTS.get(entry.type);
    if (entry === undefined || effect === undefined || event.type === "RUN_STARTED") return true;
    if (this.#isOver) return true;
    this.#turn ??= this.#beginTurn();
    const address = addressOf(entry, event);
    const { construct, ended } = this.#lanes.follow(effect, address);
    for (const { kind, key } of ended) this.#close(`${kind}:${key}`);
    if (effect.does === "finish_run" || effect.does === "fail_run") this.#finish(event);
    else if (event.type === "TOOL_CALL_RESULT") this.#result(event, address);
    else if (effect.kind === "text" || effect.kind === "tool_call") {
      const { kind } = effect;
      const key = construct?.key ?? address.key ?? crypto.randomUUID();
      if (effect.does === "chunk" && construct === undefined)
        this.#lanes.begin(address.owner, { kind, key });
      this.#follow(`${kind}:${key}`, event, { begins: beginning(effect.does, construct) });
      if (effect.does === "end" && kind === "text") this.#close(`${kind}:${key}`);
      if (effect.does === "end" && kind === "tool_call") this.#endArguments(`${kind}:${key}`);
    }
    return true;
  }

  /** The events have ended, or their reader left. */
  leave(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#closeAll("the run was left");
    this.#turn?.span.end();
    this.#run.end();
  }

  #beginTurn(): { readonly span: ApiSpan; readonly inTurn: unknown } {
    // Langfuse counts the usage of generations; that of the messages in it is not known.
    const span = this.#start("turn", this.#inRun, {
      [NAMES.type]: "generation",
      [NAMES.input]: this.#input,
    });
    return { span, inTurn: this.#api.trace.setSpan(this.#inRun, span) };
  }

  #start(name: string, parent: unknown, own: SpanAttributes): ApiSpan {
    return this.#tracer.startSpan(name, { attributes: { ...this.#common, ...own } }, parent);
  }

  #follow(id: string, event: AgentEvent, { begins }: { readonly begins: boolean }): void {
    if (begins && !this.#open.has(id) && this.#open.size < OPEN_MAX) this.#begin(id, event);
    const open = this.#open.get(id);
    const { delta } = event;
    if (open === undefined || typeof delta !== "string" || delta === "") return;
    open.firstAt ??= new Date();
    open.text.add(delta);
  }

  #begin(id: string, event: AgentEvent): void {
    const { role = "assistant", toolCallName, toolCallId, messageId, subagentRunId } = event;
    const parent = this.#turn?.inTurn;
    const isTool = id.startsWith("tool_call:");
    if (!isTool && role !== "assistant") return;
    const name = isTool ? textIn(toolCallName, "tool") : "generation";
    const own = isTool ? { tool_call_id: toolCallId } : { message_id: messageId };
    const metadata = Object.entries({ ...own, subagent_run_id: subagentRunId });
    const present = metadata.filter(([, value]) => typeof value === "string" && value !== "");
    const span = this.#start(name, parent, {
      [NAMES.type]: isTool ? "tool" : "generation",
      ...Object.fromEntries(
        present.map(([key, value]) => [`${NAMES.metadata}${key}`, String(value)]),
      ),
    });
    this.#open.set(id, { span, text: new BoundedText() });
  }

  #endArguments(id: string): void {
    const open = this.#open.get(id);
    if (open !== undefined) open.endedAt ??= new Date();
  }

  #result(event: AgentEvent, { key }: EventAddress): void {
    const id = `tool_call:${key}`;
    this.#open.get(id)?.span.setAttributes({ [NAMES.output]: printed(event["content"]) });
    this.#close(id, new Date());
  }

  #close(id: string, at?: Date): void {
    const open = this.#open.get(id);
    if (open === undefined) return;
    this.#open.delete(id);
    const text = open.text.whole;
    if (id.startsWith("tool_call:")) {
      open.span.setAttributes({ [NAMES.input]: text });
      open.span.end(at ?? open.endedAt);
      return;
    }
    this.#answer = text;
    open.span.setAttributes({
      [NAMES.output]: text,
      // Langfuse's own clients send the time as JSON.
      ...(open.firstAt !== undefined && { [NAMES.firstOutputAt]: JSON.stringify(open.firstAt) }),
    });
    open.span.end();
  }

  #closeAll(why: string): void {
    for (const [id, { span, endedAt }] of this.#open) {
      if (endedAt === undefined) span.setAttributes({ [NAMES.statusMessage]: why });
      this.#close(id);
    }
  }

  #finish(event: AgentEvent): void {
    this.#closeAll("the run ended");
    const { model, usage, outcome } = finishOf(event);
    const spans = [this.#turn?.span, this.#run].filter((span) => span !== undefined);
    for (const span of spans) {
      span.setAttributes({
        [NAMES.output]: this.#answer,
        ...(outcome !== "" && { [`${NAMES.metadata}outcome`]: outcome }),
      });
      if (event.type === "RUN_ERROR") {
        const message = printed(event["message"]);
        span.setAttributes({ [NAMES.level]: "ERROR", [NAMES.statusMessage]: message });
        span.setStatus({ code: STATUS_ERROR, message });
      }
    }
    this.#turn?.span.setAttributes({
      ...(model !== "" && { [NAMES.model]: model }),
      ...(usage !== undefined && { [NAMES.usage]: JSON.stringify(usage) }),
    });
    this.#run.setAttributes({ [NAMES.traceOutput]: this.#answer });
    this.leave();
  }
}

function beginning(does: string, construct: unknown): boolean {
  return does === "start" || (does === "chunk" && construct === undefined);
}

function textIn(value: unknown, fallback: string): string {
  return typeof value === "string" && value !== "" ? value : fallback;
}
