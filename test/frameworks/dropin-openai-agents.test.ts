/** Streamed runs of the OpenAI Agents SDK, with its own scripted model. */
import { Agent, handoff, type Model, run, setTracingDisabled, tool } from "@openai/agents-core";
import {
  assistantMessage,
  functionCall,
  modelError,
  modelResponse,
  modelStream,
  ScriptedModel,
} from "@openai/agents-core/testing";
import { beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import { recordAgentStream } from "../../src/sdk/drop-ins/openai-agents.ts";
import { newSession, rowsOf } from "../support/pushing.ts";
import { cancel } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";

const { service, client } = useService();
beforeAll(() => setTracingDisabled(true));

const look = tool({
  name: "look",
  description: "Looks.",
  parameters: z.object({ q: z.string() }),
  execute: async ({ q }) => `found ${q}`,
});

function done(responseId: string, output: readonly object[]): object {
  const usage = { requests: 1, inputTokens: 3, outputTokens: 5, totalTokens: 8 };
  return { type: "response_done", response: { id: responseId, usage, output } };
}

/** A response whose text comes by tokens. */
function streamed(id: string, texts: readonly string[], ...more: readonly object[]) {
  const message = assistantMessage(texts.join(""), { id });
  const events = [
    { type: "response_started" },
    ...texts.map((delta) => ({ type: "output_text_delta", delta })),
    done(id, [message, ...more]),
  ];
  return modelStream(JSON.parse(JSON.stringify(events)));
}

async function typesOf(sessionId: string): Promise<readonly string[]> {
  return (await rowsOf(client, "events", sessionId)).map(({ eventType }) => eventType);
}

async function transcriptOf(
  sessionId: string,
): Promise<{ messages: unknown; interrupts: unknown }> {
  const { messages, interrupts } = await client.unary(SessionService.method.getTranscript, {
    sessionId,
  });
  return { messages: JSON.parse(messages), interrupts: JSON.parse(interrupts) };
}

function options(sessionId: string): { readonly address: string; readonly sessionId: string } {
  return { address: service.grpcAddress, sessionId };
}

const TEXT = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"];

test("a run with a tool is recorded whole, and its events are passed on", async () => {
  const sessionId = newSession();
  const call = functionCall("look", { q: "x" }, { callId: "c1" });
  const model = new ScriptedModel([
    streamed("m1", ["Let me ", "look."], call),
    streamed("m2", ["Done."]),
  ]);
  const result = await run(new Agent({ name: "Ann", model, tools: [look] }), "Where?", {
    stream: true,
  });
  let passed = 0;
  for await (const event of recordAgentStream(result, { ...options(sessionId), input: "Where?" }))
    passed += event.type === "raw_model_stream_event" ? 1 : 0;
  expect(passed).toBeGreaterThan(4);
  expect(result.finalOutput).toBe("Done.");
  expect(await typesOf(sessionId)).toEqual([
    "RUN_STARTED",
    ...TEXT,
    "TOOL_CALL_START",
    "TOOL_CALL_ARGS",
    "TOOL_CALL_END",
    "TOOL_CALL_RESULT",
    ...TEXT,
    "RUN_FINISHED",
  ]);
  expect((await transcriptOf(sessionId)).messages).toMatchObject([
    { role: "user", content: "Where?" },
    {
      role: "assistant",
      content: "Let me look.",
      toolCalls: [{ id: "c1", function: { name: "look", arguments: '{"q":"x"}' } }],
    },
    { role: "tool", toolCallId: "c1", content: "found x" },
    { role: "assistant", content: "Done." },
  ]);
  const [end] = (await rowsOf(client, "events", sessionId)).slice(-1);
  expect(JSON.parse(end?.payload ?? "")).toMatchObject({
    usage: [{ inputTokens: 6, outputTokens: 10, totalTokens: 16 }],
  });
});

test("a model without tokens, a handoff, and a history in the input", async () => {
  const sessionId = newSession();
  const bob = new Agent({
    name: "Bob",
    model: new ScriptedModel([[assistantMessage("I am Bob.")]]),
  });
  const transfer = handoff(bob);
  const call = functionCall(transfer.toolName, {}, { callId: "h1" });
  const ann = new Agent({
    name: "Ann",
    model: new ScriptedModel([modelResponse([call])]),
    handoffs: [transfer],
  });
  const input = [
    { role: "user" as const, content: "old" },
    assistantMessage("old answer"),
    { role: "user" as const, content: "new" },
  ];
  const result = await run(ann, input, { stream: true });
  for await (const _ of recordAgentStream(result, { ...options(sessionId), input }));
  expect(await typesOf(sessionId)).toContain("STEP_STARTED");
  expect((await transcriptOf(sessionId)).messages).toMatchObject([
    { role: "user", content: "new" },
    { role: "assistant", toolCalls: [{ id: "h1" }] },
    { role: "tool", toolCallId: "h1" },
    { role: "assistant", content: "I am Bob." },
  ]);
});

test("an approval that is asked for is an interrupt, and the next run goes on", async () => {
  const sessionId = newSession();
  const asking = tool({
    name: "look",
    description: "Looks.",
    parameters: z.object({ q: z.string() }),
    needsApproval: true,
    execute: async ({ q }) => `found ${q}`,
  });
  const call = functionCall("look", { q: "x" }, { callId: "c1" });
  const model = new ScriptedModel([modelResponse([call]), streamed("m2", ["Done."])]);
  const agent = new Agent({ name: "Ann", model, tools: [asking] });
  const first = await run(agent, "Where?", { stream: true });
  for await (const _ of recordAgentStream(first, { ...options(sessionId), input: "Where?" }));
  expect((await transcriptOf(sessionId)).interrupts).toMatchObject([
    { id: "c1", reason: "tool_approval", toolCallId: "c1" },
  ]);
  for (const item of first.interruptions) first.state.approve(item);
  const second = await run(agent, first.state, { stream: true });
  for await (const _ of recordAgentStream(second, options(sessionId)));
  const { messages, interrupts } = await transcriptOf(sessionId);
  expect(interrupts).toEqual([]);
  expect(messages).toMatchObject([
    { role: "user" },
    { role: "assistant", toolCalls: [{ id: "c1" }] },
    { role: "tool", toolCallId: "c1", content: "found x" },
    { role: "assistant", content: "Done." },
  ]);
});

test("a failure ends the run, and the app gets it", async () => {
  const sessionId = newSession();
  const agent = new Agent({
    name: "Ann",
    model: new ScriptedModel([modelError(new Error("no model"))]),
  });
  const result = await run(agent, "Where?", { stream: true });
  const read = async (): Promise<void> => {
    for await (const _ of recordAgentStream(result, { ...options(sessionId), input: "Where?" }));
  };
  await expect(read()).rejects.toThrow("no model");
  expect(await typesOf(sessionId)).toEqual(["RUN_STARTED", "RUN_ERROR"]);
});

test("an app that leaves the loop ends the run as cancelled", async () => {
  const sessionId = newSession();
  const model = new ScriptedModel([streamed("m1", ["a", "b", "c"])]);
  const result = await run(new Agent({ name: "Ann", model }), "Where?", { stream: true });
  for await (const event of recordAgentStream(result, { ...options(sessionId), input: "Where?" }))
    if (event.type === "raw_model_stream_event" && event.data.type === "output_text_delta") break;
  const [end] = (await rowsOf(client, "events", sessionId)).slice(-1);
  expect(JSON.parse(end?.payload ?? "")).toMatchObject({
    type: "RUN_FINISHED",
    outcome: { type: "cancelled" },
  });
});

test("a cancel ends the loop and the model, also while the model is silent", async () => {
  // Bug: the cancel was answered OK, and the model went on.
  const sessionId = newSession();
  const aborted = Promise.withResolvers<void>();
  const model: Model = {
    getResponse: () => Promise.reject(new Error("it streams")),
    async *getStreamedResponse({ signal }) {
      yield { type: "response_started" };
      yield { type: "output_text_delta", delta: "half" };
      await new Promise((_, reject) => {
        signal?.addEventListener("abort", () => {
          aborted.resolve();
          reject(signal.reason);
        });
      });
    },
  };
  const result = await run(new Agent({ name: "Ann", model }), "Where?", { stream: true });
  const given = { ...options(sessionId), input: "Where?", runId: "r-1" };
  for await (const event of recordAgentStream(result, given)) {
    if (event.type !== "raw_model_stream_event" || event.data.type !== "output_text_delta")
      continue;
    await expect.poll(() => typesOf(sessionId)).toContain("RUN_STARTED");
    await cancel(client, { sessionId, runId: "r-1" });
  }
  await aborted.promise;
  expect(result.cancelled).toBe(true);
  expect(await typesOf(sessionId)).toEqual(["RUN_STARTED", ...TEXT, "RUN_FINISHED"]);
  const [end] = (await rowsOf(client, "events", sessionId)).slice(-1);
  expect(JSON.parse(end?.payload ?? "")).toMatchObject({ outcome: { type: "cancelled" } });
});

test("a ledger that is away changes nothing for the app", async () => {
  const problems: string[] = [];
  const model = new ScriptedModel([streamed("m1", ["Hello"])]);
  const result = await run(new Agent({ name: "Ann", model }), "Hi", { stream: true });
  const away = {
    address: "127.0.0.1:1",
    sessionId: "s",
    onProblem: (_: string, { kind }: { readonly kind: string }) => void problems.push(kind),
  };
  for await (const _ of recordAgentStream(result, away));
  expect(result.finalOutput).toBe("Hello");
  expect(problems).toContain("left_behind");
});
