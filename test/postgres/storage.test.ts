/** The sums of what is stored, by the real statements on rows of the real compressor. */
import { sql } from "drizzle-orm";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createSeats } from "../../src/api/long-reads.ts";
import { createStorageHandlers } from "../../src/api/storage.ts";
import { ANONYMOUS, type Principal } from "../../src/auth/principal.ts";
import { systemClock } from "../../src/base/clock.ts";
import { Compressor } from "../../src/compressor/compressor.ts";
import { expand } from "../../src/compressor/expand.ts";
import { encodeFragments } from "../../src/compressor/fragments.ts";
import { append } from "../../src/store/append.ts";
import type { Database } from "../../src/store/database.ts";
import { createReader } from "../../src/store/reader.ts";
import type { NewRow, StreamName } from "../../src/store/rows.ts";
import { deleteSession } from "../../src/store/deletion.ts";
import {
  createStorageReader,
  sampleStatement,
  sumsStatement,
  type TypeSum,
} from "../../src/store/storage.ts";
import { createLedger, newPush, newRow, type TestLedger, useLedger } from "../support/ledger.ts";

const seats = createSeats(1);
const ledger = await useLedger();
const reader = createStorageReader(ledger.database);

const ALL = { projectId: undefined, sessionId: undefined };
const patient = (principal: Partial<Principal> = {}) => ({
  principal: { ...ANONYMOUS, ...principal },
  signal: new AbortController().signal,
  hasEnded: false,
});

async function store(
  sessionId: string,
  rows: readonly NewRow[],
  {
    stream = "events",
    database = ledger.database,
  }: { stream?: StreamName; database?: Database } = {},
): Promise<void> {
  const push = newPush(sessionId, { stream, rows });
  await append(database, [push], { createMissing: true, wait: false });
}

async function sumsOf(sessionId: string, stream: StreamName = "events") {
  const { types } = await reader.sumsOf({ sessionId, stream, after: 0n });
  return new Map(types.map((type) => [type.eventType, type]));
}

/** Rows as the compressor makes them of events with these texts. */
function merged(deltas: readonly string[], more: object = {}): readonly NewRow[] {
  const compressor = new Compressor({ maxAgeMs: 1_000 });
  const rows = deltas.flatMap((delta, at) => {
    const event = { type: "TEXT_MESSAGE_CONTENT", messageId: "m", ...more, delta };
    const payload = JSON.stringify({ ...event, timestamp: 1_700_000_000_000 + at });
    const raw = { eventType: event.type, payload, createdAtMicros: 1n };
    return [...compressor.push(raw, 0)];
  });
  const last = compressor.flush();
  return [...rows, ...(last === undefined ? [] : [last])].map((row) =>
    newRow({
      ...row,
      fragments: row.fragments && encodeFragments(row.fragments),
    }),
  );
}

function rawBytesOf(rows: readonly NewRow[]): number {
  return rows
    .flatMap((row) => [...expand({ ...row, seq: 1n })])
    .reduce((sum, { payload }) => sum + Buffer.byteLength(payload), 0);
}

test.each([
  ["plain words", ["Hel", "lo, ", "world"], {}],
  ["quotes and backslashes", ['say "delta": "', '"}\\', '\\"', "\n\t"], {}],
  ["text that takes several bytes", ["é", "漢字", "🙂", "ب"], {}],
  // PostgreSQL's functions of JSON fail at these.
  ["half a surrogate pair and a zero", ["\ud83d", "\ude00", "\ud800", "\u0000"], {}],
  ["empty texts", ["", "", ""], {}],
  [
    "members that look like the text",
    ["a", "b"],
    { note: '"delta": "no"', rawEvent: { delta: 1 } },
  ],
])("raw_bytes are the bytes of the expanded events: %s", async (name, deltas, more) => {
  const sessionId = name.replaceAll(" ", "-");
  const rows = merged(deltas, more);
  expect(rows).toHaveLength(1);
  await store(sessionId, rows);
  const bytes = rows.reduce(
    (sum, { payload, fragments }) => sum + Buffer.byteLength(payload) + (fragments?.length ?? 0),
    0,
  );
  expect(await sumsOf(sessionId)).toEqual(
    new Map([
      [
        "TEXT_MESSAGE_CONTENT",
        {
          eventType: "TEXT_MESSAGE_CONTENT",
          rows: 1n,
          rawEvents: BigInt(deltas.length),
          bytes: BigInt(bytes),
          rawBytes: BigInt(rawBytesOf(rows)),
        },
      ],
    ]),
  );
});

