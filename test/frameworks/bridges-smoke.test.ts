/** The smoke matrix of packed turns: what the agent of each bridge gets of a turn. */
import { create } from "@bufbuild/protobuf";
import { AIMessage, type BaseMessage } from "@langchain/core/messages";
import { Command, END, MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
import { streamText } from "ai";
import { convertArrayToReadableStream, MockLanguageModelV4 } from "ai/test";
import { EMPTY } from "rxjs";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { SessionMessageSchema } from "../../gen/ambient/v1/messages_pb.ts";
import type { PlatformBridge } from "../../src/sdk/bridge.ts";
import { AguiBridge } from "../../src/sdk/bridges/agui.ts";
import { AiSdkBridge } from "../../src/sdk/bridges/ai-sdk.ts";
import { ClaudeBridge } from "../../src/sdk/bridges/claude.ts";
import { LangGraphBridge } from "../../src/sdk/bridges/langgraph.ts";
import { toRunAgentInput } from "../../src/sdk/input.ts";

const VOICE = { type: "text", text: "[Voice message transcript]: can we sync?" };
const IMAGE = {
  type: "image",
  source: { type: "data", value: "iVBORw0KGgo=", mimeType: "image/png" },
};

function from(name: string, ...content: readonly object[]) {
  const message = { id: `m-${name}`, role: "user", content };
  const payload = JSON.stringify({ messages: [message] });
  return create(SessionMessageSchema, { eventType: "user", payload, sender: { id: name, name } });
}

const MATRIX = [
  ["a transcript alone", [from("alice", VOICE)], [VOICE.text]],
  [
    "a transcript and a text",
    [from("alice", VOICE, { type: "text", text: "hear" })],
    [VOICE.text, "hear"],
  ],
  [
    "many authors",
    ["alice", "bob", "carol"].map((name) => from(name, { type: "text", text: `I am ${name}` })),
    ["I am alice", "I am bob", "I am carol"],
  ],
  ["an image alone", [from("alice", IMAGE)], ["image/png iVBORw0KGgo="]],
] as const;

const USAGE = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
};

interface Reader {
  readonly bridge: PlatformBridge;
  /** The content of the messages that the agent got. */
  readonly got: () => readonly unknown[];
}

function aiSdk(): Reader {
  const model = new MockLanguageModelV4({
    doStream: async () => ({
      stream: convertArrayToReadableStream([
        { type: "stream-start", warnings: [] },
        { type: "finish", finishReason: { unified: "stop", raw: undefined }, usage: USAGE },
      ]),
    }),
  });
  const bridge = new AiSdkBridge(({ messages }) =>
    streamText({ model, messages, onError: () => {} }),
  );
  const got = () => model.doStreamCalls[0]?.prompt.map(({ content }) => content) ?? [];
  return { bridge, got };
}

function langGraph(): Reader {
  let got: readonly BaseMessage[] = [];
  const graph = new StateGraph(MessagesAnnotation)
    .addNode("agent", ({ messages }) => {
      got = messages;
      return { messages: [new AIMessage("Done")] };
    })
    .addEdge(START, "agent")
    .addEdge("agent", END)
    .compile();
  const bridge = new LangGraphBridge({ graph, Command });
  return { bridge, got: () => got.map(({ content }) => content) };
}

function claude(): Reader {
  const got: unknown[] = [];
  const promptSchema = z.custom<AsyncIterator<unknown>>();
  const messageSchema = z.object({ message: z.object({ content: z.unknown() }) });
  const bridge = new ClaudeBridge({
    async *query({ prompt }) {
      const { value } = await promptSchema.parse(prompt).next();
      got.push(messageSchema.parse(value).message.content);
      yield { type: "result", subtype: "success", is_error: false };
    },
  });
  return { bridge, got: () => got };
}

function agui(): Reader {
  const got: unknown[] = [];
  const inputSchema = z.object({ messages: z.array(z.object({ content: z.unknown() })) });
  const bridge = new AguiBridge(() => ({
    run(input) {
      got.push(...inputSchema.parse(input).messages.map(({ content }) => content));
      return EMPTY;
    },
  }));
  return { bridge, got: () => got };
}

/** Prompts and pictures, without the delimiters of senders. */
function readable(contents: readonly unknown[]): readonly string[] {
  return contents
    .flat()
    .map((part) => (typeof part === "string" ? part : partSchema.parse(part)))
    .flatMap((text) => text.replace(/<sender_context>[^]*<\/sender_context>/, "").split("\n"))
    .filter((text) => text !== "");
}

/** A text, or the type and the bytes of a picture, wherever the framework has them. */
const partSchema = z
  .object({ text: z.string() })
  .transform(({ text }) => text)
  .or(
    z.unknown().transform((part) => {
      const found = JSON.stringify(part).match(/image\/png|iVBORw0KGgo=/g) ?? [];
      return found.toSorted((one, other) => one.length - other.length).join(" ");
    }),
  );

const READERS = { "ai-sdk": aiSdk, langgraph: langGraph, claude, agui };

describe.each(Object.entries(READERS))("the bridge %s", (_, reader) => {
  test.each(MATRIX)("gives the agent %s", async (_title, rows, expected) => {
    const { bridge, got } = reader();
    const { input } = toRunAgentInput({ sessionId: "s", runId: "r", rows }, { boundary: "b" });
    const run = bridge.run(input, { sessionId: "s", isContinuation: false });
    while ((await run.next()).done !== true);
    expect(readable(got())).toEqual(expected);
  });
});
