/**
 * Raw events out of merged rows, as pages and as watches give them: from every cursor, in both
 * directions, with pages that end inside rows, and with filters.
 *
 * Method: a session of events that are known one by one (fragments of several messages, whole events,
 * rows that were merged elsewhere and have no index) is merged by a plain merge that shares no code
 * with the service and stored. Whatever is then asked with `expand` must be the known events,
 * filtered and cut as the contract says.
 */
import { ANONYMOUS } from "../../src/auth/principal.ts";
import { create, type Message, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { type SQL, sql } from "drizzle-orm";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WatchState } from "@session-ledger/proto/ambient/v1/common_pb";
import { FragmentsSchema } from "@session-ledger/proto/ambient/v1/compression_pb";
import {
  ListSessionEventsRequestSchema,
  type ListSessionEventsResponse,
  type SessionEvent,
  WatchSessionEventsRequestSchema,
} from "@session-ledger/proto/ambient/v1/events_pb";
import { systemClock } from "@session-ledger/base/clock";
import type { CallContext } from "../../src/contract/context.ts";
import { createListHandlers } from "../../src/handlers/pages.ts";
import { microsOf } from "../../src/contract/times.ts";
import { createWatchHandlers } from "../../src/handlers/watch.ts";
import { LIVE_LIMITS } from "../../src/live/limits.ts";
import { Live } from "../../src/live/live.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { append } from "../../src/store/append.ts";
import type { StoredRow } from "../../src/store/rows.ts";
import { createReader, holderStatement } from "../../src/store/reader.ts";
import { newPush, newRow, type NewRow, useLedger } from "../support/ledger.ts";
import { mergeFragments } from "../support/merging.ts";
import type { StreamEvent } from "../support/streams.ts";

const SESSION = "expanded";
const CREATED_AT = 1_700_000_000_000_001n;

/** What must come back; `eventCount` is above 1 for a row that has no index. */
interface Raw extends StreamEvent {
  readonly seq: bigint;
  readonly eventCount: number;
  readonly runId: string;
  readonly createdAtMicros: bigint;
}

type ListInit = Exclude<MessageInitShape<typeof ListSessionEventsRequestSchema>, Message>;
type WatchInit = Exclude<MessageInitShape<typeof WatchSessionEventsRequestSchema>, Message>;

const ledger = await useLedger();
const context: CallContext = {
  principal: ANONYMOUS,
  hasEnded: false,
  signal: new AbortController().signal,
};

const { database } = ledger;
const reader = createReader(database);
const log = createLogTo({ write: () => undefined }, "silent");
const live = new Live({ reader, clock: systemClock, log }, LIVE_LIMITS);
const lists = createListHandlers(reader);
const watches = createWatchHandlers({ live, reader }, { sessionPolicy: "auto" });
const expanded = { sessionId: SESSION, expand: true };
const list = (init: ListInit) =>
  lists.listSessionEvents(
    create(ListSessionEventsRequestSchema, { ...expanded, ...init }),
    context,
  );
const watch = (init: WatchInit) =>
  watches.watchSessionEvents(
    create(WatchSessionEventsRequestSchema, { ...expanded, snapshotOnly: true, ...init }),
    context,
  );
beforeAll(() => store(SESSION, ROWS));
afterAll(() => live.stop());

const EVENTS: readonly StreamEvent[] = [
  event({ type: "RUN_STARTED", threadId: "t", runId: "r1" }),
  ...content("m1", ["Hel", "", "lo \ud83d", "\ude00", '\n"tail"'], [5, 9, 3, 3, 1_000]),
  event({ type: "CUSTOM", name: "n", value: 1 }),
  ...content("m1", [" again"]),
  ...content("m2", ["x", "y"]),
  event({ type: "RUN_FINISHED", threadId: "t", runId: "r1" }),
  event({ type: "RUN_STARTED", threadId: "t", runId: "r2" }),
  ...content("m3", Array.from("twelve parts"), Array<number>(12).fill(7)),
  ...content("m4", ["a", "b", "c"]),
  event({ type: "RUN_ERROR", message: "no" }),
];
const WITHOUT_INDEX = content("m4", ["a", "b", "c"]);

