/**
 * Messages and events of a session are put into one order by the time of their commits, which only the
 * database knows: a fold that reads while both streams are written has the order that a later one has.
 */
import { v7 as uuidv7 } from "uuid";
import { expect, test } from "vitest";
import { Semaphore } from "../../src/base/semaphore.ts";
import type { JsonObject } from "@session-ledger/agui/json";
import { TRANSCRIPT_LIMITS, Transcripts } from "../../src/conversation/transcripts.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import { append } from "../../src/store/append.ts";
import type { StreamName } from "../../src/store/rows.ts";
import { importBatch } from "../../tools/import-upstream/target.ts";
import { createReader } from "../../src/store/reader.ts";
import { newPush, newRow, useLedger } from "../support/ledger.ts";

/** The reads of a session during its writes. */
const READS = 40;

const ledger = await useLedger();

function newTranscripts(): Transcripts {
  const { database } = ledger;
  const reader = createReader(database);
  const limits = { ...TRANSCRIPT_LIMITS, bytesMax: 100_000_000, pageRowsMax: 20, sliceRowsMax: 7 };
  return new Transcripts(
    { reader, metrics: createMetrics(), pastTurns: new Semaphore({ atOnce: 1 }) },
    limits,
  );
}

async function messagesOf(
  sessionId: string,
  transcripts = newTranscripts(),
): Promise<readonly JsonObject[]> {
  return (await transcripts.read(sessionId, { upToSeq: undefined })).messages;
}

test("a transcript read while both streams are written is the one that is read afterwards", async () => {
  const sessionId = "busy";
  let written = 0;
  const write = async (stream: StreamName): Promise<void> => {
    const id = uuidv7();
    const started = JSON.stringify({
      type: "TEXT_MESSAGE_START",
      messageId: id,
      role: "assistant",
    });
    const row =
      stream === "messages"
        ? newRow({ id, eventType: "user", payload: id })
        : newRow({ id, eventType: "TEXT_MESSAGE_START", payload: started });
    const pushes = [newPush(sessionId, { stream, rows: [row] })];
    await append(ledger.database, pushes, { createMissing: true, wait: true });
    written += 1;
  };
  await write("messages");
  const reading = newTranscripts();
  const read: (readonly unknown[])[] = [];
  const readers = async (): Promise<void> => {
    while (read.length < READS)
      read.push((await messagesOf(sessionId, reading)).map(({ id }) => id));
  };
  const writer = async (stream: StreamName): Promise<void> => {
    while (read.length < READS) await write(stream);
  };
  const streams = ["messages", "events", "messages", "events"] as const;
  await Promise.all([readers(), ...streams.map(writer)]);
  const all = await messagesOf(sessionId);
  const ids = all.map(({ id }) => id);
  expect(ids).toHaveLength(written);
  expect(await messagesOf(sessionId, reading)).toEqual(all);
  for (const earlier of read) expect(ids.slice(0, earlier.length)).toEqual(earlier);
});

test("the rows of an import are in the order of their own times", async () => {
  const sessionId = "imported";
  const recordedAtMicros = BigInt(Date.now()) * 1_000n;
  const importAll = async (
    stream: StreamName,
    rows: readonly { readonly at: bigint; readonly eventType: string; readonly payload: string }[],
  ): Promise<void> => {
    await importBatch(ledger.database, {
      source: "upstream",
      stream,
      after: 0n,
      upTo: BigInt(rows.length),
      rows: rows.map(({ at, ...row }, index) => ({
        sessionId,
        oldSeq: BigInt(index + 1),
        rows: newPush(sessionId, {
          stream,
          rows: [newRow({ ...row, createdAtMicros: 1_700_000_000_000_000n + at })],
        }).rows,
      })),
      deleted: new Set(),
      recordedAtMicros,
    });
  };
  const user = (at: bigint, payload: string) => ({ at, eventType: "user", payload });
  const text = (at: bigint, messageId: string) => {
    const eventType = "TEXT_MESSAGE_START";
    const payload = JSON.stringify({ type: eventType, messageId, role: "assistant" });
    return { at, eventType, payload };
  };
  await importAll("messages", [user(1n, "one"), user(5n, "two"), user(9n, "three")]);
  await importAll("events", [text(2n, "first"), text(7n, "second")]);
  const messages = await messagesOf(sessionId);
  expect(messages.map(({ role, content, id }) => (role === "user" ? content : id))).toEqual([
    "one",
    "first",
    "two",
    "second",
    "three",
  ]);
});
