/**
 * The folds of sessions: when they read the table, that they stay right after failures, and which
 * are kept. The effect of an event on messages is tested with the transcript itself.
 */
import { create, toBinary } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { FragmentsSchema } from "@session-ledger/proto/ambient/v1/compression_pb";
import type { Snapshot } from "../../src/conversation/snapshot.ts";
import { Canonical } from "@session-ledger/agui/canonical/canonical";
import { Transcript } from "@session-ledger/agui/transcript/transcript";
import type { Transcripts } from "../../src/conversation/transcripts.ts";
import { type MergedEvent, mergeFragments } from "../support/merging.ts";
import { add, at, folding, say } from "../support/folding.ts";
import { settled, type SlowTable } from "../support/slow-table.ts";
import { ownStreams, type Stream, type StreamEvent } from "../support/streams.ts";
import { describeUnitContract } from "../support/unit-contract.ts";

function addStream(table: SlowTable, events: readonly (StreamEvent | MergedEvent)[]): void {
  for (const { eventType, payload, ...merged } of events) {
    if ("fragments" in merged && merged.fragments !== undefined) {
      const { eventCount, fragments: index } = merged;
      const fragments = toBinary(FragmentsSchema, create(FragmentsSchema, index));
      table.event("s", { eventType, payload, eventCount, fragments });
    } else {
      table.event("s", { eventType, payload });
    }
  }
}

const words = (messages: readonly Readonly<Record<string, unknown>>[]): readonly unknown[] =>
  messages.map(({ content }) => content);

/** The result of a fold of the first `count` events alone. */
function foldOf({ events }: Stream, count: number) {
  const canonical = new Canonical("s");
  const transcript = new Transcript();
  for (const [index, event] of events.slice(0, count).entries()) {
    const logged = { ...event, seq: BigInt(index) + 1n, conformant: true };
    for (const { value } of canonical.next(logged)) transcript.apply(value);
  }
  return {
    messages: JSON.stringify(transcript.messages()),
    state: transcript.state && JSON.stringify(transcript.state),
    interrupts: JSON.stringify(transcript.interrupts()),
  };
}

function shownBy({ messagesText, stateText, interruptsText }: Snapshot) {
  return { messages: messagesText, state: stateText, interrupts: interruptsText };
}

describe("a request for a transcript", () => {
  test("reads a session once, and later only its new rows", async () => {
    const { table, transcripts, asked } = folding();
    say(table, "one");
    expect(words((await read(transcripts)).messages)).toEqual(["one"]);
    expect(words((await read(transcripts)).messages)).toEqual(["one"]);
    expect(table.pagesRead).toBe(1);
    say(table, "two");
    expect(words((await read(transcripts)).messages)).toEqual(["one", "two"]);
    expect(table.pagesRead).toBe(2);
    expect(await asked()).toEqual({ miss: 1, hit: 1, advanced: 1 });
  });

  test("shares one fold with simultaneous ones, which continues for later numbers", async () => {
    const { table, transcripts, metrics } = folding();
    say(table, "one");
    table.fast = false;
    const first = Array.from({ length: 50 }, () => transcripts.snapshot("s", at(3n)));
    await settled();
    say(table, "two");
    const later = transcripts.snapshot("s", at(6n));
    expect(table.pending).toHaveLength(1);
    table.pending[0]?.answer("began");
    table.fast = true;
    const texts = new Set((await Promise.all(first)).map(({ messagesText }) => messagesText));
    expect(texts.size).toBe(1);
    expect((await later).seq).toBe(6n);
    expect(table.pagesRead).toBe(2);
    expect(await metrics.text()).toContain("session_ledger_transcript_rows_total 6");
  });

  test("shares its texts with all requests before the next row", async () => {
    const { table, transcripts } = folding();
    say(table, "one");
    const [one, other] = await Promise.all([
      transcripts.snapshot("s", at(3n)),
      transcripts.snapshot("s", at(3n)),
    ]);
    expect(other).toBe(one);
    expect(one.servedAs("1.0.0")).toBe(other.servedAs("1.0.0"));
    expect(one.servedAs("1.0.0")[0]).toBeInstanceOf(Uint8Array);
  });

  test("keeps its answer when the fold continues", async () => {
    const { table, transcripts } = folding();
    add(table, "s", { type: "RUN_STARTED", threadId: "t", runId: "r" });
    say(table, "one");
    add(table, "s", { type: "TEXT_MESSAGE_START", messageId: "open", role: "assistant" });
    const before = await transcripts.snapshot("s", at(5n));
    const { messagesText } = before;
    add(table, "s", { type: "TEXT_MESSAGE_CONTENT", messageId: "open", delta: "more" });
    add(table, "s", { type: "TEXT_MESSAGE_END", messageId: "open" });
    const after = await transcripts.snapshot("s", at(7n));
    expect(after.messagesText).toContain("more");
    expect(before.messagesText).toBe(messagesText);
    expect(before.openings.after).toMatchObject([{ messageId: "open" }]);
    expect(after.openings).toEqual({ before: [], after: [] });
  });

  test("lets other work run during the fold of a long session", async () => {
    const { table, transcripts } = folding({ pageRowsMax: 1_000, sliceRowsMax: 10 });
    for (let count = 0; count < 100; count += 1) say(table, "word");
    let turns = 0;
    const turn = (): void => {
      turns += 1;
      setImmediate(turn);
    };
    setImmediate(turn);
    await transcripts.snapshot("s", at(300n));
    expect(turns).toBeGreaterThanOrEqual(29);
  });

  test("reads few pages at a time, and a short session does not wait for long ones", async () => {
    const limits = { pageRowsMax: 2, longFoldsMax: 1, shortFoldsMax: 1 };
    const { table, transcripts } = folding(limits);
    for (const sessionId of ["long1", "long2"]) {
      for (let count = 0; count < 3; count += 1) say(table, "word", sessionId);
    }
    add(table, "short", { type: "CUSTOM" });
    table.fast = false;
    const long = ["long1", "long2"].map((sessionId) => transcripts.snapshot(sessionId, at(9n)));
    const short = transcripts.snapshot("short", at(1n));
    expect(table.pending).toHaveLength(2);
    table.pending[1]?.answer("now");
    expect((await short).seq).toBe(1n);
    table.fast = true;
    table.pending[0]?.answer("now");
    expect((await Promise.all(long)).map(({ seq }) => seq)).toEqual([9n, 9n]);
  });
});