function event(value: { readonly type: string; readonly [key: string]: unknown }): StreamEvent {
  return { eventType: value.type, payload: JSON.stringify(value) };
}

function content(
  messageId: string,
  deltas: readonly string[],
  timestamps?: readonly number[],
): readonly StreamEvent[] {
  return deltas.map((delta, at) => {
    const timestamp = timestamps?.[at];
    const time = timestamp === undefined ? {} : { timestamp };
    return event({ type: "TEXT_MESSAGE_CONTENT", messageId, ...time, delta });
  });
}

const MERGED = mergeFragments(EVENTS).map((row) =>
  row.eventCount === WITHOUT_INDEX.length && row.payload.includes('"m4"')
    ? { ...row, fragments: undefined }
    : row,
);
const ROWS: readonly NewRow[] = MERGED.map(({ eventType, payload, eventCount, fragments }, at) =>
  newRow({
    eventType,
    payload,
    eventCount,
    createdAtMicros: CREATED_AT + BigInt(at) * 1_000_000n,
    completedAtMicros: eventCount > 1 ? CREATED_AT + 9_000_000n : undefined,
    fragments: fragments && toBinary(FragmentsSchema, create(FragmentsSchema, fragments)),
    runId: eventType === "RUN_STARTED" ? JSON.parse(payload).runId : "",
  }),
);

/** One push; the rows as they are stored. */
async function store(sessionId: string, rows: readonly NewRow[]): Promise<readonly StoredRow[]> {
  if (rows.length === 0) return [];
  const push = newPush(sessionId, { rows });
  const [outcome] = await append(ledger.database, [push], { createMissing: true, wait: false });
  if (outcome?.kind !== "stored") throw new Error("not stored");
  const after = (push.rows[0]?.seq ?? 0n) - 1n;
  const page = { stream: "events", sessionId, after, rowsMax: 1_000, bytesMax: 1e9 } as const;
  return createReader(ledger.database).pageAfter(page);
}

/** The known events with their numbers, times and runs. */
const RAW: readonly Raw[] = (() => {
  const all: Raw[] = [];
  let seq = 1n;
  let runId = "";
  let nextEvent = 0;
  for (const [at, row] of MERGED.entries()) {
    const createdAtMicros = CREATED_AT + BigInt(at) * 1_000_000n;
    const opened = row.eventType === "RUN_STARTED";
    if (opened) runId = JSON.parse(row.payload).runId;
    const of = EVENTS.slice(nextEvent, nextEvent + row.eventCount);
    const time = (one: StreamEvent): number => JSON.parse(one.payload).timestamp ?? 0;
    const events =
      row.eventCount > 1 && row.fragments === undefined
        ? [{ ...row, createdAtMicros, seq, runId }]
        : of.map((one, index) => {
            const since = BigInt(time(one) - time(of[0] ?? one));
            return {
              ...one,
              seq: seq + BigInt(index),
              eventCount: 1,
              createdAtMicros: createdAtMicros + since * 1_000n,
              runId,
            };
          });
    for (const { seq: own, eventType, payload, eventCount, createdAtMicros: micros } of events)
      all.push({ seq: own, eventType, payload, eventCount, createdAtMicros: micros, runId });
    if (row.eventType === "RUN_FINISHED" || row.eventType === "RUN_ERROR") runId = "";
    seq += BigInt(row.eventCount);
    nextEvent += row.eventCount;
  }
  return all;
})();
const HEAD = BigInt(EVENTS.length);
const CURSORS = Array.from({ length: EVENTS.length + 1 }, (_, at) => BigInt(at));

function rawOf(events: readonly SessionEvent[]): readonly Raw[] {
  return events.map(({ seq, eventType, payload, eventCount, runId, createdAt }) => ({
    seq,
    eventType,
    payload,
    eventCount,
    runId,
    createdAtMicros: createdAt === undefined ? 0n : microsOf(createdAt),
  }));
}

async function snapshot(init: WatchInit): Promise<SessionEvent[]> {
  const got: SessionEvent[] = [];
  for await (const message of watch(init)) got.push(message);
  return got;
}

