/** Answers of agents that are a text and nothing else. */
import { expect, test } from "vitest";
import { eventsOfText } from "@session-ledger/runner/internal/text";

const NAMES = { threadId: "s", runId: "r", messageId: "m" };

async function eventsOf(answer: Parameters<typeof eventsOfText>[0]) {
  const events = [];
  for await (const event of eventsOfText(answer, NAMES)) events.push(event);
  return events;
}

function deltasIn(events: Awaited<ReturnType<typeof eventsOf>>): readonly string[] {
  return events.flatMap(({ delta }) => delta ?? []);
}

async function* each<T>(pieces: readonly T[]): AsyncGenerator<T, void, undefined> {
  yield* pieces;
}

test("a whole answer is one message of one run", async () => {
  expect(await eventsOf("Hello")).toEqual([
    { type: "RUN_STARTED", threadId: "s", runId: "r" },
    { type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" },
    { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "Hello" },
    { type: "TEXT_MESSAGE_END", messageId: "m" },
    { type: "RUN_FINISHED", threadId: "s", runId: "r" },
  ]);
});

test("bytes may be cut inside of a character", async () => {
  const bytes = Buffer.from("a😀é");
  const pieces = Array.from(bytes, (_, at) => bytes.subarray(at, at + 1));
  expect(deltasIn(await eventsOf(each(pieces)))).toEqual(["a", "😀", "é"]);
});

test("a long text is cut between characters, into events that a service accepts", async () => {
  const text = `a${"😀".repeat(200_000)}`;
  const deltas = deltasIn(await eventsOf(text));
  expect(deltas.join("")).toBe(text);
  expect(deltas.every((delta) => delta.isWellFormed() && delta.length <= 131_072)).toBe(true);
});

test.each([
  ["an incomplete character at the end", [Buffer.from("ok"), Buffer.from([0xc3])]],
  ["bytes that are no UTF-8", [Buffer.from("ok"), Buffer.from([0xff])]],
])("%s is an error behind what was whole", async (_, pieces) => {
  const events = await eventsOf(each(pieces));
  expect(deltasIn(events)).toEqual(["ok"]);
  expect(events.at(-1)).toEqual({ type: "RUN_ERROR", message: "the text is not UTF-8" });
});