describe("a fold", () => {
  test("continues after a failed read, without reading its first pages again", async () => {
    const { table, transcripts } = folding({ pageRowsMax: 2 });
    for (const word of ["one", "two", "three"]) say(table, word);
    table.fast = false;
    const first = transcripts.snapshot("s", at(9n));
    table.pending[0]?.answer("now");
    await settled();
    await settled();
    table.pending[0]?.fail(new Error("the database is gone"));
    await expect(first).rejects.toThrow("the database is gone");
    table.fast = true;
    const { pagesRead } = table;
    expect(words((await read(transcripts)).messages)).toEqual(["one", "two", "three"]);
    expect(table.pagesRead - pagesRead).toBe(4); // Rows 3 to 9, without the first page.
  });

  test("is discarded after a failure within a row", async () => {
    const { table, transcripts } = folding();
    say(table, "one");
    const broken = table.event("s", { eventType: "CUSTOM", payload: "{" });
    say(table, "two");
    await expect(read(transcripts)).rejects.toThrow(SyntaxError);
    expect(transcripts.counts().sessions).toBe(0);
    table.rows[table.rows.indexOf(broken)] = { ...broken, payload: '{"name":"n"}' };
    expect(words((await read(transcripts)).messages)).toEqual(["one", "two"]);
  });

  test("skips erased rows", async () => {
    const { table, transcripts } = folding();
    say(table, "one");
    say(table, "two");
    table.erase("s", 3n);
    expect(words((await read(transcripts)).messages)).toEqual(["two"]);
    table.erase("s", 6n);
    say(table, "three", "t");
    table.erase("t", 3n);
    const { pagesRead } = table;
    expect((await transcripts.snapshot("t", at(3n))).messagesText).toBe("[]");
    expect(table.pagesRead - pagesRead).toBe(1);
  });
});

