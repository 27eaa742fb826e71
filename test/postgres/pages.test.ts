import { create, toBinary } from "@bufbuild/protobuf";
import { type SQL, sql } from "drizzle-orm";
import { PgDialect } from "drizzle-orm/pg-core";
import { beforeAll, describe, expect, test } from "vitest";
import { FragmentsSchema } from "@session-ledger/proto/ambient/v1/compression_pb";
import { append } from "../../src/store/append.ts";
import {
  type PageRequest,
  pageStatement,
  readPage,
  ROWS_LOOKED_AT_MAX,
} from "../../src/store/pages.ts";
import { WrittenEvents } from "../../src/contract/rows-to-wire.ts";
import { type EventRow, lastSeqOf, type StoredRow } from "../../src/store/rows.ts";
import { IS_SHARDED, newPush, newRow, useLedger } from "../support/ledger.ts";

const ALL: PageRequest<"events"> = {
  stream: "events",
  sessionId: "pages",
  after: 0n,
  before: undefined,
  descending: false,
  rowsMax: 1_000,
  bytesMax: 3_000_000,
  filter: undefined,
};
const FILTER = {
  eventTypes: [],
  runId: "",
  createdAfterMicros: undefined,
  createdBeforeMicros: undefined,
};
const LARGE_ROWS = 50_000;

/** A row in its wire form has getters. */
function fieldsOf(read: EventRow): EventRow {
  return {
    stream: read.stream,
    sessionId: read.sessionId,
    seq: read.seq,
    id: read.id,
    eventType: read.eventType,
    payload: read.payload,
    createdAtMicros: read.createdAtMicros,
    completedAtMicros: read.completedAtMicros,
    eventCount: read.eventCount,
    runId: read.runId,
    fragments: read.fragments && new Uint8Array(read.fragments),
    conformant: read.conformant,
  };
}

const ledger = await useLedger();
beforeAll(async () => {
  // Rows of 1, 2, 3, 1, 2, 3 … events; every seventh of another type, every hundredth of a third.
  for (let from = 0; from < 100; from += 20) {
    const pushes = Array.from({ length: 20 }, (_, index) => row(from + index));
    await append(ledger.database, pushes, { createMissing: true, wait: false });
  }
  await ledger.database.run(sql`
    insert into session_events (session_id, seq, id, event_type, payload, created_at, recorded_at)
    select 'large', n, gen_random_uuid(), case when n % 100 = 0 then 'CUSTOM' else 'RAW' end, '{"n":' || n || '}',
      timestamptz '2026-01-01' + n * interval '1 second', now() from generate_series(1, ${LARGE_ROWS}::int) n`);
  await ledger.database.run(sql`
    insert into sessions (id, created_at, updated_at, event_seq) values ('large', now(), now(), ${LARGE_ROWS}::int)`);
});

function row(index: number) {
  const eventType = index % 7 === 0 ? "CUSTOM" : "RAW";
  return newPush("pages", {
    rows: [
      newRow({
        eventCount: 1 + (index % 3),
        eventType,
        createdAtMicros: BigInt(index) * 1_000_000n,
      }),
    ],
  });
}

const read = (request: Partial<PageRequest<"events">>) =>
  readPage(ledger.database, { ...ALL, ...request });
const seqs = (rows: readonly StoredRow[]) => rows.map((one) => one.seq);

/** Follows the cursors to the end. */
async function readAll(request: Partial<PageRequest<"events">>): Promise<StoredRow[]> {
  const rows: StoredRow[] = [];
  let { after, before } = { ...ALL, ...request };
  for (;;) {
    const page = await read({ ...request, after, before });
    rows.push(...page.rows);
    if (!page.hasMore) return rows;
    if (request.descending === true) before = page.nextBefore;
    else after = page.nextAfter;
  }
}