test("messages count as they are, with their senders", async () => {
  const rows = [newRow({ eventType: "user", payload: "hé", sender: '{"id":"U1"}' })];
  await store("messages", rows, { stream: "messages" });
  const sum = { eventType: "user", rows: 1n, rawEvents: 1n, bytes: 14n, rawBytes: 14n };
  expect([...(await sumsOf("messages", "messages")).values()]).toEqual([sum]);
  expect(await sumsOf("messages")).toEqual(new Map());
});

test("pages of any size add up to the session", async () => {
  const rows = [...merged(["a", "b", "c"]), newRow(), ...merged(["d", "e"]), newRow()];
  for (const row of rows) await store("pages", [row]);
  const whole = await reader.sumsOf({ sessionId: "pages", stream: "events", after: 0n });
  expect(whole).toMatchObject({ upTo: 7n, more: false });
  for (const rowsMax of [1, 2, 3, 4, 5]) {
    const paged = createStorageReader(ledger.database, { rowsMax });
    const sums = new Map<string | undefined, bigint>();
    let after = 0n;
    for (let more = true; more; ) {
      const page = await paged.sumsOf({ sessionId: "pages", stream: "events", after });
      for (const { eventType, rawBytes } of page.types)
        sums.set(eventType, (sums.get(eventType) ?? 0n) + rawBytes);
      ({ upTo: after, more } = page);
    }
    const expected = whole.types.map(({ eventType, rawBytes }) => [eventType, rawBytes] as const);
    expect(sums, `${rowsMax} rows`).toEqual(new Map(expected));
  }
});

test("types beyond the hundred largest are one sum without a name", async () => {
  const rows = Array.from({ length: 130 }, (_, n) =>
    newRow({ eventType: `TYPE_${n}`, payload: `{"n":"${"x".repeat(n)}"}`, conformant: false }),
  );
  await store("types", rows);
  const { types } = await reader.sumsOf({ sessionId: "types", stream: "events", after: 0n });
  expect(types).toHaveLength(101);
  expect(types[0]?.eventType).toBe("TYPE_129");
  expect(types[100]).toMatchObject({ eventType: undefined, rows: 30n, rawEvents: 30n });
});

describe("all sessions", () => {
  let own: TestLedger;
  beforeAll(async () => {
    own = await createLedger();
    const { database } = own;
    for (const [id, project] of [
      ["a1", "a"],
      ["a2", "a"],
      ["b1", "b"],
      ["gone", "a"],
    ] as const) {
      await store(id, [...merged(["x", "y"]), newRow()], { database });
      await store(id, [newRow({ eventType: "user", payload: "hi" })], {
        stream: "messages",
        database,
      });
      await database.run(sql`update sessions set project_id = ${project} where id = ${id}`);
    }
    await deleteSession(database, "gone");
  });
  afterAll(async () => own[Symbol.asyncDispose]());

  const eventsOf = (types: readonly TypeSum[]) =>
    Object.fromEntries(types.map(({ eventType, rawEvents }) => [eventType, rawEvents]));

  test("have exact totals and sums by type, of the sessions that the caller sees", async () => {
    const one = createStorageReader(own.database);
    for (const [scope, sessions] of [
      [ALL, 3n],
      [{ ...ALL, projectId: "a" }, 2n],
      [{ ...ALL, projectId: "b" }, 1n],
      [{ ...ALL, projectId: "never" }, 0n],
      [{ ...ALL, sessionId: "a2" }, 1n],
    ] as const) {
      expect(await one.totals(scope)).toMatchObject({
        sessions,
        messages: sessions,
        rawEvents: 3n * sessions,
        rows: 3n * sessions,
      });
      const { types, share } = await one.sampledTypes("events", scope);
      expect(share).toBe(1);
      const expected = { TEXT_MESSAGE_CONTENT: 2n * sessions, RAW: sessions };
      expect(eventsOf(types)).toEqual(sessions === 0n ? {} : expected);
      const said = await one.sampledTypes("messages", scope);
      expect(eventsOf(said.types)).toEqual(sessions === 0n ? {} : { user: sessions });
    }
  });

  test("have a size on disk only for callers who see every session", async () => {
    const parts = { reader: createReader(own.database), clock: systemClock, seats };
    const handlers = createStorageHandlers({
      ...parts,
      storage: createStorageReader(own.database),
    });
    const { diskBytes, rows } = await handlers.readStorage(undefined, patient());
    expect(diskBytes).toBeGreaterThan(100_000n);
    expect(rows).toBe(9n);
    const scoped = await handlers.readStorage(undefined, patient({ projectId: "a" }));
    expect(scoped).toMatchObject({ diskBytes: undefined, sessions: 2n, rows: 6n });
    const bound = await handlers.readStorage(undefined, patient({ sessionId: "b1" }));
    expect(bound).toMatchObject({ diskBytes: undefined, sessions: 1n, rows: 3n });
  });

  test("are read once in ten seconds for callers with the same rights, and a failure is not kept", async () => {
    let nowMs = 0;
    let reads = 0;
    let fails = true;
    const real = createStorageReader(own.database);
    const storage = {
      ...real,
      totals: (scope: typeof ALL) => {
        reads += 1;
        return fails ? Promise.reject(new Error("down")) : real.totals(scope);
      },
    };
    const clock = { ...systemClock, monotonicMs: () => nowMs };
    const handlers = createStorageHandlers({
      reader: createReader(own.database),
      storage,
      clock,
      seats,
    });
    await expect(handlers.readStorage(undefined, patient())).rejects.toThrow("down");
    fails = false;
    await handlers.readStorage(undefined, patient());
    await Promise.all([1, 2].map(() => handlers.readStorage(undefined, patient())));
    expect(reads).toBe(2);
    await handlers.readStorage(undefined, patient({ projectId: "a" }));
    expect(reads).toBe(3);
    nowMs = 9_999;
    await handlers.readStorage(undefined, patient());
    expect(reads).toBe(3);
    nowMs = 10_000;
    await handlers.readStorage(undefined, patient());
    expect(reads).toBe(4);
  });
});