/** The cursors of a page that is not the last are at its last item, whatever a filter skipped. */
function expectCursors(
  { items, nextAfterSeq, nextBeforeSeq }: ListSessionEventsResponse,
  { filtered }: { readonly filtered: boolean },
): void {
  const seqs = items.map(({ seq }) => seq).toSorted((a, b) => (a < b ? -1 : 1));
  const highest = items.find(({ seq }) => seq === seqs.at(-1));
  if (highest === undefined || filtered) return;
  expect({ nextAfterSeq, nextBeforeSeq }).toEqual({
    nextAfterSeq: highest.seq + BigInt(highest.eventCount) - 1n,
    nextBeforeSeq: seqs[0],
  });
}

/** Pages to the end, and each page's own sanity. */
async function pages(init: ListInit): Promise<readonly Raw[]> {
  const all: Raw[] = [];
  let { afterSeq = 0n, beforeSeq = 0n } = init;
  for (let calls = 0; calls < 200; calls += 1) {
    const page = await list({ ...init, afterSeq, beforeSeq });
    expect(page.items.length).toBeLessThanOrEqual(init.pageSize ?? 100);
    all.push(...rawOf(page.items));
    if (!page.hasMore) return all;
    expectCursors(page, {
      filtered: (init.eventTypes ?? []).length > 0 || init.runId !== undefined,
    });
    if (init.descending === true) beforeSeq = page.nextBeforeSeq;
    else afterSeq = page.nextAfterSeq;
  }
  throw new Error("the cursors do not come to an end");
}

test("the session of this test has the expected rows", () => {
  expect(MERGED.map(({ eventCount }) => eventCount)).toEqual([1, 5, 1, 1, 2, 1, 1, 12, 3, 1]);
  expect(RAW).toHaveLength(EVENTS.length - 2);
});