describe("the kept folds", () => {
  test("are limited in bytes, and the least recently used session is dropped first", async () => {
    const { table, transcripts, metrics, asked } = folding({ bytesMax: 110_000 });
    for (const sessionId of ["a", "b", "c"]) say(table, "x".repeat(7_000), sessionId);
    for (const sessionId of ["a", "b", "a", "c"]) await transcripts.snapshot(sessionId, at(3n));
    expect(transcripts.counts().sessions).toBe(2);
    expect(await metrics.text()).toMatch(/_transcript_bytes 9\d{4}\n/);
    await transcripts.snapshot("a", at(3n));
    expect(await asked()).toEqual({ miss: 3, hit: 2 });
    await transcripts.snapshot("b", at(3n));
    expect(await asked()).toEqual({ miss: 4, hit: 2 });
  });

  test("do not include a session above the limit, which is folded for each request", async () => {
    const { table, transcripts } = folding({ bytesMax: 30_000 });
    say(table, "x", "small");
    say(table, "x".repeat(40_000), "large");
    await transcripts.snapshot("small", at(3n));
    expect((await transcripts.snapshot("large", at(3n))).messagesText.length).toBeGreaterThan(
      40_000,
    );
    expect(transcripts.counts()).toMatchObject({ sessions: 1 });
    expect(transcripts.counts().bytes).toBeLessThan(30_000);
  });

  test("include a session that is being read, and its requests still share it", async () => {
    const { table, transcripts } = folding({ bytesMax: 12_000 });
    say(table, "one", "a");
    await transcripts.snapshot("a", at(3n));
    say(table, "two", "a");
    table.fast = false;
    const first = transcripts.snapshot("a", at(6n));
    const [flight] = table.pending;
    table.fast = true;
    say(table, "x".repeat(7_000), "b");
    await transcripts.snapshot("b", at(3n));
    const second = transcripts.snapshot("a", at(6n));
    const { pagesRead } = table;
    flight?.answer("now");
    expect(await first).toBe(await second);
    expect(table.pagesRead).toBe(pagesRead);
  });

  test("do not include a deleted session, whose readers get SESSION_DELETED, also while they wait", async () => {
    const { table, transcripts } = folding();
    say(table, "one");
    await read(transcripts);
    say(table, "two");
    table.fast = false;
    const reading = transcripts.snapshot("s", at(6n));
    table.deleted.add("s");
    transcripts.drop("s");
    table.fast = true;
    table.pending[0]?.answer("now");
    await expect(reading).rejects.toMatchObject({ reason: "SESSION_DELETED" });
    await expect(read(transcripts)).rejects.toMatchObject({ reason: "SESSION_DELETED" });
    expect(transcripts.counts()).toEqual({ sessions: 0, bytes: 0, folding: 0 });
  });

  test("do not include a session deleted elsewhere after the next request", async () => {
    const { table, transcripts } = folding();
    say(table, "one");
    await read(transcripts);
    table.deleted.add("s");
    await expect(read(transcripts)).rejects.toMatchObject({ reason: "SESSION_DELETED" });
    expect(transcripts.counts().sessions).toBe(0);
  });

  test("do not include a session without events", async () => {
    const { transcripts } = folding();
    expect((await transcripts.snapshot("nobody", at(0n))).messagesText).toBe("[]");
    expect(transcripts.counts().sessions).toBe(0);
  });
});

describe("up_to_seq", () => {
  test.each(ownStreams().flatMap((stream) => [false, true].map((merged) => ({ stream, merged }))))(
    "gives the transcript as it was at every number: $stream.scenario, merged $merged",
    async ({ stream, merged }) => {
      const { table, transcripts } = folding({ pageRowsMax: 5, sliceRowsMax: 3 });
      addStream(table, merged ? mergeFragments(stream.events) : stream.events);
      await read(transcripts);
      for (let count = 0; count <= stream.events.length; count += 1) {
        const upToSeq = BigInt(count);
        const then = await transcripts.read("s", { upToSeq });
        expect(then.seq).toBe(upToSeq);
        expect(shownBy(then)).toEqual(foldOf(stream, count));
      }
      expect(shownBy(await read(transcripts))).toEqual(foldOf(stream, stream.events.length));
    },
  );

  test("neither keeps its fold nor sets the kept fold back", async () => {
    const { table, transcripts } = folding();
    say(table, "one");
    say(table, "two");
    expect((await transcripts.read("s", { upToSeq: 3n })).messages).toHaveLength(1);
    expect(transcripts.counts().sessions).toBe(0);
    expect((await read(transcripts)).messages).toHaveLength(2);
    expect((await transcripts.read("s", { upToSeq: 3n })).messages).toHaveLength(1);
    expect((await read(transcripts)).messages).toHaveLength(2);
  });
});

describeUnitContract("transcripts", {
  create: () => folding().transcripts,
  isOfUse: async (transcripts) => (await transcripts.snapshot("s", at(0n))).messagesText === "[]",
  remains: (transcripts) => (transcripts.counts().folding === 0 ? [] : ["a fold"]),
});

test("a stop ends running folds, and waits for them", async () => {
  const { table, transcripts } = folding();
  say(table, "one");
  table.fast = false;
  const outcome = transcripts.snapshot("s", at(3n)).catch((error: unknown) => error);
  let hasStopped = false;
  const stop = transcripts.stop().then(() => (hasStopped = true));
  await settled();
  expect(hasStopped).toBe(false);
  table.pending[0]?.answer("now");
  await stop;
  expect(await outcome).toMatchObject({ reason: "SHUTTING_DOWN" });
});

test("a stop waits for a page under way, and starts no waiting fold", async () => {
  const { table, transcripts } = folding({ pageRowsMax: 1, longFoldsMax: 1 });
  for (const sessionId of ["a", "b"]) say(table, "one", sessionId);
  table.fast = false;
  const outcomes = ["a", "b"].map((sessionId) =>
    transcripts.snapshot(sessionId, at(3n)).catch((error: unknown) => error),
  );
  table.pending[0]?.answer("now");
  let hasStopped = false;
  const stop = transcripts.stop().then(() => (hasStopped = true));
  for (let turn = 0; turn < 5; turn += 1) await settled();
  expect([hasStopped, table.pending.length]).toEqual([false, 1]);
  table.pending[0]?.answer("now");
  await stop;
  const stopped = { reason: "SHUTTING_DOWN" };
  expect(await Promise.all(outcomes)).toMatchObject([stopped, stopped]);
  expect(table.pagesRead).toBe(2);
});

function read(transcripts: Transcripts) {
  return transcripts.read("s", { upToSeq: undefined });
}
