/** What a fold reads is what a page has, and walks the primary key. */
import { v7 as uuidv7 } from "uuid";
import { beforeAll, expect, test } from "vitest";
import { transcriptRowsStatement, readTranscriptRows } from "../../src/store/pages.ts";
import { createReader } from "../../src/store/reader.ts";
import { append } from "../../src/store/append.ts";
import {
  readTranscriptMessages,
  transcriptMessagesStatement,
  type TranscriptMessageRow,
} from "../../src/store/transcript-messages.ts";
import { sql } from "drizzle-orm";
import { newPush, useLedger } from "../support/ledger.ts";

const ledger = await useLedger();
beforeAll(async () => {
  const rows = Array.from({ length: 50 }, (_, at) => ({
    id: uuidv7(),
    eventType: at % 2 === 0 ? "CUSTOM" : "TEXT_MESSAGE_CONTENT",
    payload: JSON.stringify({ text: "é".repeat(at) }),
    createdAtMicros: 1_700_000_000_000_001n + BigInt(at),
    completedAtMicros: at % 3 === 0 ? 1_700_000_000_000_500n + BigInt(at) : undefined,
    eventCount: 1 + (at % 4),
    fragments: at % 4 === 0 ? undefined : new Uint8Array([1, 2]),
    conformant: at % 5 !== 0,
  }));
  for (const sessionId of ["s", "other"]) {
    await append(
      ledger.database,
      rows.map((row) => newPush(sessionId, { rows: [{ ...row, id: uuidv7() }] })),
      { createMissing: true, wait: true },
    );
  }
});

test.each([
  { rowsMax: 1_000, bytesMax: 1_000_000 },
  { rowsMax: 7, bytesMax: 1_000_000 },
  { rowsMax: 1_000, bytesMax: 150 },
  { rowsMax: 3, bytesMax: 1 },
])("a walk returns all rows in order, $rowsMax rows or $bytesMax bytes a read", async (limits) => {
  const { database } = ledger;
  const all = { stream: "events", sessionId: "s", after: 0n, rowsMax: 1_000 } as const;
  const rows = await createReader(database).pageAfter({ ...all, bytesMax: 10_000_000 });
  const read = [];
  let after = 0n;
  for (;;) {
    const page = await readTranscriptRows(database, { sessionId: "s", after, ...limits });
    const last = page.at(-1);
    if (last === undefined) break;
    expect(page.length).toBeLessThanOrEqual(limits.rowsMax);
    const bytes = page.reduce((sum, { payload }) => sum + Buffer.byteLength(payload), 0);
    expect(page.length === 1 || bytes <= limits.bytesMax).toBe(true);
    for (const row of page) expect(row.newestMicros === undefined).toBe(row !== last);
    read.push(...page);
    after = last.seq + BigInt(last.eventCount) - 1n;
  }
  const newest = new Map(
    rows.map((row) => [row.seq, row.completedAtMicros ?? row.createdAtMicros]),
  );
  expect(read).toHaveLength(50);
  let recorded = 0;
  for (const [at, { newestMicros, createdMicros, recordedMicros, ...row }] of read.entries()) {
    expect(rows[at]).toMatchObject(row);
    expect(BigInt(createdMicros)).toBe(rows[at]?.createdAtMicros);
    expect(recordedMicros).toBeGreaterThanOrEqual(recorded);
    recorded = recordedMicros;
    expect([undefined, newest.get(row.seq)]).toContain(newestMicros);
  }
});

test("a walk reads the primary key from the cursor", async () => {
  const statement = transcriptRowsStatement({
    sessionId: "s",
    after: 10n,
    rowsMax: 5,
    bytesMax: 1_000,
  });
  const plan = await ledger.database.run(sql`explain ${statement}`);
  const text = plan.map((row) => String(row["QUERY PLAN"])).join("\n");
  expect(text).toMatch(/Index Scan using session_events_session_id_seq_pk/);
  expect(text).not.toMatch(/Sort|Seq Scan/);
});

test("a walk over messages returns all rows in order, with the payloads that are wanted", async () => {
  const { database } = ledger;
  const types = ["user", "assistant", "lifecycle"];
  const pushes = Array.from({ length: 30 }, (_, at) =>
    newPush("talk", {
      stream: "messages",
      key: at % 4 === 0 ? `key-${at}` : undefined,
      digest: at % 4 === 0 ? new Uint8Array(32) : undefined,
      rows: [
        {
          id: uuidv7(),
          eventType: types[at % 3] ?? "",
          payload: "é".repeat(at),
          createdAtMicros: 1_700_000_000_000_001n + BigInt(at),
          sender: at % 2 === 0 ? '{"name":"ann"}' : undefined,
          sentAtMicros: at % 5 === 0 ? 1_600_000_000_000_001n : undefined,
        },
      ],
    }),
  );
  await append(database, pushes, { createMissing: true, wait: true });
  const all = { stream: "messages", sessionId: "talk", after: 0n, rowsMax: 1_000 } as const;
  const rows = await createReader(database).pageAfter({ ...all, bytesMax: 10_000_000 });
  for (const isWhole of [true, false]) {
    const read: TranscriptMessageRow[] = [];
    for (;;) {
      const after = read.at(-1)?.seq ?? 0n;
      const request = { sessionId: "talk", after, rowsMax: 7, bytesMax: 100, isWhole };
      const page = await readTranscriptMessages(database, request);
      if (page.length === 0) break;
      read.push(...page);
    }
    expect(read).toHaveLength(30);
    for (const [at, row] of read.entries()) {
      const { recordedMicros, createdMicros, idempotencyKey, eventCount, ...rest } = row;
      const stored = rows[at];
      const isWanted = isWhole || row.eventType === "user";
      expect(rest).toEqual({
        ...stored,
        sessionId: undefined,
        payload: isWanted ? stored?.payload : "",
      });
      expect(BigInt(createdMicros)).toBe(stored?.createdAtMicros);
      expect(idempotencyKey).toBe(at % 4 === 0 ? `key-${at}` : undefined);
      expect([recordedMicros > 1_700_000_000_000_000, eventCount]).toEqual([true, 1]);
    }
  }
  const request = { sessionId: "talk", after: 10n, rowsMax: 5, bytesMax: 1_000, isWhole: false };
  const plan = await database.run(sql`explain ${transcriptMessagesStatement(request)}`);
  const text = plan.map((row) => String(row["QUERY PLAN"])).join("\n");
  expect(text).toMatch(/Index Scan using session_messages_session_id_seq_pk/);
  expect(text).not.toMatch(/Sort|Seq Scan/);
});