describe("pages", () => {
  test("pages of any size, upwards and downwards, return every row once", async () => {
    const { rows } = await read({});
    expect(rows).toHaveLength(100);
    for (const rowsMax of [1, 7, 99, 100, 101]) {
      expect(await readAll({ rowsMax })).toEqual(rows);
      expect(await readAll({ rowsMax, descending: true })).toEqual(rows.toReversed());
    }
  });

  test("rows that are read in their wire form have the fields of the rows of any other read", async () => {
    const times = [0n, -1n, -1_500_000n, -62_135_596_800_000_000n, 253_402_300_799_999_999n];
    const drawn = times.map((createdAtMicros, at) =>
      newRow({
        createdAtMicros,
        completedAtMicros: at === 0 ? undefined : createdAtMicros,
        eventCount: at + 1,
        payload: `{"é":"${"x".repeat(at * 1_000)}"}`,
        fragments:
          at === 0
            ? undefined
            : toBinary(FragmentsSchema, create(FragmentsSchema, { lengths: [at] })),
        conformant: at !== 1,
        mark: at === 2 ? { kind: "open", runId: "run é" } : undefined,
      }),
    );
    const [first = newRow(), ...others] = drawn;
    const push = newPush("undecoded", { rows: [first, ...others] });
    await append(ledger.database, [push], { createMissing: true, wait: false });
    const { rows } = await read({ sessionId: "undecoded" });
    const { eventOf } = new WrittenEvents();
    const written = (await read({ sessionId: "undecoded", eventOf })).rows;
    expect(written.map(fieldsOf)).toEqual(rows.map(fieldsOf));
    expect(rows.map((one) => one.createdAtMicros)).toEqual(times);
    expect(rows.map((one) => one.completedAtMicros)).toEqual([undefined, ...times.slice(1)]);
  });

  test("the last page has hasMore false, and a full one before it has hasMore true", async () => {
    expect((await read({ rowsMax: 99 })).hasMore).toBe(true);
    expect((await read({ rowsMax: 100 })).hasMore).toBe(false);
  });

  test("a page ends before the row that would exceed the bytes, and has at least one row", async () => {
    const { rows } = await read({});
    const bytes = (rows[0]?.payload.length ?? 0) + 512;
    expect((await read({ bytesMax: 1 })).rows).toHaveLength(1);
    expect((await read({ bytesMax: bytes * 3 })).rows).toHaveLength(3);
    expect((await read({ bytesMax: bytes * 3 })).hasMore).toBe(true);
    expect(await readAll({ bytesMax: bytes * 4 - 1 })).toEqual(rows);
  });

  test("a page for raw events ends at the row with enough events; a row without an index counts as one", async () => {
    // 7 events a row, but for every fourth, which was merged elsewhere and has 9 and no index.
    const rows = Array.from({ length: 20 }, (_, index) =>
      newRow(
        index % 4 === 3
          ? { eventCount: 9 }
          : { eventCount: 7, fragments: new Uint8Array([10, 1, 2]) },
      ),
    );
    const [first = newRow(), ...others] = rows;
    const push = newPush("merged", { rows: [first, ...others] });
    await append(ledger.database, [push], { createMissing: true, wait: false });
    const sizes = async (request: Partial<PageRequest<"events">>) =>
      (await read({ sessionId: "merged", ...request })).rows.map((one) => one.eventCount);
    expect(await sizes({ eventsMax: 7 })).toEqual([7]);
    expect(await sizes({ eventsMax: 8 })).toEqual([7, 7]);
    expect(await sizes({ eventsMax: 22 })).toEqual([7, 7, 7, 9]);
    expect(await sizes({ eventsMax: 23 })).toEqual([7, 7, 7, 9, 7]);
    expect(await sizes({ eventsMax: 1, descending: true })).toEqual([9]);
    expect(await sizes({ eventsMax: 2, descending: true })).toEqual([9, 7]);
    // Two events of the last row before the border, and seven of the one before it.
    expect(await sizes({ eventsMax: 9, before: 17n, descending: true })).toEqual([7, 7]);
    expect(await sizes({ eventsMax: 10, before: 17n, descending: true })).toEqual([7, 7, 7]);
    const page = await read({ sessionId: "merged", eventsMax: 8 });
    expect(page).toMatchObject({ hasMore: true, nextAfter: 14n });
    expect((await read({ sessionId: "merged", eventsMax: 1_000 })).hasMore).toBe(false);
  });

  test("filters by type and time apply, and an ascending page gives the last number it examined", async () => {
    const { rows } = await read({});
    const custom = rows.filter((one) => one.eventType === "CUSTOM");
    const filter = { ...FILTER, eventTypes: ["CUSTOM"] };
    const page = await read({ filter });
    expect(page.rows).toEqual(custom);
    expect(page.nextAfter).toBe(rows.map(lastSeqOf).at(-1));
    expect(await readAll({ filter, rowsMax: 2 })).toEqual(custom);
    expect(await readAll({ filter, rowsMax: 2, descending: true })).toEqual(custom.toReversed());
    // Below a border it has looked at what is below, and no further.
    expect((await read({ filter, before: 50n })).nextAfter).toBe(49n);
    expect((await read({ filter, before: 5_000n })).nextAfter).toBe(page.nextAfter);
    const span = { ...FILTER, createdAfterMicros: 10_000_000n, createdBeforeMicros: 20_000_000n };
    expect(seqs((await read({ filter: span })).rows)).toEqual(seqs(rows.slice(10, 20)));
  });

  test("a page with a rare filter looks at a bounded number of rows, and the next page continues", async () => {
    const filter = { ...FILTER, eventTypes: ["NONE"] };
    const first = await read({ sessionId: "large", filter });
    expect(first).toEqual({
      rows: [],
      nextAfter: BigInt(ROWS_LOOKED_AT_MAX),
      nextBefore: 0n,
      hasMore: true,
      session: { messageSeq: 0n, eventSeq: BigInt(LARGE_ROWS), deleted: false },
    });
    const rare = { ...FILTER, eventTypes: ["CUSTOM"] };
    expect(await readAll({ sessionId: "large", filter: rare })).toHaveLength(LARGE_ROWS / 100);
    expect(await readAll({ sessionId: "large", filter: rare, descending: true })).toHaveLength(
      LARGE_ROWS / 100,
    );
  });
});

