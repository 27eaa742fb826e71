/** Callbacks that record graphs of LangGraph.js, with LangChain's own fake models. */
import { randomUUID } from "node:crypto";
import {
  AIMessage,
  AIMessageChunk,
  type BaseMessage,
  HumanMessage,
  ToolMessage,
} from "@langchain/core/messages";
import type { CallbackManagerForLLMRun } from "@langchain/core/callbacks/manager";
import { ChatGenerationChunk } from "@langchain/core/outputs";
import { tool } from "@langchain/core/tools";
import { FakeListChatModel, FakeStreamingChatModel } from "@langchain/core/utils/testing";
import { dispatchCustomEvent } from "@langchain/core/callbacks/dispatch";
import {
  Annotation,
  Command,
  END,
  interrupt,
  MemorySaver,
  MessagesAnnotation,
  START,
  StateGraph,
} from "@langchain/langgraph";
import { ToolNode } from "@langchain/langgraph/prebuilt";
import { expect, test } from "vitest";
import { z } from "zod";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { LedgerCallbacks } from "@session-ledger/runner/langgraph-callbacks";
import { newSession, rowsOf } from "../support/pushing.ts";
import { cancel } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";

const { service, client } = useService();

const look = tool(async ({ q }) => `found ${q}`, {
  name: "look",
  description: "Looks.",
  schema: z.object({ q: z.string() }),
});

/** Calls a tool, with texts and arguments by tokens; the package's own model leaves out the arguments. */
class Caller extends FakeStreamingChatModel {
  override async *_streamResponseChunks(
    _messages: BaseMessage[],
    _options: this["ParsedCallOptions"],
    runManager?: CallbackManagerForLLMRun,
  ): AsyncGenerator<ChatGenerationChunk> {
    const calls = [
      { name: "look", args: '{"q":', id: "c1", index: 0 },
      { args: '"x"}', index: 0 },
    ];
    const texts = ["Let me ", "look."].map((text) => new AIMessageChunk(text));
    const called = calls.map((one) => new AIMessageChunk({ content: "", tool_call_chunks: [one] }));
    for (const message of [...texts, ...called]) {
      const chunk = new ChatGenerationChunk({ message, text: message.text });
      yield chunk;
      const none = undefined;
      await runManager?.handleLLMNewToken(chunk.text, none, none, none, none, { chunk });
    }
  }
}

const calling = new AIMessage({
  id: "called",
  content: "Let me look.",
  tool_calls: [{ id: "c1", name: "look", args: { q: "x" } }],
});

const State = Annotation.Root({ ...MessagesAnnotation.spec, places: Annotation<number> });

type Model = { invoke(messages: BaseMessage[]): Promise<BaseMessage> };

function graph(first: Model, then: Model = new FakeListChatModel({ responses: ["Done."] })) {
  return new StateGraph(State)
    .addNode("agent", async ({ messages }) => {
      const hasResult = messages.some((message) => message.getType() === "tool");
      return { messages: [await (hasResult ? then : first).invoke(messages)], places: 1 };
    })
    .addNode("tools", new ToolNode([look]))
    .addEdge(START, "agent")
    .addConditionalEdges("agent", ({ messages }) => {
      const last = messages.at(-1);
      const calls =
        last instanceof AIMessage || last instanceof AIMessageChunk ? last.tool_calls : [];
      return calls?.length ? "tools" : END;
    })
    .addEdge("tools", "agent");
}

function recording(sessionId?: string) {
  const own = sessionId === undefined ? {} : { sessionId };
  return new LedgerCallbacks({ address: service.grpcAddress, ...own });
}

async function transcriptOf(sessionId: string) {
  const { messages, interrupts, state } = await client.unary(SessionService.method.getTranscript, {
    sessionId,
  });
  return {
    messages: JSON.parse(messages),
    interrupts: JSON.parse(interrupts),
    state: state === undefined ? undefined : JSON.parse(state),
  };
}

async function typesOf(sessionId: string): Promise<readonly string[]> {
  return (await rowsOf(client, "events", sessionId)).map(({ eventType }) => eventType);
}

const WHOLE = [
  { role: "user", content: "Where?" },
  {
    role: "assistant",
    content: "Let me look.",
    toolCalls: [{ id: "c1", function: { name: "look", arguments: '{"q":"x"}' } }],
  },
  { role: "tool", toolCallId: "c1", content: "found x" },
  { role: "assistant", content: "Done." },
];