describe("pages of raw events", () => {
  test("have the known events with the id of their row and none of its other fields", async () => {
    const { items, hasMore, nextAfterSeq } = await list({});
    expect(rawOf(items)).toEqual(RAW);
    expect({ hasMore, nextAfterSeq }).toEqual({ hasMore: false, nextAfterSeq: HEAD });
    const rows = await list({ expand: false });
    for (const item of items) {
      const row = rows.items.findLast(({ seq }) => seq <= item.seq);
      expect(item.id).toBe(row?.id);
      expect(item.fragments).toBeUndefined();
      // A row that was merged elsewhere comes as it is.
      expect(item.completedAt).toEqual(item.eventCount > 1 ? row?.completedAt : undefined);
    }
  });

  test.each([1, 2, 3, 5, 7, 100])(
    "of size %i return every later event, upwards from every cursor",
    async (pageSize) => {
      for (const afterSeq of CURSORS)
        expect(await pages({ afterSeq, pageSize })).toEqual(
          RAW.filter(({ seq }) => seq > afterSeq),
        );
    },
  );

  test("are full from every cursor when enough events exist", async () => {
    for (const cursor of CURSORS) {
      const left = RAW.filter(({ seq }) => seq > cursor).length;
      const up = await list({ afterSeq: cursor, pageSize: 3 });
      expect(up.items).toHaveLength(Math.min(3, left));
      const below = RAW.filter(({ seq }) => cursor === 0n || seq < cursor).length;
      const down = await list({ beforeSeq: cursor, descending: true, pageSize: 3 });
      expect(down.items).toHaveLength(Math.min(3, below));
    }
  });

  test.each([1, 2, 3, 5, 7, 100])(
    "of size %i return every earlier event, downwards from every cursor",
    async (pageSize) => {
      const down = RAW.toReversed();
      expect(await pages({ descending: true, pageSize })).toEqual(down);
      for (const beforeSeq of CURSORS.slice(1))
        expect(await pages({ beforeSeq, descending: true, pageSize })).toEqual(
          down.filter(({ seq }) => seq < beforeSeq),
        );
    },
  );

  test("downwards and upwards meet at a cursor inside a row", async () => {
    for (const cursor of CURSORS.slice(1)) {
      const newest = await list({ afterSeq: cursor, descending: true });
      expect(rawOf(newest.items)).toEqual(RAW.filter(({ seq }) => seq > cursor).toReversed());
      const older = await list({ beforeSeq: newest.nextBeforeSeq, descending: true });
      expect([...newest.items, ...older.items].map(({ seq }) => seq)).toEqual(
        RAW.map(({ seq }) => seq).toReversed(),
      );
      const oldest = await list({ beforeSeq: cursor });
      expect(rawOf(oldest.items)).toEqual(RAW.filter(({ seq }) => seq < cursor));
      const rest = await list({ afterSeq: oldest.nextAfterSeq });
      expect([...oldest.items, ...rest.items].map(({ seq }) => seq)).toEqual(
        RAW.map(({ seq }) => seq),
      );
    }
  });

  test.each<[string, ListInit, (raw: Raw) => boolean]>([
    [
      "type",
      { eventTypes: ["TEXT_MESSAGE_CONTENT"] },
      ({ eventType }) => eventType === "TEXT_MESSAGE_CONTENT",
    ],
    ["another type", { eventTypes: ["CUSTOM"] }, ({ eventType }) => eventType === "CUSTOM"],
    ["run", { runId: "r2" }, ({ runId }) => runId === "r2"],
    ["nothing", { eventTypes: ["RAW"] }, () => false],
  ])(
    "filtered by %s are complete from every cursor, page by page",
    async (_name, filter, passes) => {
      for (const pageSize of [2, 100])
        for (const cursor of CURSORS) {
          const wanted = RAW.filter(passes);
          expect(await pages({ ...filter, afterSeq: cursor, pageSize })).toEqual(
            wanted.filter(({ seq }) => seq > cursor),
          );
          const below = { beforeSeq: cursor, descending: true, pageSize };
          expect(await pages({ ...filter, ...below })).toEqual(
            wanted.filter(({ seq }) => cursor === 0n || seq < cursor).toReversed(),
          );
        }
      const page = await list({ ...filter, afterSeq: 4n });
      expect(page.nextAfterSeq).toBe(HEAD);
      // Neither is a cursor inside a row taken back to where that row begins.
      const down = await list({ ...filter, afterSeq: 4n, descending: true });
      expect(down.nextAfterSeq).toBeGreaterThanOrEqual(4n);
    },
  );

  test("end at 3 MiB with at least one event, and continue inside the row", async () => {
    const pad = "x".repeat(1_000_000);
    const fragments = ["a", "b", "c", "d", "e", "f", "g"].map((delta) =>
      event({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta, rawEvent: pad }),
    );
    const [row] = mergeFragments(fragments);
    if (row?.fragments === undefined) throw new Error("not merged");
    const index = toBinary(FragmentsSchema, create(FragmentsSchema, row.fragments));
    await store("large", [newRow({ ...row, fragments: index })]);
    const up = await list({ sessionId: "large" });
    expect(up.items.map(({ seq }) => seq)).toEqual([1n, 2n, 3n]);
    expect(up).toMatchObject({ hasMore: true, nextAfterSeq: 3n, nextBeforeSeq: 1n });
    const down = await list({ sessionId: "large", descending: true });
    expect(down.items.map(({ seq }) => seq)).toEqual([7n, 6n, 5n]);
    expect(down).toMatchObject({ hasMore: true, nextAfterSeq: 7n, nextBeforeSeq: 5n });
    expect(await pages({ sessionId: "large" })).toHaveLength(7);
    expect(await pages({ sessionId: "large", descending: true })).toHaveLength(7);
  });

  test("are OUT_OF_RANGE only above the last raw event", async () => {
    expect((await list({ afterSeq: HEAD })).items).toEqual([]);
    await expect(list({ afterSeq: HEAD + 1n })).rejects.toMatchObject({ code: "out_of_range" });
  });
});

