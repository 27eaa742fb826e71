/** A claimed turn as RunAgentInput: history, packed messages, results of tools, answers. */
import { create } from "@bufbuild/protobuf";
import { RunAgentInputSchema } from "@ag-ui/core/schemas";
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { z } from "zod";
import {
  type SessionMessage,
  SessionMessageSchema,
} from "@session-ledger/proto/ambient/v1/messages_pb";
import { DeveloperEvents } from "@session-ledger/runner/internal/sdk/developer-events";
import {
  promptsOf,
  toRunAgentInput,
  type InputOptions,
} from "@session-ledger/runner/internal/sdk/input";
import { contentPart } from "../../../test/support/content-parts.ts";
import { properties } from "../../../test/support/random.ts";

const IMAGE = { type: "image", source: { type: "data", value: "AAAA", mimeType: "image/png" } };
const LINK = { type: "document", source: { type: "url", value: "https://a.example/b.pdf" } };

function row(id: string, payload: string | object, name = "Ann"): SessionMessage {
  return create(SessionMessageSchema, {
    id,
    eventType: "user",
    payload: typeof payload === "string" ? payload : JSON.stringify(payload),
    sender: { id: `u-${name}`, displayName: name },
    createdAt: { seconds: 1_800_000_000n },
  });
}

function turnOf(rows: readonly SessionMessage[], options: Partial<InputOptions> = {}) {
  const turn = toRunAgentInput({ sessionId: "s", runId: "r", rows }, { boundary: "b", ...options });
  expect(RunAgentInputSchema.safeParse(turn.input).error).toBeUndefined();
  return turn;
}

