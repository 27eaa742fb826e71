/** Spans of one run, with the real SDK of OpenTelemetry and a collector that reads OTLP. */
import { setImmediate } from "node:timers/promises";
import * as otel from "@opentelemetry/api";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { AlwaysOffSampler, SimpleSpanProcessor, TracerProvider } from "@opentelemetry/sdk-trace";
import { describe, expect, onTestFinished, test } from "vitest";
import type { AgentEvent } from "@session-ledger/runner/internal/sdk/bridge";
import { metadataOf } from "@session-ledger/runner/internal/sdk/middleware/middleware";
import { tracing } from "@session-ledger/runner/internal/sdk/middleware/tracing";
import { runContext } from "../../../test/support/echo-bridge.ts";
import { type CollectedSpan, TraceCollector } from "../../../test/support/trace-collector.ts";
import { text } from "../../../test/support/agui-events.ts";

const STARTED = { type: "RUN_STARTED", threadId: "s", runId: "r" };
const FINISHED = { type: "RUN_FINISHED", threadId: "s", runId: "r" };
const TRACE_ID = /^[0-9a-f]{32}$/;

async function collecting({ isOff = false } = {}) {
  const collector = new TraceCollector();
  const url = `${await collector.start()}/v1/traces`;
  const provider = new TracerProvider({
    ...(isOff && { sampler: new AlwaysOffSampler() }),
    spanProcessors: [new SimpleSpanProcessor({ exporter: new OTLPTraceExporter({ url }) })],
  });
  onTestFinished(async () => {
    await provider.shutdown();
    await collector.stop();
  });
  const middleware = tracing(otel, { tracer: provider.getTracer("test") });
  return {
    middleware,
    async spans(): Promise<readonly CollectedSpan[]> {
      await provider.forceFlush();
      return collector.spans;
    },
  };
}

async function* given(events: readonly AgentEvent[]): AsyncGenerator<AgentEvent> {
  yield* events;
}

async function through(
  { middleware }: { readonly middleware: ReturnType<typeof tracing> },
  events: readonly AgentEvent[],
  context = runContext(),
): Promise<readonly AgentEvent[]> {
  const list: AgentEvent[] = [];
  for await (const event of middleware(given(events), context)) list.push(event);
  return list;
}

function named(spans: readonly CollectedSpan[], name: string): CollectedSpan {
  const [one, ...others] = spans.filter((span) => span.name === name);
  if (one === undefined || others.length > 0) throw new Error(`not one span ${name}`);
  return one;
}

