/** The facts of a run from its rows, and two runs compared. */
import { describe, expect, test } from "vitest";
import { Canonical } from "@session-ledger/agui/canonical/canonical";
import { Transcript } from "@session-ledger/agui/transcript/transcript";
import { factsOf, questionBefore, type ToolCall, toolPairs } from "../src/model/compare.ts";
import type { Row } from "@session-ledger/react/internal/model/source";
import { ownStreams, recordedStreams } from "../../test/support/streams.ts";

/** Rows of events, one second apart unless they say otherwise. */
function rowsOf(events: readonly (Record<string, unknown> & { at?: number; count?: number })[]) {
  let seq = 1;
  return events.map(({ at, count = 1, ...event }, index): Row => {
    const atMs = at ?? 1_000 * index;
    const payload = JSON.stringify(event);
    const row = {
      seq,
      lastSeq: seq + count - 1,
      type: String(event["type"]),
      runId: "r",
      atMs,
      endMs: atMs,
      storedMs: atMs,
      recordedMs: atMs,
      count,
      bytes: payload.length,
      payload,
      fragments: undefined,
      isConformant: true,
    };
    seq += count;
    return row;
  });
}

const RUN = [
  {
    type: "RUN_STARTED",
    threadId: "t",
    runId: "r",
    input: {
      threadId: "t",
      runId: "r",
      state: {},
      tools: [],
      context: [],
      forwardedProps: {},
      messages: [
        { id: "u1", role: "user", content: "First" },
        { id: "u2", role: "user", content: [{ type: "text", text: "What is it?" }] },
      ],
    },
  },
  { type: "REASONING_START", messageId: "t1" },
  { type: "REASONING_MESSAGE_START", messageId: "t1", role: "reasoning" },
  { type: "REASONING_MESSAGE_CONTENT", messageId: "t1", delta: "Hm." },
  { type: "REASONING_MESSAGE_END", messageId: "t1" },
  { type: "REASONING_END", messageId: "t1" },
  { type: "TOOL_CALL_START", toolCallId: "c1", toolCallName: "look", at: 10_000 },
  { type: "TOOL_CALL_ARGS", toolCallId: "c1", delta: '{"at":', at: 10_100 },
  { type: "TOOL_CALL_ARGS", toolCallId: "c1", delta: '"it"}', at: 10_200 },
  { type: "TOOL_CALL_END", toolCallId: "c1", at: 10_300 },
  { type: "TOOL_CALL_START", toolCallId: "c2", toolCallName: "ask", at: 11_000 },
  { type: "TOOL_CALL_END", toolCallId: "c2", at: 11_100 },
  { type: "TOOL_CALL_RESULT", messageId: "m1", toolCallId: "c1", content: "seen", at: 13_000 },
  { type: "TOOL_CALL_RESULT", messageId: "m2", toolCallId: "c2", content: "no", at: 12_000 },
  { type: "TOOL_CALL_START", toolCallId: "c3", toolCallName: "wait", at: 14_000 },
  { type: "TOOL_CALL_END", toolCallId: "c3", at: 14_000 },
  { type: "TEXT_MESSAGE_START", messageId: "a1", role: "assistant", at: 15_000 },
  { type: "TEXT_MESSAGE_CONTENT", messageId: "a1", delta: "It is", at: 16_000, count: 3 },
  { type: "TEXT_MESSAGE_CONTENT", messageId: "a1", delta: " it.", at: 16_500 },
  { type: "TEXT_MESSAGE_END", messageId: "a1", at: 16_600 },
  { type: "TEXT_MESSAGE_CHUNK", messageId: "a2", role: "assistant", delta: "Bye", at: 16_700 },
  {
    type: "RUN_FINISHED",
    threadId: "t",
    runId: "r",
    usage: [
      { model: "large", inputTokens: 100, outputTokens: 20, cachedInputTokens: 60 },
      { model: "small", inputTokens: 10, outputTokens: 2, reasoningTokens: 1 },
    ],
    at: 20_000,
  },
];

