/** What only one framework has: steps, sources, files, state, subagents, checkpoints, and its tokens. */
import { ToolMessage } from "@langchain/core/messages";
import {
  Annotation,
  Command,
  END,
  type LangGraphRunnableConfig,
  MemorySaver,
  MessagesAnnotation,
  START,
  StateGraph,
} from "@langchain/langgraph";
import { streamText } from "ai";
import { convertArrayToReadableStream, MockLanguageModelV4 } from "ai/test";
import { expect, test } from "vitest";
import type {
  AgentEvent,
  PlatformBridge,
  RunInput,
} from "@session-ledger/runner/internal/sdk/bridge";
import { AiSdkBridge } from "@session-ledger/runner/ai-sdk";
import { ClaudeBridge } from "@session-ledger/runner/claude";
import { LangGraphBridge } from "@session-ledger/runner/langgraph";
import { checkLegal } from "../support/agui-oracle.ts";

const QUESTION = { id: "u1", role: "user", content: "question" };

/** The events of a run, which must be legal. */
async function run(
  bridge: PlatformBridge,
  messages: RunInput["messages"] = [QUESTION],
): Promise<readonly AgentEvent[]> {
  const ids = { threadId: "s", runId: "r" };
  const input = { ...ids, messages, tools: [], context: [] };
  const events: AgentEvent[] = [];
  for await (const event of bridge.run(input, { sessionId: "s", isContinuation: false })) {
    events.push(event);
  }
  await checkLegal([{ type: "RUN_STARTED", ...ids }, ...events]);
  return events;
}

test("AI SDK: sources and files are activities, a step is a step, and tokens are counted", async () => {
  const model = new MockLanguageModelV4({
    doStream: async () => ({
      stream: convertArrayToReadableStream([
        { type: "stream-start", warnings: [] },
        { type: "response-metadata", modelId: "mock" },
        { type: "source", sourceType: "url", id: "1", url: "https://example.com/", title: "Page" },
        { type: "file", mediaType: "image/png", data: { type: "data", data: "AAAA" } },
        { type: "text-start", id: "0" },
        { type: "text-delta", id: "0", delta: "one" },
        { type: "text-end", id: "0" },
        { type: "text-start", id: "1" },
        { type: "text-delta", id: "1", delta: "two" },
        { type: "text-end", id: "1" },
        {
          type: "finish",
          finishReason: { unified: "stop", raw: undefined },
          usage: {
            inputTokens: { total: 7, noCache: 4, cacheRead: 3, cacheWrite: 0 },
            outputTokens: { total: 5, text: 3, reasoning: 2 },
          },
        },
      ]),
    }),
  });
  const bridge = new AiSdkBridge(({ messages, abortSignal }) =>
    streamText({ model, messages, abortSignal }),
  );
  const events = await run(bridge);
  expect(events).toMatchObject([
    { type: "STEP_STARTED", stepName: "step 1" },
    { activityType: "source", content: { url: "https://example.com/", title: "Page" } },
    { activityType: "file", content: { mediaType: "image/png", base64: "AAAA" } },
    { type: "TEXT_MESSAGE_START" },
    { delta: "one" },
    { type: "TEXT_MESSAGE_END" },
    { type: "TEXT_MESSAGE_START" },
    { delta: "two" },
    { type: "TEXT_MESSAGE_END" },
    { type: "STEP_FINISHED", stepName: "step 1" },
    {
      type: "RUN_FINISHED",
      usage: [
        {
          model: "mock",
          inputTokens: 7,
          outputTokens: 5,
          cachedInputTokens: 3,
          reasoningTokens: 2,
        },
      ],
    },
  ]);
  const texts = events.filter(({ type }) => type === "TEXT_MESSAGE_START");
  expect(new Set(texts.map(({ messageId }) => messageId)).size).toBe(2);
});

const State = Annotation.Root({
  ...MessagesAnnotation.spec,
  found: Annotation<string[]>({ reducer: (old, next) => [...old, ...next], default: () => [] }),
});

test("LangGraph: nodes are steps, also parallel ones, values are the state, writers write CUSTOM", async () => {
  const find =
    (what: string) =>
    (_: typeof State.State, { writer }: LangGraphRunnableConfig) => {
      writer?.({ looks: what });
      return { found: [what] };
    };
  const graph = new StateGraph(State)
    .addNode("left", find("left"))
    .addNode("right", find("right"))
    .addEdge(START, "left")
    .addEdge(START, "right")
    .addEdge("left", END)
    .addEdge("right", END)
    .compile();
  const events = await run(new LangGraphBridge({ graph, Command }));
  const steps = events.filter(({ type }) => type === "STEP_STARTED");
  expect(steps.map(({ stepName }) => stepName)).toEqual(["left", "right"]);
  const written = events.filter(({ type }) => type === "CUSTOM");
  expect(written).toMatchObject([{ value: { looks: "left" } }, { value: { looks: "right" } }]);
  const states = events.filter(({ type }) => type === "STATE_SNAPSHOT");
  expect(states.at(-1)).toMatchObject({ snapshot: { found: ["left", "right"] } });
});

