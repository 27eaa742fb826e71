/**
 * The limits of memory, time and queues for large sessions, many callers, and callers that left.
 */
import { constants } from "node:buffer";
import { describe, expect, test } from "vitest";
import { weightOf } from "@session-ledger/agui/transcript/weight";
import { TRANSCRIPT_LIMITS } from "../../src/conversation/transcripts.ts";
import { parseExact } from "@session-ledger/agui/exact-json";
import { objectsIn } from "@session-ledger/agui/json";
import { add, at, folding, say } from "../support/folding.ts";
import { settled, type SlowTable } from "../support/slow-table.ts";

const words = (messagesText: string): readonly unknown[] =>
  objectsIn(parseExact(messagesText)).map(({ content }) => content);

test("transcripts are counted by the memory of their values, and not by the length of their text", async () => {
  const { table, transcripts } = folding();
  say(table, "x".repeat(3_000));
  await transcripts.snapshot("s", at(3n));
  const { bytes } = transcripts.counts();
  const empty = Array.from({ length: 1_000 }, () => ({}));
  add(table, "t", { type: "ACTIVITY_SNAPSHOT", messageId: "a", content: { empty } });
  await transcripts.snapshot("t", at(1n));
  expect(transcripts.counts().bytes - bytes).toBeGreaterThan(64_000);
  add(table, "t", { type: "ACTIVITY_SNAPSHOT", messageId: "a", content: {} });
  await transcripts.snapshot("t", at(2n));
  expect(transcripts.counts().bytes - bytes).toBeLessThan(7_000);
});

describe("a transcript above the limit", () => {
  const refused = { code: "overloaded", reason: "TRANSCRIPT_TOO_LARGE", retryAfterMs: undefined };

  function large(rows: number) {
    const made = folding({ foldBytesMax: 100_000, sliceRowsMax: 1 });
    for (let count = 0; count < rows; count += 1) say(made.table, "x".repeat(10_000));
    return made;
  }

  test("ends its fold early, is not kept, and costs nothing on the next request", async () => {
    const { table, transcripts, metrics } = large(100);
    await expect(transcripts.read("s", { upToSeq: undefined })).rejects.toMatchObject(refused);
    expect(await metrics.text()).toContain("session_ledger_transcript_rows_total 14\n");
    expect(transcripts.counts()).toEqual({ sessions: 0, bytes: 0, folding: 0 });
    const { pagesRead } = table;
    say(table, "more");
    await expect(transcripts.read("s", { upToSeq: undefined })).rejects.toMatchObject(refused);
    await expect(transcripts.snapshot("s", at(14n))).rejects.toMatchObject(refused);
    await expect(transcripts.read("s", { upToSeq: 200n })).rejects.toMatchObject(refused);
    expect(table.pagesRead).toBe(pagesRead);
  });

  test("is refused up to a later number, and served up to an earlier one", async () => {
    const { transcripts } = large(100);
    await expect(transcripts.read("s", { upToSeq: 200n })).rejects.toMatchObject(refused);
    expect((await transcripts.read("s", { upToSeq: 12n })).messages).toHaveLength(4);
  });

  test("does not affect a snapshot from before it grew", async () => {
    const { table, transcripts } = large(4);
    const before = await transcripts.snapshot("s", at(12n));
    say(table, "x".repeat(10_000));
    await expect(transcripts.snapshot("s", at(15n))).rejects.toMatchObject(refused);
    expect(before.messagesText.length).toBeGreaterThan(40_000);
    expect(transcripts.counts().sessions).toBe(0);
  });

  test("is no longer remembered once its session is dropped", async () => {
    const { table, transcripts } = large(5);
    await expect(transcripts.read("s", { upToSeq: undefined })).rejects.toMatchObject(refused);
    transcripts.drop("s");
    table.erase("s", 9n);
    expect((await transcripts.read("s", { upToSeq: undefined })).messages).toHaveLength(2);
  });

  test("is reached earlier for a readable text than for JSON", async () => {
    const { table, transcripts } = folding();
    say(table, "x".repeat(8_388_608));
    const transcript = await transcripts.read("s", { upToSeq: undefined });
    expect(transcript.messages).toHaveLength(1);
    expect(() => transcript.readable("text")).toThrow(expect.objectContaining(refused));
  });

  test("is low enough for the longest possible string of JSON", () => {
    const charsMax = TRANSCRIPT_LIMITS.foldBytesMax / weightOf("xx").bytes + 1;
    const escaped = JSON.stringify("\u0001").length - 2;
    expect(escaped * charsMax).toBeLessThan(constants.MAX_STRING_LENGTH);
  });
});