describe("the trace of a run", () => {
  test("has a turn with usage, a generation for each answer, and a span for each tool", async () => {
    const traced = await collecting();
    const message = {
      id: "u",
      role: "user",
      content: "How warm is it?",
      metadata: { sender_context: { sender_id: "ada" } },
    };
    const input = { ...runContext().input, messages: [message] };
    const usage = [
      { model: "m-1", inputTokens: 10, outputTokens: 5, totalTokens: 15, cachedInputTokens: 4 },
      { model: "m-1", inputTokens: 1, outputTokens: 2, reasoningTokens: 1, totalTokens: 3 },
    ];
    const events = await through(
      traced,
      [
        STARTED,
        { type: "TEXT_MESSAGE_START", messageId: "a", role: "assistant" },
        { type: "TEXT_MESSAGE_CONTENT", messageId: "a", delta: "Let me " },
        { type: "TOOL_CALL_START", toolCallId: "t", toolCallName: "weather" },
        { type: "TEXT_MESSAGE_CONTENT", messageId: "a", delta: "see." },
        { type: "TOOL_CALL_ARGS", toolCallId: "t", delta: '{"city":' },
        { type: "TOOL_CALL_ARGS", toolCallId: "t", delta: '"Oslo"}' },
        { type: "TOOL_CALL_END", toolCallId: "t" },
        { type: "TEXT_MESSAGE_END", messageId: "a" },
        { type: "TOOL_CALL_RESULT", messageId: "r", toolCallId: "t", content: "12 degrees" },
        ...text("b", "12 ", "degrees."),
        { ...FINISHED, usage },
      ],
      runContext({ input }),
    );
    const spans = await traced.spans();
    const run = named(spans, "run");
    const turn = named(spans, "turn");
    const tool = named(spans, "weather");
    const generations = spans.filter(({ name }) => name === "generation");
    expect(new Set(spans.map(({ traceId }) => traceId)).size).toBe(1);
    expect(spans.length).toBe(5);
    const common = { "session.id": "s", "user.id": "ada" };
    expect(run.parentSpanId).toBeUndefined();
    expect(run.attributes).toEqual({
      ...common,
      "langfuse.observation.type": "agent",
      "langfuse.trace.name": "none",
      "langfuse.trace.input": "How warm is it?",
      "langfuse.trace.output": "12 degrees.",
      "langfuse.observation.input": "How warm is it?",
      "langfuse.observation.output": "12 degrees.",
      "langfuse.observation.metadata.run_id": "r",
    });
    expect(turn.parentSpanId).toBe(run.spanId);
    expect(turn.attributes).toEqual({
      ...common,
      "langfuse.observation.type": "generation",
      "langfuse.observation.input": "How warm is it?",
      "langfuse.observation.output": "12 degrees.",
      "langfuse.observation.model.name": "m-1",
      "langfuse.observation.usage_details":
        '{"input":7,"output":6,"total":18,"input_cached_tokens":4,"output_reasoning_tokens":1}',
    });
    expect(generations.map(({ parentSpanId }) => parentSpanId)).toEqual([turn.spanId, turn.spanId]);
    expect(generations.map(({ attributes }) => attributes)).toEqual(
      [
        ["a", "Let me see."],
        ["b", "12 degrees."],
      ].map(([id, output]) => ({
        ...common,
        "langfuse.observation.type": "generation",
        "langfuse.observation.output": output,
        "langfuse.observation.metadata.message_id": id,
        "langfuse.observation.completion_start_time": expect.stringMatching(/^"20.*Z"$/),
      })),
    );
    expect(tool.parentSpanId).toBe(turn.spanId);
    expect(tool.attributes).toEqual({
      ...common,
      "langfuse.observation.type": "tool",
      "langfuse.observation.input": '{"city":"Oslo"}',
      "langfuse.observation.output": "12 degrees",
      "langfuse.observation.metadata.tool_call_id": "t",
    });
    const { traceId } = run;
    expect(events.slice(0, 2)).toEqual([
      { ...STARTED, metadata: { traceId } },
      { type: "CUSTOM", name: "ambient:trace_id", value: { traceId } },
    ]);
    expect(events.length).toBe(16);
  });

  test("is failed after RUN_ERROR, and what was open is closed", async () => {
    const traced = await collecting();
    await through(traced, [
      STARTED,
      { type: "TOOL_CALL_START", toolCallId: "t", toolCallName: "stuck" },
      { type: "RUN_ERROR", message: "no model", usage: [{ inputTokens: 3 }] },
    ]);
    const spans = await traced.spans();
    for (const name of ["run", "turn"]) {
      const { attributes, status } = named(spans, name);
      expect(status).toEqual({ code: 2 });
      expect(attributes).toMatchObject({
        "langfuse.observation.level": "ERROR",
        "langfuse.observation.status_message": "no model",
      });
    }
    expect(named(spans, "turn").attributes["langfuse.observation.usage_details"]).toBe(
      '{"input":3,"output":0,"total":3}',
    );
    expect(named(spans, "stuck").attributes).toMatchObject({
      "langfuse.observation.status_message": "the run ended",
    });
  });

  test("closes a call without a result at its END", async () => {
    const traced = await collecting();
    async function* agent(): AsyncGenerator<AgentEvent> {
      yield* [
        STARTED,
        { type: "TOOL_CALL_START", toolCallId: "t", toolCallName: "page" },
        { type: "TOOL_CALL_END", toolCallId: "t" },
      ];
      // The two ends must have different times.
      const nowMs = Date.now();
      while (Date.now() <= nowMs + 1) await setImmediate();
      yield* [...text("m", "x"), FINISHED];
    }
    for await (const _ of traced.middleware(agent(), runContext()));
    const spans = await traced.spans();
    const { attributes, endTimeUnixNano } = named(spans, "page");
    expect(attributes).not.toHaveProperty("langfuse.observation.status_message");
    expect(endTimeUnixNano).toBeLessThan(named(spans, "generation").startTimeUnixNano);
  });

  test("reads CHUNKs, the usage of older adapters, and only the agent's own messages", async () => {
    const traced = await collecting();
    await through(traced, [
      STARTED,
      { type: "TEXT_MESSAGE_CHUNK", messageId: "m", role: "assistant", delta: "one " },
      { type: "TEXT_MESSAGE_CHUNK", delta: "two" },
      { type: "TOOL_CALL_CHUNK", toolCallId: "t", toolCallName: "find", delta: "{" },
      { type: "TOOL_CALL_CHUNK", delta: "}" },
      { type: "TEXT_MESSAGE_START", messageId: "d", role: "developer" },
      { type: "TEXT_MESSAGE_CONTENT", messageId: "d", delta: "note" },
      { type: "TEXT_MESSAGE_END", messageId: "d" },
      { ...FINISHED, outcome: { type: "cancelled" }, result: { usage: { input_tokens: 2 } } },
    ]);
    const spans = await traced.spans();
    const textOf = (name: string, end: string) =>
      named(spans, name).attributes[`langfuse.observation.${end}`];
    expect(textOf("generation", "output")).toBe("one two");
    expect(textOf("find", "input")).toBe("{}");
    expect(textOf("turn", "metadata.outcome")).toBe("cancelled");
    expect(textOf("turn", "usage_details")).toBe('{"input":2,"output":0,"total":2}');
  });

  test("has the id that RUN_STARTED of a claim has got, and is a root for Langfuse", async () => {
    const traced = await collecting();
    const metadata = metadataOf([traced.middleware], "r");
    expect(metadata).toEqual({ traceId: expect.stringMatching(TRACE_ID) });
    metadataOf([traced.middleware], "of a claim without a turn");
    const [started] = await through(traced, [{ ...STARTED, metadata }, FINISHED]);
    expect(started).toEqual({ ...STARTED, metadata });
    const spans = await traced.spans();
    expect(spans.map(({ name, traceId }) => [name, traceId])).toEqual([
      ["turn", metadata["traceId"]],
      ["run", metadata["traceId"]],
    ]);
    expect(named(spans, "run").attributes).toMatchObject({
      "langfuse.internal.as_root": true,
      "langfuse.internal.is_app_root": true,
    });
  });

  test("is cut where a text is too long for a collector", async () => {
    const traced = await collecting();
    const deltas = Array.from({ length: 100 }, () => "x".repeat(1_000));
    await through(traced, [STARTED, ...text("m", ...deltas), FINISHED]);
    const output = named(await traced.spans(), "generation").attributes[
      "langfuse.observation.output"
    ];
    expect(output).toBe(`${"x".repeat(65_535)}…`);
  });

  test("ends when its reader leaves", async () => {
    const traced = await collecting();
    for await (const { type } of traced.middleware(
      given([STARTED, ...text("m", "x")]),
      runContext(),
    )) {
      if (type === "TEXT_MESSAGE_CONTENT") break;
    }
    const spans = await traced.spans();
    expect(spans.map(({ name }) => name)).toEqual(["generation", "turn", "run"]);
  });
});

test("without a recorded trace the events stay as they are", async () => {
  const silent = { middleware: tracing(otel) };
  expect(await through(silent, [STARTED, FINISHED])).toEqual([STARTED, FINISHED]);
  expect(metadataOf([silent.middleware], "r")).toEqual({});
  const off = await collecting({ isOff: true });
  expect(metadataOf([off.middleware], "r")).toEqual({});
  expect(await through(off, [STARTED, FINISHED])).toEqual([STARTED, FINISHED]);
  expect(await off.spans()).toEqual([]);
});

test("a tracer that throws is reported once, and the run continues", async () => {
  const errors: unknown[] = [];
  const tracer = {
    startSpan() {
      throw new Error("broken");
    },
  };
  const middleware = tracing(otel, { tracer, onError: (error) => errors.push(error) });
  const events = [STARTED, ...text("m", "x"), FINISHED];
  expect(await through({ middleware }, events)).toEqual(events);
  expect(errors).toEqual([new Error("broken")]);
});
