/**
 * The tables of docs/history.md. The vectors in test/vectors/history are for clients in any language: of
 * each, the events that the input becomes, and the entries that an export of these events gives.
 */
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import type { AguiEvent } from "@session-ledger/agui/event-maker";
import { NotAnEntry } from "@session-ledger/history/entry";
import { fromHistory } from "@session-ledger/history/from-history";
import { fromLangChain4j } from "@session-ledger/history/langchain4j";
import { fromSpringAi } from "@session-ledger/history/spring-ai";
import { toHistory } from "@session-ledger/history/to-history";
import { checkLegal } from "../../../test/support/agui-oracle.ts";
import { historyRows, joinedTexts } from "../../../test/support/history-rows.ts";

const object = z.record(z.string(), z.unknown());
const vectorsSchema = z.object({
  sessionId: z.string(),
  runId: z.string(),
  createdAt: z.string(),
  cases: z.array(
    z.object({
      name: z.string(),
      input: z.array(object),
      events: z.array(object),
      history: z.array(object),
    }),
  ),
});

const MAPPINGS = {
  langchain4j: fromLangChain4j,
  "spring-ai": fromSpringAi,
  entries: fromHistory,
};

describe.each(Object.entries(MAPPINGS))("%s", (file, map) => {
  const text = readFileSync(`test/vectors/history/${file}.json`, "utf8");
  const { cases, createdAt, ...names } = vectorsSchema.parse(JSON.parse(text));
  const createdAtMs = Date.parse(createdAt);

  test.each(cases)("$name", async ({ input, events, history }) => {
    const made = [...map(input, names)];
    expect(made).toEqual(events);
    const rows = historyRows(made, createdAtMs);
    expect([...toHistory(rows, "history/lc4j", names)]).toEqual(history);
    await checkLegal(made);
  });
});

const NAMES = { sessionId: "s1", runId: "run" };

function textsOf(events: Iterable<AguiEvent>, format: "history" | "text"): readonly unknown[] {
  return [...toHistory(historyRows([...events], 0), format, NAMES)];
}

const entry = (id: string, role: string, text: string) => ({ id, content: [{ role, text }] });

test("gives texts alone, as entries or with nothing around them", () => {
  const answer = [
    { eventType: "PartialThinking", chunk: "hm" },
    { eventType: "PartialResponse", chunk: "fine" },
    { eventType: "ChatCompleted" },
  ];
  const events = [
    ...fromHistory([entry("e1", "USER", "How are you?")], NAMES),
    ...fromLangChain4j(answer, NAMES),
  ];
  expect(textsOf(events, "text")).toEqual([
    { role: "USER", text: "How are you?" },
    { role: "AI", text: "fine" },
  ]);
  expect(textsOf(events, "history")).toMatchObject([
    { id: "e1", contentType: "history", content: [{ role: "USER", text: "How are you?" }] },
    { id: "run", contentType: "history", content: [{ role: "AI", text: "fine" }] },
  ]);
});

test("an input that repeats the conversation adds only the new messages", () => {
  const run = (runId: string, ids: readonly string[]) => {
    const messages = ids.map((id) => ({ id, role: "user", content: `I am ${id}` }));
    return [
      { type: "RUN_STARTED", threadId: "s1", runId, input: { threadId: "s1", runId, messages } },
      { type: "RUN_FINISHED", threadId: "s1", runId },
    ];
  };
  const texts = textsOf([...run("a", ["1"]), ...run("b", ["1", "2"])], "text");
  expect(texts).toEqual([
    { role: "USER", text: "I am 1" },
    { role: "USER", text: "I am 2" },
  ]);
});

test("a long text is cut into events that a service accepts", () => {
  const text = "\u0001".repeat(1_000_000);
  const made = [...fromLangChain4j([{ eventType: "PartialResponse", chunk: text }], NAMES)];
  expect(Math.max(...made.map((event) => JSON.stringify(event).length))).toBeLessThan(1_048_576);
  expect(joinedTexts(made, "delta")).toBe(text);
});

test("a long run is several entries, which hold all of it", () => {
  const text = "x".repeat(1_500_000);
  const args = JSON.stringify({ long: text });
  const events = [
    { eventType: "PartialResponse", chunk: text },
    { eventType: "BeforeToolExecution", id: "c1", toolName: "f", arguments: args },
    { eventType: "ChatCompleted" },
  ];
  const rows = historyRows([...fromLangChain4j(events, NAMES)], 0);
  const entries = [...toHistory(rows, "history/lc4j", NAMES)];
  expect(entries.map(({ id }) => id)).toEqual(["run", "run.2", "run.3", "run.4"]);
  const exported = entries.flatMap(({ content }) =>
    z
      .array(z.object({ events: z.array(object) }))
      .parse(content)
      .flatMap(({ events: made }) => made),
  );
  expect(joinedTexts(exported, "chunk")).toBe(text);
  expect(joinedTexts(exported, "partialArguments")).toBe(args);
  // The parts of a call come in again as one call.
  const again = [...fromLangChain4j(exported, NAMES)];
  expect(again.filter(({ type }) => type === "TOOL_CALL_START")).toHaveLength(1);
  const parts = again.filter(({ type }) => type === "TOOL_CALL_ARGS");
  expect(joinedTexts(parts, "delta")).toBe(args);
});

describe("refuses as an entry, and names the field", () => {
  test.each([
    [{ id: 5, content: [{ role: "AI", text: "" }] }, /^id:/],
    [{ id: "x".repeat(121), content: [{ role: "AI", text: "" }] }, /^id:/],
    [{ channel: "context", content: [{ role: "AI", text: "" }] }, /^channel:/],
    [{ contentType: "LC4J", content: [{ role: "AI", text: "" }] }, /^contentType:/],
    [{ content: [] }, /^content:/],
    [{ content: [{ role: "SYSTEM", text: "" }] }, /^content\[0\].role:/],
    [{ content: [{ role: "AI" }] }, /^content\[0\]:/],
    [{ content: [{ role: "AI", text: 5 }] }, /^content\[0\].text:/],
    [{ content: [{ role: "AI", events: [1] }] }, /^content\[0\].events:/],
    [{ data: [7] }, /^data:/],
  ])("%j", (value, message) => {
    const map = () => [...fromHistory([value], NAMES)];
    expect(map).toThrow(NotAnEntry);
    expect(map).toThrow(message);
  });
});