test("large rows are folded one at a time, with time for other work in between", async () => {
  const { table, transcripts } = folding({ sliceBytesMax: 1_000 });
  for (let count = 0; count < 5; count += 1) say(table, "x".repeat(1_000));
  const begins = performance.now();
  let turns = 0;
  const turn = (): void => {
    turns += 1;
    setImmediate(turn);
  };
  setImmediate(turn);
  await transcripts.snapshot("s", at(15n));
  expect(turns).toBeGreaterThanOrEqual(5);
  expect(performance.now() - begins).toBeGreaterThan(5 * TRANSCRIPT_LIMITS.restMs * 0.8);
});

describe("a caller that leaves", () => {
  test("causes no read for its place in the queue, and frees that place", async () => {
    const { table, transcripts } = folding({ pageRowsMax: 1, foldsWaitingMax: 1 });
    for (const sessionId of ["a", "b", "c", "d"]) say(table, "one", sessionId);
    table.fast = false;
    const leaving = new AbortController();
    const [a, b, c] = ["a", "b", "c"].map((sessionId) =>
      transcripts.snapshot(sessionId, at(3n), sessionId === "c" ? leaving.signal : undefined),
    );
    leaving.abort(new Error("left"));
    await expect(c).rejects.toThrow("left");
    const d = transcripts.snapshot("d", at(3n));
    table.fast = true;
    answerAll(table);
    await Promise.all([a, b, d]);
    expect(table.pagesRead).toBe(9);
    expect(transcripts.counts().folding).toBe(0);
  });

  test("does not end a shared fold, but the last caller does, between two pages", async () => {
    const { table, transcripts } = folding({ pageRowsMax: 1 });
    say(table, "one");
    table.fast = false;
    const callers = [new AbortController(), new AbortController()];
    const asked = callers.map(({ signal }) => transcripts.snapshot("s", at(3n), signal));
    callers[0]?.abort(new Error("left"));
    await expect(asked[0]).rejects.toThrow("left");
    table.pending[0]?.answer("now");
    for (let turn = 0; turn < 5; turn += 1) await settled();
    expect(table.pagesRead).toBe(2);
    callers[1]?.abort(new Error("left too"));
    await expect(asked[1]).rejects.toThrow("left too");
    const again = transcripts.snapshot("s", at(3n));
    table.fast = true;
    table.pending[0]?.answer("now");
    expect((await again).seq).toBe(3n);
    expect(words((await again).messagesText)).toEqual(["one"]);
    expect(transcripts.counts().folding).toBe(0);
  });

  test("ends its read of the past, waiting or running, which no join waits for", async () => {
    const { table, transcripts } = folding({ pageRowsMax: 1, longFoldsMax: 1 });
    for (const sessionId of ["s", "t"]) say(table, "one", sessionId);
    const leaving = new AbortController();
    const { signal } = leaving;
    table.fast = false;
    const past = [2n, 1n, 2n].map((upToSeq) => transcripts.read("s", { upToSeq, signal }));
    const outcomes = Promise.allSettled(past);
    answerAll(table);
    await settled();
    await settled();
    expect(table.pagesRead).toBe(1);
    const join = transcripts.snapshot("t", at(3n));
    expect(table.pagesRead).toBe(2);
    leaving.abort(new Error("left"));
    table.fast = true;
    answerAll(table);
    expect((await join).seq).toBe(3n);
    for (const outcome of await outcomes) {
      expect(outcome).toMatchObject({ status: "rejected", reason: { message: "left" } });
    }
    expect(transcripts.counts().folding).toBe(0);
    expect((await transcripts.read("s", { upToSeq: 2n })).seq).toBe(2n);
  });
});

test("requests above the limit of waiting ones are refused as busy", async () => {
  const { table, transcripts } = folding({
    shortFoldsMax: 1,
    foldsWaitingMax: 1,
  });
  for (const sessionId of ["a", "b", "c"]) say(table, "one", sessionId);
  const busy = { code: "overloaded", reason: "RATE_LIMITED", retryAfterMs: 1_000 };
  table.fast = false;
  const folds = ["a", "b"].map((sessionId) => transcripts.snapshot(sessionId, at(3n)));
  await expect(transcripts.snapshot("c", at(3n))).rejects.toMatchObject(busy);
  table.fast = true;
  answerAll(table);
  await Promise.all(folds);
  expect((await transcripts.snapshot("c", at(3n))).seq).toBe(3n);
});

function answerAll(table: SlowTable): void {
  for (const read of Array.from(table.pending)) read.answer("now");
}