describe("watches of raw events", () => {
  test("a snapshot from every cursor has every later event", async () => {
    for (const afterSeq of CURSORS)
      expect(rawOf(await snapshot({ afterSeq }))).toEqual(RAW.filter(({ seq }) => seq > afterSeq));
  });

  test("without expand, a cursor inside a row brings that row again", async () => {
    const rows = await snapshot({ expand: false, afterSeq: 4n });
    expect(rows[0]).toMatchObject({ seq: 2n, eventCount: 5 });
    expect(rows[0]?.fragments).toBeDefined();
  });

  test("filters apply, and no frame is before the caller's cursor", async () => {
    const filter = { eventTypes: ["CUSTOM"], stateFrames: true };
    for (const afterSeq of CURSORS) {
      const got = await snapshot({ ...filter, afterSeq });
      const isRow = ({ watchState }: SessionEvent) => watchState === WatchState.UNSPECIFIED;
      expect(got.filter(isRow).map(({ seq }) => seq)).toEqual(
        RAW.filter(({ seq, eventType }) => eventType === "CUSTOM" && seq > afterSeq).map(
          ({ seq }) => seq,
        ),
      );
      const numbers = got.map(({ seq }) => seq);
      expect(numbers).toEqual(numbers.toSorted((a, b) => Number(a - b)));
      expect(numbers.every((seq) => seq >= afterSeq)).toBe(true);
      expect(numbers.at(-1)).toBe(HEAD);
    }
    const ofRun = await snapshot({ runId: "r1", afterSeq: 3n });
    expect(rawOf(ofRun)).toEqual(RAW.filter(({ seq, runId }) => runId === "r1" && seq > 3n));
  });

  test("live rows reach every watcher, from cursors before, inside and at the head", async () => {
    const sessionId = "live";
    await store(sessionId, ROWS);
    const following = [0n, 4n, HEAD].map((afterSeq) => follow({ sessionId, afterSeq }));
    await Promise.all(following.map(({ isLive }) => isLive));
    live.onCommit(await store(sessionId, ROWS));
    const all = [...RAW, ...RAW.map((raw) => ({ ...raw, seq: raw.seq + HEAD }))];
    const got = await Promise.all(following.map(({ events }) => events));
    expect(got.map(rawOf)).toEqual([
      all,
      all.filter(({ seq }) => seq > 4n),
      all.filter(({ seq }) => seq > HEAD),
    ]);
    // What comes from the window is one object for all of them.
    const [first, ...others] = got.map((events) => events.slice(-RAW.length));
    for (const other of others) expect(other.every((one, at) => one === first?.[at])).toBe(true);
  });
});

/** Follows until it has the last event of a session that `ROWS` were stored in twice. */
function follow(init: WatchInit): {
  readonly isLive: Promise<void>;
  readonly events: Promise<readonly SessionEvent[]>;
} {
  const isLive = Promise.withResolvers<void>();
  const run = async (): Promise<readonly SessionEvent[]> => {
    const got: SessionEvent[] = [];
    for await (const one of watch({ ...init, snapshotOnly: false, stateFrames: true })) {
      if (one.watchState === WatchState.LIVE) isLive.resolve();
      if (one.watchState === WatchState.UNSPECIFIED) got.push(one);
      if (one.watchState === WatchState.UNSPECIFIED && one.seq === 2n * HEAD) break;
    }
    return got;
  };
  return { isLive: isLive.promise, events: run() };
}

describe("the row that holds a cursor", () => {
  async function planOf(statement: SQL): Promise<string> {
    const lines = await ledger.database.run(sql`explain ${statement}`);
    return lines.map((line) => String(line["QUERY PLAN"])).join("\n");
  }

  test("is found by the primary key", async () => {
    await ledger.database.run(sql`
      insert into session_events (session_id, seq, id, event_type, payload, created_at, recorded_at)
      select 'many', n, gen_random_uuid(), 'RAW', '{}', now(), now() from generate_series(1, 20000) n`);
    await ledger.database.run(sql`analyze session_events`);
    const cursor = { stream: "events", sessionId: "many", afterSeq: 15_000n } as const;
    const plan = await planOf(holderStatement(cursor));
    expect(plan).toMatch(/Index Scan Backward using session_events_session_id_seq_pk/);
    expect(plan).not.toContain("Seq Scan");
  });
});