test("a graph that is invoked is recorded whole, in the session of its thread", async () => {
  const threadId = newSession();
  const callbacks = recording();
  const model: Model = { invoke: async () => calling };
  const result = await graph(model)
    .compile()
    .invoke(
      { messages: [new HumanMessage("Where?")] },
      { callbacks: [callbacks], configurable: { thread_id: threadId } },
    );
  expect(result.messages.at(-1)?.content).toBe("Done.");
  await callbacks.flush();
  const { messages, state } = await transcriptOf(threadId);
  expect(messages).toMatchObject(WHOLE);
  expect(messages).toHaveLength(WHOLE.length);
  expect(state).toEqual({ places: 1 });
  const types = await typesOf(threadId);
  expect([types[0], types.at(-1)]).toEqual(["RUN_STARTED", "RUN_FINISHED"]);
  expect(types.filter((type) => type === "STEP_STARTED")).toHaveLength(3);
  expect(types.filter((type) => type === "STEP_FINISHED")).toHaveLength(3);
});

test("a graph that streams is recorded by tokens", async () => {
  const sessionId = newSession();
  const callbacks = recording(sessionId);
  const answered: Model = { invoke: async () => new AIMessage({ id: "end", content: "Done." }) };
  const stream = await graph(new Caller({}), answered)
    .compile()
    .stream({ messages: [["user", "Where?"]] }, { callbacks: [callbacks], streamMode: "messages" });
  for await (const _ of stream);
  await callbacks.flush();
  const { messages } = await transcriptOf(sessionId);
  expect(
    messages.map(({ role, content }: { role: string; content: string }) => [role, content]),
  ).toEqual([
    ["user", "Where?"],
    ["assistant", "Let me look."],
    ["tool", "found x"],
    ["assistant", "Done."],
  ]);
  const rows = await rowsOf(client, "events", sessionId);
  const counts = rows.map((row) => ("eventCount" in row ? row.eventCount : 0));
  expect(Math.max(...counts)).toBe(2);
  expect(rows.map(({ payload }) => payload).join("\n")).toContain('"delta":"{\\"q\\":\\"x\\"}"');
});

test("a history that the app passes again is not recorded twice", async () => {
  const sessionId = newSession();
  const model: Model = { invoke: async () => new AIMessage({ content: "Hello." }) };
  let history: BaseMessage[] = [];
  for (const question of ["one", "two"]) {
    const callbacks = recording(sessionId);
    const input = { messages: [...history, new HumanMessage(question)] };
    ({ messages: history } = await graph(model)
      .compile()
      .invoke(input, { callbacks: [callbacks] }));
    await callbacks.flush();
  }
  const { messages } = await transcriptOf(sessionId);
  expect(messages.map(({ content }: { content: string }) => content)).toEqual([
    "one",
    "Hello.",
    "two",
    "Hello.",
  ]);
});

test("an interrupt waits in the session, and a resumed graph answers it", async () => {
  const sessionId = newSession();
  const callbacks = recording(sessionId);
  const compiled = new StateGraph(MessagesAnnotation)
    .addNode("ask", async () => ({ messages: [new AIMessage(`You said ${interrupt("Sure?")}.`)] }))
    .addEdge(START, "ask")
    .compile({ checkpointer: new MemorySaver() });
  const config = { callbacks: [callbacks], configurable: { thread_id: "t" } };
  await compiled.invoke({ messages: [new HumanMessage("Go.")] }, config);
  await callbacks.flush();
  expect((await transcriptOf(sessionId)).interrupts).toMatchObject([
    { reason: "interrupt", message: "Sure?", metadata: { value: "Sure?" } },
  ]);
  await compiled.invoke(new Command({ resume: "yes" }), config);
  await callbacks.flush();
  const { messages, interrupts } = await transcriptOf(sessionId);
  expect(interrupts).toEqual([]);
  expect(messages).toMatchObject([{ content: "Go." }, { content: "You said yes." }]);
});