test("each message of a person is one user message with its sender in front", () => {
  const { input, metrics, hasHistory } = turnOf([row("m1", "hi"), row("m2", "ho", "Bob")]);
  expect(hasHistory).toBe(false);
  expect(metrics).toMatchObject({ batchSize: 2, packedBlockCount: 4 });
  expect(input).toMatchObject({ threadId: "s", runId: "r", state: {}, tools: [], context: [] });
  expect(input.messages).toMatchObject([
    { id: "m1", role: "user", name: "Ann", metadata: { sender_context: { sender_id: "u-Ann" } } },
    { id: "m2", role: "user", name: "Bob", metadata: { sender_context: { boundary: "b" } } },
  ]);
  const [first] = input.messages;
  expect(first?.["content"]).toEqual([
    { type: "text", text: expect.stringMatching(/^<sender_context>\n\{.*"message_id":"m1"/) },
    { type: "text", text: "hi" },
  ]);
});

test("one text of a combined message is sent as a text", () => {
  const [message] = turnOf([row("m1", "hi")], { layout: "combined" }).input.messages;
  expect(message?.["content"]).toMatch(/<\/sender_context>\n\nhi$/);
});

test("the history comes first, without the messages of the turn and those that wait", () => {
  const transcript = [
    { id: "m0", role: "user", content: "before" },
    { id: "m1", role: "user", content: "hi" },
    { id: "a0", role: "assistant", content: "an answer that was longer than the question" },
    { id: "m2", role: "user", content: "later" },
  ];
  const waiting = [row("m2", "later")];
  const ids = (onlyNew: boolean) =>
    turnOf([row("m1", "hi")], { transcript, waiting, onlyNew }).input.messages.map(({ id }) => id);
  expect(ids(false)).toEqual(["m0", "a0", "m1"]);
  expect(ids(true)).toEqual(["m1"]);
  expect(turnOf([row("m1", "hi")], { transcript, onlyNew: true }).hasHistory).toBe(true);
});

test("a typed message keeps its id and its parts, and brings answers, tools and state", () => {
  const resume = [{ interruptId: "i1", status: "resolved", payload: { yes: true } }];
  const content = [{ type: "text", text: "see" }, IMAGE, LINK];
  const { input } = turnOf([
    row("row1", {
      messages: [
        { id: "old", role: "user", content: "known" },
        { id: "x", role: "assistant", content: "known too" },
        { id: "t1", role: "user", content },
        { role: "user", content: "without an id" },
      ],
      resume: [...resume, { interruptId: 1 }],
      tools: [{ name: "pick", description: "picks", parameters: {} }],
      state: { a: 1 },
    }),
    row("row2", { messages: [], context: [{ description: "d", value: "v" }] }),
  ]);
  expect(input.messages.map(({ id }) => id)).toEqual(["t1", "row1-1"]);
  expect(input.messages[0]?.["content"]).toMatchObject([{}, { text: "see" }, IMAGE, LINK]);
  expect(input.resume).toEqual(resume);
  expect(input).toMatchObject({ tools: [{ name: "pick" }], state: { a: 1 } });
  expect(input.context).toEqual([{ description: "d", value: "v" }]);
});

test.each(["split", "combined"] as const)(
  "every part of every message is in the input, in order and byte for byte: %s",
  (layout) => {
    const content = fc.oneof(fc.string({ unit: "binary", minLength: 1 }), fc.array(contentPart));
    fc.assert(
      fc.property(fc.array(content, { minLength: 1, maxLength: 4 }), (contents) => {
        const messages = contents.map((one, at) => ({ id: `m${at}`, role: "user", content: one }));
        const { input } = toRunAgentInput(
          { sessionId: "s", runId: "r", rows: [row("row", { messages })] },
          { boundary: "b", layout },
        );
        const parts = input.messages.flatMap((one) => withoutDelimiters(one["content"]));
        const typed = contents.map((one) =>
          typeof one === "string" ? [{ type: "text", text: one }] : one,
        );
        expect(JSON.stringify(parts)).toBe(JSON.stringify(typed.flat()));
      }),
      properties({ runs: 1_000 }),
    );
  },
);

/** The parts behind the delimiter of a message, or behind the one in its only text. */
function withoutDelimiters(content: unknown): readonly unknown[] {
  const [first, ...rest] = Array.isArray(content) ? content : [{ type: "text", text: content }];
  const { text } = z.object({ text: z.string() }).parse(first);
  const [, own] = /^<sender_context>\n[^\n]*\n<\/sender_context>(?:\n\n([^]*))?$/.exec(text) ?? [];
  return own === undefined ? rest : [{ type: "text", text: own }, ...rest];
}

test("the result of a tool of the page stands behind its call, and is given to a framework alone", () => {
  const result = { id: "res", role: "tool", toolCallId: "c", content: "red" };
  const call = { id: "c", type: "function", function: { name: "pick", arguments: "{}" } };
  const transcript = [
    { id: "m0", role: "user", content: "pick" },
    { id: "a0", role: "assistant", toolCalls: [call] },
    result,
    { id: "m1", role: "user", content: "and?" },
  ];
  const rows = [row("m1", "and?"), row("row", { messages: [result] })];
  const ids = (options: Partial<InputOptions>) =>
    turnOf(rows, options).input.messages.map(({ id }) => id);
  expect(ids({ transcript })).toEqual(["m0", "a0", "res", "m1"]);
  expect(ids({ transcript, onlyNew: true })).toEqual(["res", "m1"]);
});

test.each(["split", "combined"] as const)(
  "the prompts are those of the turn, byte for byte: %s",
  (layout) => {
    const texts = ["\n\nhi\n", "", "<sender_context>\n{}\n</sender_context>\n\nho", "é\u0301"];
    const transcript = [
      { id: "m0", role: "user", content: "before" },
      { id: "a0", role: "assistant", content: "an answer" },
    ];
    const rows = texts.map((text, at) => row(`m${at + 1}`, text));
    expect(promptsOf(turnOf(rows, { transcript, layout }).input)).toEqual(texts);
  },
);

test("a message that the runner did not pack is its own prompt", () => {
  const messages = [
    { id: "m0", role: "user", content: "plain" },
    {
      id: "m1",
      role: "user",
      content: [{ type: "text", text: "a" }, IMAGE, { type: "text", text: "b" }],
    },
  ];
  expect(promptsOf({ messages })).toEqual(["plain", "a", "b"]);
});

test("lines about the setup are not in the history, and a developer's words of the agent are", () => {
  // Bug: agents of frameworks that do not know the role refused each later run.
  const notes = new DeveloperEvents();
  notes.developer("Workspace validated");
  const id = String(notes.take("s")[0]?.["messageId"]);
  const note = { id, role: "developer", content: "Workspace validated" };
  expect(turnOf([row("m1", "hi")], { transcript: [note] }).hasHistory).toBe(false);
  const own = { id: "d1", role: "developer", content: "Answer in rhymes" };
  const { input, hasHistory } = turnOf([row("m1", "hi")], { transcript: [note, own] });
  expect(hasHistory).toBe(true);
  expect(input.messages.map((one) => one.id)).toEqual(["d1", "m1"]);
});
