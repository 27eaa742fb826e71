/**
 * The middleware of a runner with a service: no secret reaches the ledger, and the trace of a turn is
 * known to collectors and to clients that join later.
 */
import * as otel from "@opentelemetry/api";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { SimpleSpanProcessor, TracerProvider } from "@opentelemetry/sdk-trace";
import { expect, onTestFinished, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { createLedgerClient } from "@session-ledger/runner/internal/client";
import { followFeedback, type Score } from "@session-ledger/runner/internal/sdk/feedback";
import { createRunner } from "@session-ledger/runner/internal/sdk/loop";
import { platformMiddleware } from "@session-ledger/runner/middleware";
import { redaction } from "@session-ledger/runner/internal/sdk/middleware/redaction";
import { tracing } from "@session-ledger/runner/internal/sdk/middleware/tracing";
import { TestBridge } from "../support/echo-bridge.ts";
import { newSession, rowsOf } from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";
import { type CollectedSpan, TraceCollector } from "../support/trace-collector.ts";
import { say } from "../support/turns.ts";

const SECRET = "s3cret-Value-of-the-pod";

const { service, client } = useService();
const { giveFeedback } = SessionService.method;

test("a turn's trace has no secret, and a client that joins later reads its id", async () => {
  const collector = new TraceCollector();
  const exporter = new OTLPTraceExporter({ url: `${await collector.start()}/v1/traces` });
  const provider = new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter })] });
  onTestFinished(() => provider.shutdown());
  onTestFinished(() => collector.stop());
  const bridge = new TestBridge(async function* () {
    yield { type: "TOOL_CALL_START", toolCallId: "t", toolCallName: "env" };
    yield { type: "TOOL_CALL_ARGS", toolCallId: "t", delta: "{}" };
    yield { type: "TOOL_CALL_END", toolCallId: "t" };
    const content = `TOKEN=${SECRET}`;
    yield { type: "TOOL_CALL_RESULT", messageId: "r", toolCallId: "t", content };
    yield { type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" };
    for (const delta of ["It is s3cret-", "Value-of-", "the-pod."])
      yield { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta };
    yield { type: "TEXT_MESSAGE_END", messageId: "m" };
    yield { type: "RUN_FINISHED", usage: [{ model: "m-1", inputTokens: 3, outputTokens: 4 }] };
  });
  bridge.notes.developer(`cloned with ${SECRET}`);
  const sessionId = newSession();
  await say(client, sessionId, "What is the token?");
  const middleware = platformMiddleware({
    redaction: redaction({ environment: { TOKEN: SECRET }, variables: ["TOKEN"] }),
    tracing: tracing(otel, { tracer: provider.getTracer("test") }),
  });
  const address = service.grpcAddress;
  const runner = createRunner(bridge, { address, sessionId, middleware });
  const ended = runner.run();
  await expect.poll(() => runner.stats.turns).toBe(1);
  await runner.stop();
  await ended;
  await provider.forceFlush();

  const rows = await rowsOf(client, "events", sessionId);
  const messages = await rowsOf(client, "messages", sessionId);
  const stored = [...rows, ...messages].map(({ payload }) => payload);
  expect(stored.join("\n")).not.toContain(SECRET);
  expect(stored.join("\n")).toContain(`TOKEN=${"*".repeat(SECRET.length)}`);
  expect(stored.join("\n")).toContain(`cloned with ${"*".repeat(SECRET.length)}`);
  expect(collector.bodies.join("\n")).not.toContain(SECRET);
  // Each span comes by a request of its own, and one request may overtake another.
  const names = collector.spans.map(({ name }) => name).toSorted();
  expect(names).toEqual(["env", "generation", "run", "turn"]);
  const attributes = collector.spans.find(({ name }) => name === "turn")?.attributes;
  expect(attributes).toMatchObject({
    "session.id": sessionId,
    "langfuse.observation.type": "generation",
    "langfuse.observation.output": `It is ${"*".repeat(SECRET.length)}.`,
    "langfuse.observation.model.name": "m-1",
    "langfuse.observation.usage_details": '{"input":3,"output":4,"total":7}',
  });

  const [traceId, ...others] = new Set(collector.spans.map((span) => span.traceId));
  expect(others).toEqual([]);
  const events: Record<string, unknown>[] = rows.map(({ payload }) => JSON.parse(payload));
  expect(events).toContainEqual({ type: "CUSTOM", name: "ambient:trace_id", value: { traceId } });
  expect(await joined(sessionId)).toMatchObject({ type: "RUN_STARTED", metadata: { traceId } });
});

