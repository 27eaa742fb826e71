/** The smoke matrix of packed turns: what the agent of each bridge gets of a turn. */
import { create } from "@bufbuild/protobuf";
import { AIMessage, type BaseMessage } from "@langchain/core/messages";
import {
  Command,
  END,
  MemorySaver,
  MessagesAnnotation,
  START,
  StateGraph,
} from "@langchain/langgraph";
import { streamText } from "ai";
import { convertArrayToReadableStream, MockLanguageModelV4 } from "ai/test";
import { EMPTY } from "rxjs";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { SessionMessageSchema } from "@session-ledger/proto/ambient/v1/messages_pb";
import type { PlatformBridge } from "@session-ledger/runner/internal/sdk/bridge";
import { AguiBridge } from "@session-ledger/runner/agui";
import { AiSdkBridge } from "@session-ledger/runner/ai-sdk";
import { ClaudeBridge } from "@session-ledger/runner/claude";
import { LangGraphBridge } from "@session-ledger/runner/langgraph";
import { toRunAgentInput } from "@session-ledger/runner/internal/sdk/input";

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
    // The model reads it itself.
    supportedUrls: { "image/*": [/^https:/] },
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

/** Parts of both generations of clients: what each framework takes of them, and what is reported. */
const A = { type: "text", text: "text A" };
const B = { type: "text", text: "text B" };
const image = (value: string) => ({
  type: "image",
  source: { type: "data", value, mimeType: "image/png" },
});
const FILES = [
  A,
  image("AAAA"),
  B,
  image("BBBB"),
  { type: "document", source: { type: "data", value: "UERG", mimeType: "application/pdf" } },
  { type: "video", source: { type: "data", value: "VklE", mimeType: "video/mp4" } },
  { type: "audio", source: { type: "data", value: "U05E", mimeType: "audio/wav" } },
  { type: "image", source: { type: "url", value: "https://a.example/i.png" } },
  { type: "binary", mimeType: "image/png", data: "QklO", filename: "bin.png" },
  { type: "image", source: { type: "file", value: "file-1", provider: "openai" } },
  { type: "hologram", beam: "HOLO" },
];
const MARKS =
  /text A|AAAA|text B|BBBB|UERG|VklE|U05E|https:\/\/a\.example\/i\.png|QklO|file-1|HOLO/g;

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
const NAMES = ["ai-sdk", "langgraph", "claude", "agui"] as const;

describe.each(NAMES.map((name) => [name, READERS[name]] as const))(
  "the bridge %s",
  (name, reader) => {
    test.each(MATRIX)("gives the agent %s", async (_title, rows, expected) => {
      const { bridge, got } = reader();
      const { input } = toRunAgentInput({ sessionId: "s", runId: "r", rows }, { boundary: "b" });
      const run = bridge.run(input, { sessionId: "s", isContinuation: false });
      while ((await run.next()).done !== true);
      expect(readable(got())).toEqual(expected);
    });

    test("gives the agent each file that it can take, in order, and reports the others", async () => {
      const { bridge, got } = reader();
      const problems: string[] = [];
      bridge.notes.onProblem = (message) => problems.push(message);
      const rows = [from("alice", ...FILES)];
      const { input } = toRunAgentInput({ sessionId: "s", runId: "r", rows }, { boundary: "b" });
      const run = bridge.run(input, { sessionId: "s", isContinuation: false });
      while ((await run.next()).done !== true);
      const all = JSON.stringify(FILES).match(MARKS) ?? [];
      const omitted = OMITTED[name];
      const marks = JSON.stringify(got()).match(MARKS);
      expect(marks).toEqual(all.filter((mark) => omitted.every(([one]) => one !== mark)));
      expect(problems).toEqual(
        omitted.map(([, what]) => expect.stringContaining(`message m-alice, ${what}`)),
      );
      const notes = bridge.notes
        .take("s")
        .flatMap(({ delta }) => (delta === undefined ? [] : [delta]));
      expect(notes).toEqual(problems);
    });
  },
);

const HOLOGRAM = ["HOLO", "a part of the type hologram, did not reach the agent"] as const;
const OMITTED = {
  "ai-sdk": [HOLOGRAM],
  langgraph: [HOLOGRAM],
  claude: [
    [
      "VklE",
      "video video/mp4 (data), did not reach the agent: the Claude Agent SDK cannot take it",
    ],
    ["U05E", "audio audio/wav (data)"],
    ["file-1", "image of no type (a file of a provider)"],
    HOLOGRAM,
  ],
  agui: [],
} as const;

test("files in the result of a frontend tool reach the agent", async () => {
  const call = { id: "c", type: "function", function: { name: "shoot", arguments: "{}" } };
  const messages = [
    { id: "u", role: "user", content: "shoot" },
    { id: "a", role: "assistant", toolCalls: [call] },
    { id: "t", role: "tool", toolCallId: "c", content: [A, image("AAAA"), B] },
  ];
  for (const name of ["ai-sdk", "langgraph"] as const) {
    const { bridge, got } = READERS[name]();
    const input = { threadId: "s", runId: "r", messages, tools: [], context: [] };
    const run = bridge.run(input, { sessionId: "s", isContinuation: false });
    while ((await run.next()).done !== true);
    expect(JSON.stringify(got()).match(MARKS)).toEqual(["text A", "AAAA", "text B"]);
  }
});

test("a graph with checkpoints forgets the messages of a branch that was left", async () => {
  let got: readonly BaseMessage[] = [];
  let count = 0;
  const graph = new StateGraph(MessagesAnnotation)
    .addNode("agent", ({ messages }) => {
      got = messages;
      count += 1;
      return { messages: [new AIMessage(`answer ${count}`)] };
    })
    .addEdge(START, "agent")
    .addEdge("agent", END)
    .compile({ checkpointer: new MemorySaver() });
  const bridge = new LangGraphBridge({ graph, Command });
  const asked = async (id: string, content: string, metadata: object = {}): Promise<unknown> => {
    const messages = [{ id, role: "user", content, metadata }];
    const input = { threadId: "s", runId: `r${count}`, messages, tools: [], context: [] };
    const run = bridge.run(input, { sessionId: "s", isContinuation: false });
    while ((await run.next()).done !== true);
    return got.map((message) => message.content);
  };
  await asked("u1", "one");
  await asked("u2", "two");
  const two = ["one", "answer 1", "two"];
  expect(await asked("u2", "two", { regenerates: "u2" })).toEqual(two);
  expect(await asked("u3", "three")).toEqual([...two, "answer 3", "three"]);
  expect(await asked("u4", "zwei", { edits: "u2" })).toEqual(["one", "answer 1", "zwei"]);
});