test("a time span has the rows between creation and completion that touch it, both ends included", async () => {
  const at = (created: bigint, completed?: bigint) =>
    newRow({
      createdAtMicros: created,
      completedAtMicros: completed,
      ...(completed === undefined ? {} : { eventCount: 2 }),
    });
  // Rows at 1: a moment at 10. 2: from 10 to 20. 4: from 15 to 30. 6: a moment at 30.
  for (const one of [at(10n), at(10n, 20n), at(15n, 30n), at(30n)]) {
    await append(ledger.database, [newPush("spans", { rows: [one] })], {
      createMissing: true,
      wait: false,
    });
  }
  const inside = async (startMicros: bigint | undefined, endMicros: bigint | undefined) => {
    const filter = { ...FILTER, span: { startMicros, endMicros } };
    return seqs((await read({ sessionId: "spans", filter })).rows);
  };
  expect(await inside(undefined, undefined)).toEqual([1n, 2n, 4n, 6n]);
  expect(await inside(20n, undefined)).toEqual([2n, 4n, 6n]);
  expect(await inside(21n, undefined)).toEqual([4n, 6n]);
  expect(await inside(undefined, 10n)).toEqual([1n, 2n]);
  expect(await inside(undefined, 9n)).toEqual([]);
  expect(await inside(16n, 18n)).toEqual([2n, 4n]);
  expect(await inside(31n, undefined)).toEqual([]);
});

describe("plans", () => {
  async function planOf(statement: SQL): Promise<string> {
    await ledger.database.run(sql`analyze session_events`);
    const lines = await ledger.database.run(sql`explain ${statement}`);
    return lines.map((line) => String(line["QUERY PLAN"])).join("\n");
  }

  test.each([
    ["forward", {}],
    ["backward", { descending: true, before: 40_000n }],
    ["raw events", { eventsMax: 100, before: 40_000n }],
    ["span", { filter: { ...FILTER, span: { startMicros: 1n, endMicros: 2n ** 51n } } }],
    ["type and time", { filter: { ...FILTER, eventTypes: ["CUSTOM"], createdAfterMicros: 1n } }],
  ])("a page walks the primary key: %s", async (_name, request) => {
    const border = { seq: undefined, more: false };
    const large = { ...ALL, sessionId: "large", after: 10_000n, ...request };
    const plan = await planOf(pageStatement(large, border));
    expect(plan).toMatch(/Index Scan (Backward )?using session_events_session_id_seq_pk/);
    expect(plan).not.toContain("Seq Scan");
  });

  // Bug: each page of a long session was planned again, which took 0.3 ms of 0.7. A sharded engine plans each time.
  test.skipIf(IS_SHARDED)("PostgreSQL keeps the plan of a page of a long session", async () => {
    const large = { ...ALL, sessionId: "large", rowsMax: 100 };
    const { sql: text, params } = new PgDialect().sqlToQuery(
      pageStatement(large, { seq: undefined, more: false }),
    );
    const values = params.map((value) =>
      typeof value === "string" ? `'${value}'` : String(value),
    );
    const plans = await ledger.database.transaction(async (transaction) => {
      await transaction.execute(sql`analyze session_events`);
      await transaction.execute(sql.raw(`prepare page as ${text}`));
      // PostgreSQL plans five times for the values, and then compares.
      for (let time = 0; time < 6; time += 1) {
        await transaction.execute(sql.raw(`execute page(${values.join(", ")})`));
      }
      return transaction.execute(
        sql`select generic_plans from pg_prepared_statements where name = 'page'`,
      );
    });
    expect(plans).toEqual([{ generic_plans: "1" }]);
  });
});