test("LangGraph: a graph that was left in the middle of a turn continues from its checkpoint", async () => {
  let fails = true;
  const runs: string[] = [];
  const graph = new StateGraph(MessagesAnnotation)
    .addNode("first", () => {
      runs.push("first");
      const tool_calls = [{ id: "c1", name: "lookup", args: {} }];
      return { messages: [{ role: "assistant", id: "a1", content: "I look", tool_calls }] };
    })
    .addNode("second", () => {
      runs.push("second");
      if (fails) throw new Error("killed");
      return { messages: [new ToolMessage({ content: "found", tool_call_id: "c1" })] };
    })
    .addEdge(START, "first")
    .addEdge("first", "second")
    .addEdge("second", END)
    .compile({ checkpointer: new MemorySaver() });
  await expect(run(new LangGraphBridge({ graph, Command }))).rejects.toThrow("killed");
  fails = false;
  const events = await run(new LangGraphBridge({ graph, Command }));
  expect(runs).toEqual(["first", "second", "second"]);
  expect(events.map(({ type }) => type)).toEqual([
    "STEP_STARTED",
    "TOOL_CALL_RESULT",
    "STEP_FINISHED",
    "RUN_FINISHED",
  ]);
});

test("Claude: a subagent has the id of its call, and messages that are not streamed are told", async () => {
  const say = (type: string, content: readonly object[], parent: string | null = null) => ({
    type,
    parent_tool_use_id: parent,
    ...(parent !== null && { subagent_type: "finder" }),
    message: { id: crypto.randomUUID(), model: "mock", content },
  });
  const bridge = new ClaudeBridge({
    async *query() {
      yield say("assistant", [
        { type: "text", text: "I ask" },
        { type: "tool_use", id: "t1", name: "Task", input: { prompt: "find" } },
      ]);
      yield say("assistant", [{ type: "tool_use", id: "t2", name: "Read", input: {} }], "t1");
      yield say("user", [{ type: "tool_result", tool_use_id: "t2", content: "text" }], "t1");
      yield say("assistant", [{ type: "text", text: "It is there" }], "t1");
      const content = [{ type: "text", text: "found" }];
      yield say("user", [{ type: "tool_result", tool_use_id: "t1", content }]);
      yield say("assistant", [{ type: "text", text: "Done" }]);
      const usage = { input_tokens: 2, cache_read_input_tokens: 10, output_tokens: 5 };
      yield { type: "result", subtype: "success", is_error: false, usage };
    },
  });
  const own = { subagentRunId: "t1" };
  expect(await run(bridge)).toMatchObject([
    { type: "TEXT_MESSAGE_START" },
    { type: "TEXT_MESSAGE_CONTENT", delta: "I ask" },
    { type: "TEXT_MESSAGE_END" },
    { type: "TOOL_CALL_START", toolCallId: "t1" },
    { type: "TOOL_CALL_ARGS", delta: '{"prompt":"find"}' },
    { type: "TOOL_CALL_END", toolCallId: "t1" },
    { type: "SUBAGENT_STARTED", ...own, name: "finder", parentToolCallId: "t1" },
    { type: "TOOL_CALL_START", toolCallId: "t2", ...own },
    { type: "TOOL_CALL_ARGS", delta: "{}", ...own },
    { type: "TOOL_CALL_END", toolCallId: "t2", ...own },
    { type: "TOOL_CALL_RESULT", toolCallId: "t2", content: "text", ...own },
    { type: "TEXT_MESSAGE_START", ...own },
    { type: "TEXT_MESSAGE_CONTENT", delta: "It is there", ...own },
    { type: "TEXT_MESSAGE_END", ...own },
    { type: "SUBAGENT_FINISHED", ...own },
    { type: "TOOL_CALL_RESULT", toolCallId: "t1", content: "found" },
    { type: "TEXT_MESSAGE_START" },
    { type: "TEXT_MESSAGE_CONTENT", delta: "Done" },
    { type: "TEXT_MESSAGE_END" },
    {
      type: "RUN_FINISHED",
      usage: [{ model: "mock", inputTokens: 12, outputTokens: 5, cachedInputTokens: 10 }],
    },
  ]);
});