test("a collector gets the six rules of one turn, and a thumb scores its trace", async () => {
  const collector = new TraceCollector();
  const exporter = new OTLPTraceExporter({ url: `${await collector.start()}/v1/traces` });
  const provider = new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter })] });
  onTestFinished(() => provider.shutdown());
  onTestFinished(() => collector.stop());
  const usage = [{ model: "m-1", inputTokens: 3, outputTokens: 4 }];
  let runs = 0;
  const bridge = new TestBridge(async function* () {
    runs += 1;
    yield { type: "TEXT_MESSAGE_START", messageId: `m${runs}`, role: "assistant" };
    for (const delta of ["It is ", "warm."])
      yield { type: "TEXT_MESSAGE_CONTENT", messageId: `m${runs}`, delta };
    yield { type: "TEXT_MESSAGE_END", messageId: `m${runs}` };
    yield { type: "TOOL_CALL_START", toolCallId: "t", toolCallName: "weather" };
    yield { type: "TOOL_CALL_ARGS", toolCallId: "t", delta: '{"at":"Rome"}' };
    yield { type: "TOOL_CALL_END", toolCallId: "t" };
    yield { type: "TOOL_CALL_RESULT", messageId: `r${runs}`, toolCallId: "t", content: "21" };
    if (runs > 1) throw new Error("the model is away");
    yield { type: "RUN_FINISHED", usage };
  });
  const sessionId = newSession();
  const middleware = platformMiddleware({
    tracing: tracing(otel, { tracer: provider.getTracer("test") }),
  });
  const runner = createRunner(bridge, { address: service.grpcAddress, sessionId, middleware });
  const ended = runner.run();
  const late: unknown[] = [];
  for (const turns of [1, 2]) {
    await say(client, sessionId, "How warm is it?");
    await expect.poll(() => runner.stats.turns).toBe(turns);
    late.push(await joined(sessionId));
  }
  await runner.stop();
  await ended;
  await provider.forceFlush();

  const begun = collector.spans.toSorted((one, other) =>
    Number(one.startTimeUnixNano - other.startTimeUnixNano),
  );
  const [traceId = "", failed = ""] = new Set(begun.map((span) => span.traceId));
  const inTurn = spansOf(collector.of(traceId));
  // START opens the generation, CONTENT is its output.
  expect(inTurn["generation"]).toMatchObject({
    "session.id": sessionId,
    "langfuse.observation.type": "generation",
    "langfuse.observation.output": "It is warm.",
    "langfuse.observation.completion_start_time": expect.any(String),
  });
  // TOOL_CALL_START opens a span, RESULT closes it.
  expect(inTurn["weather"]).toMatchObject({
    "langfuse.observation.type": "tool",
    "langfuse.observation.input": '{"at":"Rome"}',
    "langfuse.observation.output": "21",
  });
  // RUN_FINISHED closes the turn with its usage.
  expect(inTurn["turn"]).toMatchObject({
    "langfuse.observation.model.name": "m-1",
    "langfuse.observation.usage_details": '{"input":3,"output":4,"total":7}',
  });
  expect(inTurn["run"]).toMatchObject({
    "langfuse.internal.as_root": true,
    "langfuse.trace.input": expect.stringContaining("How warm is it?"),
    "langfuse.trace.output": "It is warm.",
  });
  // RUN_ERROR marks the turn as failed.
  expect(spansOf(collector.of(failed))["turn"]).toMatchObject({
    "langfuse.observation.level": "ERROR",
    "langfuse.observation.status_message": "the model is away",
  });
  // Feedback becomes a score of the trace, which a client that joins late knows too.
  await client.unary(giveFeedback, { sessionId, messageId: "m1", kind: "thumbs_up" });
  const stopping = new AbortController();
  const scores: Score[] = [];
  const follower = createLedgerClient({ address: service.grpcAddress });
  const following = followFeedback({
    client: follower,
    cursor: { load: async () => undefined, save: async () => undefined },
    score: async (score) => scores.push(score),
    signal: stopping.signal,
  });
  const own = () => scores.filter((score) => score.sessionId === sessionId);
  await expect.poll(own).toMatchObject([{ traceId, messageId: "m1", value: 1 }]);
  stopping.abort();
  await following;
  follower.close();
  expect(late).toMatchObject([
    { type: "RUN_STARTED", metadata: { traceId } },
    { type: "RUN_STARTED", metadata: { traceId: failed } },
  ]);
});

/** The attributes of spans, by their names. */
function spansOf(spans: readonly CollectedSpan[]) {
  return Object.fromEntries(spans.map(({ name, attributes }) => [name, attributes]));
}

/** The first event that a client gets which joins after the end. */
async function joined(sessionId: string): Promise<unknown> {
  const response = await fetch(`http://${service.httpAddress}/agui/sessions/${sessionId}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ threadId: sessionId, runId: "page", messages: [] }),
  });
  const [, first = "null"] = /^data: (.*)$/m.exec(await response.text()) ?? [];
  return JSON.parse(first);
}