test("subgraphs and parallel nodes are steps of the run, and messages come once", async () => {
  const sessionId = newSession();
  const callbacks = recording(sessionId);
  const inner = new StateGraph(MessagesAnnotation)
    .addNode("inside", async () => ({ messages: [new AIMessage("From inside.")] }))
    .addEdge(START, "inside")
    .compile();
  const outer = new StateGraph(MessagesAnnotation)
    .addNode("sub", inner)
    .addNode("beside", async () => {
      await dispatchCustomEvent("progress", { done: 1 });
      return { messages: [new AIMessage("From beside.")] };
    })
    .addEdge(START, "sub")
    .addEdge(START, "beside")
    .compile();
  await outer.invoke({ messages: [new HumanMessage("Go.")] }, { callbacks: [callbacks] });
  await callbacks.flush();
  const { messages } = await transcriptOf(sessionId);
  expect(messages.map(({ content }: { content: string }) => content).toSorted()).toEqual([
    "From beside.",
    "From inside.",
    "Go.",
  ]);
  expect(await typesOf(sessionId)).toContain("CUSTOM");
});

test("a failure ends the run with RUN_ERROR, and the app gets it", async () => {
  const sessionId = newSession();
  const callbacks = recording(sessionId);
  const model: Model = { invoke: async () => Promise.reject(new Error("no model")) };
  const running = graph(model)
    .compile()
    .invoke({ messages: [new HumanMessage("Go.")] }, { callbacks: [callbacks] });
  await expect(running).rejects.toThrow("no model");
  await callbacks.flush();
  expect((await typesOf(sessionId)).at(-1)).toBe("RUN_ERROR");
});

test("a model and a tool without a graph are runs, too", async () => {
  const [one, two] = [newSession(), newSession()];
  const [model, alone] = [recording(one), recording(two)];
  await new FakeListChatModel({ responses: ["Hi."] }).invoke("Hello?", { callbacks: [model] });
  await look.invoke({ q: "y" }, { callbacks: [alone] });
  await Promise.all([model.flush(), alone.flush()]);
  expect((await transcriptOf(one)).messages).toMatchObject([
    { content: "Hello?" },
    { content: "Hi." },
  ]);
  expect((await transcriptOf(two)).messages).toMatchObject([
    { role: "assistant", toolCalls: [{ function: { name: "look", arguments: '{"q":"y"}' } }] },
    { role: "tool", content: "found y" },
  ]);
});

test("a ledger that is away changes nothing for the graph", async () => {
  const problems: string[] = [];
  const callbacks = new LedgerCallbacks({
    address: "127.0.0.1:1",
    onProblem: (_, { kind }) => void problems.push(kind),
  });
  const answered: Model = {
    invoke: async () => new ToolMessage({ content: "", tool_call_id: "none" }),
  };
  await graph(answered, answered)
    .compile()
    .invoke({ messages: [new HumanMessage("Go.")] }, { callbacks: [callbacks] });
  await callbacks.flush();
  expect(problems).toContain("left_behind");
});

test("a cancel aborts the signal of the session's run, and with it the graph", async () => {
  // Bug: the cancel was answered OK, and the graph went on.
  const threadId = newSession();
  const callbacks = recording();
  const compiled = new StateGraph(MessagesAnnotation)
    .addNode("wait", async (_state, { signal }) => {
      await new Promise((_, reject) => {
        signal?.addEventListener("abort", () => reject(signal.reason));
      });
      return { messages: [] };
    })
    .addEdge(START, "wait")
    .compile();
  const invoke = (runId: string) =>
    compiled.invoke(
      { messages: [new HumanMessage("Go.")] },
      {
        callbacks: [callbacks],
        runId,
        configurable: { thread_id: threadId },
        signal: callbacks.signalOf(threadId),
      },
    );
  const lastOf = async () => {
    const rows = await rowsOf(client, "events", threadId).catch(() => []);
    return JSON.parse(rows.at(-1)?.payload ?? "{}");
  };
  // The signal of the first run is not that of the second one.
  for (const runId of [randomUUID(), randomUUID()]) {
    const outcome = invoke(runId).catch((error: unknown) => error);
    await expect.poll(lastOf).toMatchObject({ type: "STEP_STARTED" });
    await cancel(client, { sessionId: threadId, runId });
    expect(await outcome).toMatchObject({ name: "AbortError" });
    await callbacks.flush();
    expect(await lastOf()).toMatchObject({
      type: "RUN_FINISHED",
      runId,
      outcome: { type: "cancelled" },
    });
  }
});