test("an unknown or deleted session, or a cursor above its head, is refused", async () => {
  const storage = createStorageReader(ledger.database);
  const parts = { reader: createReader(ledger.database), storage, clock: systemClock, seats };
  const handlers = createStorageHandlers(parts);
  const ask = (sessionId: string, afterSeq = 0n, stream: StreamName = "events") =>
    handlers.readSessionStorage({ sessionId, stream, afterSeq }, patient());
  await store("gone", [newRow()]);
  await expect(ask("gone", 2n)).rejects.toMatchObject({ reason: "CURSOR_BEYOND_HEAD" });
  await expect(ask("gone", 1n, "messages")).rejects.toMatchObject({ reason: "CURSOR_BEYOND_HEAD" });
  await deleteSession(ledger.database, "gone");
  await expect(ask("gone")).rejects.toMatchObject({ reason: "SESSION_DELETED" });
  await expect(ask("never")).rejects.toMatchObject({ reason: "SESSION_NOT_FOUND" });
  await expect(ask("a b")).rejects.toMatchObject({ reason: "INVALID_REQUEST" });
});

describe("a large table", () => {
  let large: TestLedger;
  const ROWS = 60_000;
  beforeAll(async () => {
    large = await createLedger();
    const { database } = large;
    await store("large", [newRow()], { database });
    await database.run(sql`
      insert into session_events (session_id, seq, id, event_type, payload, created_at, recorded_at)
      select 'large', 1 + n, gen_random_uuid(), case when n % 4 = 0 then 'A' else 'B' end,
        '{"type":"x","n":"' || repeat('x', 200) || '"}', now(), now()
      from generate_series(1, ${ROWS}) n`);
    await database.run(sql`update sessions set event_seq = ${ROWS + 1}, row_count = ${ROWS + 1}`);
    await database.run(sql`analyze session_events`);
  });
  afterAll(async () => large[Symbol.asyncDispose]());

  test("is sampled, and the sums are close", async () => {
    const sampling = createStorageReader(large.database, { pagesMax: 200 });
    const { types, share } = await sampling.sampledTypes("events", ALL);
    expect(share).toBeGreaterThan(0.01);
    expect(share).toBeLessThan(0.5);
    const rows = Object.fromEntries(types.map((one) => [one.eventType, Number(one.rows)]));
    expect(rows["A"]).toBeGreaterThan(0.5 * ROWS * 0.25);
    expect(rows["A"]).toBeLessThan(1.5 * ROWS * 0.25);
    expect(rows["B"]).toBeGreaterThan(0.5 * ROWS * 0.75);
    expect(await sampling.sampledTypes("events", ALL)).toEqual({ types, share });
  });

  test("is read by no statement as a whole", async () => {
    const explain = async (statement: ReturnType<typeof sampleStatement>): Promise<string> => {
      const lines = await large.database.run(
        sql`explain (analyze, buffers, timing off) ${statement}`,
        {
          prepare: false,
        },
      );
      return lines.map((line) => String(line["QUERY PLAN"])).join("\n");
    };
    const walk = { stream: "events", sessionId: "large", after: 10n, rowsMax: 500 } as const;
    const walked = await explain(sumsStatement(walk));
    expect(walked).toMatch(/Index Scan using session_events_\w+ .*rows=500/);
    expect(walked).not.toContain("Seq Scan");
    const sampled = await explain(sampleStatement({ stream: "events", scope: ALL, pagesMax: 100 }));
    expect(sampled).toContain("Sample Scan on session_events");
    expect(sampled).not.toContain("Seq Scan on session_events");
  });
});