describe("the facts of a run", () => {
  test("are its question, texts, tools, tokens and times", () => {
    const rows = rowsOf(RUN);
    const call = { hasFailed: false, args: "", result: undefined, ms: undefined };
    expect(factsOf("s", rows)).toEqual({
      question: "What is it?",
      text: "It is it.\n\nBye",
      thinking: "Hm.",
      tools: [
        { ...call, id: "c1", name: "look", args: '{"at":"it"}', result: "seen", ms: 3_000 },
        { ...call, id: "c2", name: "ask", result: "no", ms: 1_000 },
        { ...call, id: "c3", name: "wait" },
      ],
      tokens: {
        models: ["large", "small"],
        input: 110,
        cachedInput: 60,
        output: 22,
        reasoning: 1,
        total: 132,
      },
      startedMs: 0,
      ms: 20_000,
      firstTextMs: 16_000,
      toolsMs: 3_000,
      status: "finished",
      error: undefined,
      rows: rows.length,
      events: rows.length + 2,
      bytes: rows.reduce((sum, { bytes }) => sum + bytes, 0),
    });
  });

  test.each([
    ["running", undefined, undefined],
    ["finished", { type: "RUN_FINISHED" }, undefined],
    ["cancelled", { type: "RUN_FINISHED", outcome: { type: "cancelled" } }, undefined],
    [
      "interrupted",
      {
        type: "RUN_FINISHED",
        outcome: { type: "interrupt", interrupts: [{ id: "i", reason: "r" }] },
      },
      undefined,
    ],
    ["error", { type: "RUN_ERROR", message: "down" }, "down"],
  ])("have the status %s", (status, end, error) => {
    const ids = { threadId: "t", runId: "r" };
    const ends = end === undefined ? [] : [{ ...ids, ...end }];
    const facts = factsOf("s", rowsOf([{ type: "RUN_STARTED", ...ids }, ...ends]));
    expect(facts).toMatchObject({ status, error });
  });

  test("have no tokens that nobody reported, and no text of a row that was dropped", () => {
    const [started, ...rest] = rowsOf(RUN);
    const dropped = rest.map((row) => ({ ...row, payload: undefined }));
    const facts = factsOf("s", started === undefined ? [] : [started, ...dropped]);
    const nothing = { input: undefined, output: undefined, total: undefined };
    expect(facts).toMatchObject({ text: "", tools: [], tokens: { models: [], ...nothing } });
    expect(factsOf("s", [])).toMatchObject({ ms: 0, startedMs: 0, status: "running" });
  });

  test("without an input, the question is the last message of a person before the run", () => {
    const said = (type: string, payload: string, recordedMs: number) => {
      const at = { atMs: 0, storedMs: 0, recordedMs, sentMs: undefined };
      return { seq: recordedMs, id: payload, type, payload, sender: undefined, ...at };
    };
    const messages = [
      said("user", "first", 1),
      said("user", "asked", 5),
      said("assistant", "answered", 6),
      said("user", "later", 11),
    ];
    const startedAt = (at: number) => rowsOf([{ type: "RUN_STARTED", at }]);
    expect(questionBefore(messages, startedAt(10))).toBe("asked");
    expect(questionBefore(messages, startedAt(11))).toBe("later");
    expect(questionBefore(messages, startedAt(0))).toBeUndefined();
  });

  /** The transcript's reducer is compared with AG-UI's own elsewhere. */
  test.each(
    (recordedStreams() ?? ownStreams()).map((one) => [`${one.agent} ${one.scenario}`, one]),
  )("are those of the transcript: %s", (_, stream) => {
    const rows = rowsOf(stream.events.map(({ payload }) => JSON.parse(payload)));
    const canonical = new Canonical("s");
    const transcript = new Transcript();
    for (const { seq, type: eventType, payload = "" } of rows) {
      const logged = { seq: BigInt(seq), eventType, payload, conformant: true };
      for (const { value } of canonical.next(logged)) {
        if (value["type"] !== "MESSAGES_SNAPSHOT") transcript.apply(value);
      }
    }
    const messages = transcript.messages();
    const said = messages
      .filter(({ role }) => role === "assistant")
      .map(({ content }) => content)
      .filter((content) => typeof content === "string" && content !== "");
    const calls = messages.flatMap(({ toolCalls }) => (Array.isArray(toolCalls) ? toolCalls : []));
    const facts = factsOf("s", rows);
    expect(facts.text).toBe(said.join("\n\n"));
    expect(facts.tools.map(({ id, name, args }) => [id, name, args])).toEqual(
      calls.map(({ id, function: { name, arguments: args } }) => [id, name, args]),
    );
  });
});

describe("the tools of two runs", () => {
  const call = (name: string, args = "{}", result: string | undefined = "ok"): ToolCall => ({
    id: `${name} ${args}`,
    name,
    args,
    result,
    hasFailed: false,
    ms: 1,
  });
  const pairs = (left: readonly ToolCall[], right: readonly ToolCall[]) =>
    toolPairs(left, right).map((pair) => [
      `${pair.left?.name ?? "-"} ${pair.right?.name ?? "-"}`,
      pair.sameArgs,
      pair.sameResult,
    ]);

  test("are paired by name in their order", () => {
    const left = [call("a"), call("b"), call("c")];
    const right = [call("a"), call("x"), call("c"), call("c")];
    expect(pairs(left, right)).toEqual([
      ["a a", true, true],
      ["b -", false, false],
      ["- x", false, false],
      ["- c", false, false],
      ["c c", true, true],
    ]);
  });

  test("are compared by the content of their JSON", () => {
    const left = [call("a", '{"x": 1, "y": {"b": 2, "a": 1}}', "[1, 2]"), call("b", "{", "no")];
    const right = [call("a", '{"y":{"a":1,"b":2},"x":1}', "[2, 1]"), call("b", "{", undefined)];
    expect(pairs(left, right)).toEqual([
      ["a a", true, false],
      ["b b", true, false],
    ]);
  });
});
