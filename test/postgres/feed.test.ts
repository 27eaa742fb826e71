/**
 * Feeds over real transactions: every committed row is delivered, in the order of its session, while
 * transactions of two instances overlap and stay open, and when a reader stops and continues at any
 * place.
 */
import { type SQL, sql } from "drizzle-orm";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { systemClock } from "@session-ledger/base/clock";
import type { Budget } from "../../src/base/budget.ts";
import { Feeds, FEED_LIMITS, type FeedDelivery, type FeedRequest } from "../../src/live/feeds.ts";
import { LIVE_LIMITS } from "../../src/live/limits.ts";
import { WatchLimits } from "../../src/live/watch-limits.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { append } from "../../src/store/append.ts";
import { createDatabase, type Database } from "../../src/store/database.ts";
import {
  createFeedReader,
  type FeedPosition,
  type FeedReader,
  type FeedRow,
  feedStatement,
} from "../../src/store/feed.ts";
import { deleteSession } from "../../src/store/deletion.ts";
import { lastSeqOf, type Push } from "../../src/store/rows.ts";
import { newPush, newRow, useLedger, useSql } from "../support/ledger.ts";
import { Random, seedOfRun } from "../support/random.ts";

const BEGINNING: FeedPosition = { atMicros: 0n, sessionId: "", seq: 0n };
const LARGE_ROWS = 40_000;
const log = createLogTo({ write: () => undefined }, "silent");

const ledger = await useLedger();
const client = useSql(ledger.url, 8);
/** The pool of a second instance. */
const second = createDatabase({
  url: () => ledger.url,
  connectionsMax: 10,
  statementTimeoutMs: 5_000,
  lockTimeoutMs: 500,
});
beforeAll(() => second.start());
afterAll(() => second.stop());

interface Instance extends AsyncDisposable {
  readonly feeds: Feeds;
  /** Resolves after that number of further looks. */
  looks(count: number): Promise<void>;
}

function instance(database: Database, limits: { readonly pageRowsMax?: number } = {}): Instance {
  const reader = createFeedReader(database);
  let looked = 0;
  const counting: FeedReader = {
    ...reader,
    look: async () => {
      const look = await reader.look();
      looked += 1;
      return look;
    },
  };
  const feeds = new Feeds(
    { reader: counting, watchLimits: new WatchLimits(LIVE_LIMITS), clock: systemClock, log },
    { ...FEED_LIMITS, ...limits, pollIntervalMs: 50 },
  );
  return {
    feeds,
    async looks(count) {
      const from = looked;
      await expect.poll(() => looked - from).toBeGreaterThanOrEqual(count);
    },
    [Symbol.asyncDispose]: () => feeds.stop(),
  };
}

const caller = { name: "reader", connection: {} };

function asked(request: Partial<FeedRequest<"events">> = {}): FeedRequest<"events"> {
  return {
    stream: "events",
    from: BEGINNING,
    server: "",
    projectId: undefined,
    eventTypes: [],
    snapshotOnly: true,
    signal: new AbortController().signal,
    acquire: (limit: Budget, refusal) => limit.mustReserve(caller, refusal),
    ...request,
  };
}

/** The rows of a feed up to its end. */
async function rowsOf(
  { feeds }: Instance,
  request: Partial<FeedRequest<"events">> = {},
): Promise<readonly FeedRow<"events">[]> {
  const rows: FeedRow<"events">[] = [];
  for await (const delivery of feeds.follow(asked(request))) {
    if (delivery.kind === "rows") rows.push(...delivery.rows);
  }
  return rows;
}

const names = (rows: readonly FeedRow<"events">[]): readonly string[] =>
  rows.map(({ row }) => `${row.sessionId} ${row.seq}`);

async function store(database: Database, pushes: readonly Push[]): Promise<void> {
  for (let left = pushes; left.length > 0; ) {
    const outcomes = await append(database, left, { createMissing: true, wait: left.length === 1 });
    left = left.filter((_, at) => outcomes[at]?.kind !== "stored");
  }
}

/** The pushes are appended by the real function, in a transaction that stays open. */
async function heldOpen(
  pushes: readonly Push[],
): Promise<AsyncDisposable & { readonly commit: () => Promise<void> }> {
  const stored = Promise.withResolvers<void>();
  const over = Promise.withResolvers<void>();
  const transaction = client.begin(async (open) => {
    const database: Database = {
      ...ledger.database,
      attempt: async (statement) => {
        if (!("text" in statement)) throw new TypeError("append sends fixed statements");
        return open.unsafe(statement.text, [...statement.values]);
      },
    };
    await append(database, pushes, { createMissing: true, wait: true });
    stored.resolve();
    await over.promise;
  });
  await Promise.race([stored.promise, transaction]);
  const commit = async (): Promise<void> => {
    over.resolve();
    await transaction;
  };
  return { commit, [Symbol.asyncDispose]: commit };
}

describe("a feed of all sessions", () => {
  test("waits for an open transaction, and then has its rows before later ones", async () => {
    await using one = instance(ledger.database);
    await using open = await heldOpen([newPush("open-a"), newPush("open-b")]);
    await store(second, [newPush("late")]);
    const seen: string[] = [];
    const abort = new AbortController();
    const request = asked({ snapshotOnly: false, signal: abort.signal });
    using _ = { [Symbol.dispose]: () => abort.abort() };
    const following = (async () => {
      for await (const delivery of one.feeds.follow(request)) {
        if (delivery.kind === "rows") seen.push(...names(delivery.rows));
      }
    })();
    await one.looks(5);
    expect(seen).toEqual([]);
    await open.commit();
    await expect.poll(() => seen).toEqual(["open-a 1", "open-b 1", "late 1"]);
    abort.abort();
    await following;
  });

  test("does not wait for transactions that read, lock the table for maintenance, or write elsewhere", async () => {
    await using one = instance(ledger.database);
    await client`create table elsewhere (n integer)`;
    const over = Promise.withResolvers<void>();
    const begun = Promise.withResolvers<void>();
    const open = client.begin(async (silent) => {
      await silent`insert into elsewhere values (1)`;
      await silent`select count(*) from sessions`;
      await silent`lock table sessions in share update exclusive mode`; // As VACUUM does.
      begun.resolve();
      await over.promise;
    });
    await begun.promise;
    await store(ledger.database, [newPush("beside")]);
    expect(names(await rowsOf(one))).toContain("beside 1");
    over.resolve();
    await open;
  });

  test("delivers every row once and in order to readers that stop and continue at any place, while transactions of two instances overlap", async () => {
    await ledger.database.run(sql`truncate sessions, session_events`);
    const random = new Random(seedOfRun());
    const written = new AbortController();
    const write = async (writer: number): Promise<void> => {
      const draws = random.fork();
      const database = writer % 2 === 0 ? ledger.database : second;
      for (let turn = 0; turn < 30; turn += 1) {
        const pushes = Array.from({ length: 1 + draws.below(3) }, (_, at) => {
          const rows = Array.from({ length: 1 + draws.below(4) }, () =>
            newRow({ eventCount: 1 + draws.below(3) }),
          );
          return newPush(`mixed-${(writer + 5 * at + draws.below(5)) % 12}`, { rows });
        });
        await store(database, pushes);
      }
    };
    await using one = instance(ledger.database, { pageRowsMax: 7 });
    await using two = instance(second);
    // Open while the others go on, and long enough for a feed that ignores it to pass its rows.
    const hold = async (holder: number): Promise<void> => {
      for (let turn = 0; turn < 4; turn += 1) {
        const open = await heldOpen([newPush(`held-${holder}`)]);
        await store(second, [newPush(`beside-${holder}`)]);
        await two.looks(3);
        await open.commit();
      }
    };
    const read = async ({ feeds }: Instance): Promise<readonly FeedRow<"events">[]> => {
      const draws = random.fork();
      const rows: FeedRow<"events">[] = [];
      let [from, server] = [BEGINNING, ""];
      const took = (delivery: FeedDelivery<"events">, most: number): void => {
        ({ server } = delivery);
        if (delivery.kind === "state") {
          from = delivery.position;
          return;
        }
        for (const feedRow of delivery.rows.slice(0, most)) {
          rows.push(feedRow);
          const { sessionId, seq } = feedRow.row;
          from = { atMicros: feedRow.recordedAtMicros, sessionId, seq };
        }
      };
      for (let isLast = false; !isLast; ) {
        isLast = written.signal.aborted;
        const abort = new AbortController();
        let left = isLast ? Number.POSITIVE_INFINITY : 1 + draws.below(25);
        const request = asked({ from, server, snapshotOnly: isLast, signal: abort.signal });
        for await (const delivery of feeds.follow(request)) {
          took(delivery, left);
          left -= delivery.kind === "rows" ? delivery.rows.length : 1;
          if (left <= 0) break;
        }
      }
      return rows;
    };
    const reading = [one, two, one].map(read);
    await Promise.all([...[0, 1, 2, 3, 4, 5].map(write), ...[0, 1].map(hold)]);
    written.abort();
    const stored = await ledger.database.run(sql`
      select session_id || ' ' || seq as name from session_events order by 1`);
    const all = stored.map(({ name }) => String(name));
    expect(all.length).toBeGreaterThan(500);
    for (const rows of await Promise.all(reading)) {
      expect(names(rows).toSorted()).toEqual(all.toSorted());
      const ends = new Map<string, bigint>();
      for (const { row } of rows) {
        expect([row.sessionId, row.seq]).toEqual([
          row.sessionId,
          (ends.get(row.sessionId) ?? 0n) + 1n,
        ]);
        ends.set(row.sessionId, lastSeqOf(row));
      }
    }
  });

  test("has only rows of the project and the types, and none of a deleted session", async () => {
    await ledger.database.run(sql`truncate sessions, session_events`);
    await using one = instance(ledger.database, { pageRowsMax: 2 });
    const pushes = ["in", "out", "gone"].flatMap((id) => [
      newPush(id),
      newPush(id, { rows: [newRow({ eventType: "CUSTOM" })] }),
    ]);
    for (const push of pushes) await store(ledger.database, [push]);
    await ledger.database.run(sql`update sessions set project_id = 'p' where id = 'in'`);
    await deleteSession(ledger.database, "gone");
    expect(names(await rowsOf(one))).toEqual(["in 1", "in 2", "out 1", "out 2"]);
    const ofProject = await rowsOf(one, { projectId: "p" });
    expect(ofProject.map(({ projectId }) => projectId)).toEqual(["p", "p"]);
    expect(names(await rowsOf(one, { eventTypes: ["CUSTOM"] }))).toEqual(["in 2", "out 2"]);
    expect(names(await rowsOf(one, { projectId: "p", eventTypes: ["RAW"] }))).toEqual(["in 1"]);
  });

  test("ends a page before the bytes are too many, and passes a row that is larger than a page", async () => {
    await ledger.database.run(sql`truncate sessions, session_events`);
    const reader = createFeedReader(ledger.database);
    const large = newRow({ payload: JSON.stringify({ type: "RAW", event: "x".repeat(5_000) }) });
    const rows = [newRow(), large, newRow()];
    await store(ledger.database, [newPush("bytes", { rows })]);
    const sizes: number[] = [];
    let after = BEGINNING;
    const beforeMicros = BigInt(Date.now()) * 1_000n + 1_000_000n;
    for (let page = 0; page < 3; page += 1) {
      const bounds = { after, beforeMicros, rowsMax: 10, bytesMax: 2_000 };
      const filter = { projectId: undefined, eventTypes: [] };
      const read = await reader.page({ stream: "events", ...filter, ...bounds });
      sizes.push(read.rows.length);
      after = read.position;
    }
    expect(sizes).toEqual([1, 1, 1]);
    expect(after.atMicros).toBe(beforeMicros);
  });

  test("goes back by a minute from a cursor of another server, and from one that is in the future", async () => {
    await ledger.database.run(sql`truncate sessions, session_events`);
    await using one = instance(ledger.database);
    await store(ledger.database, [newPush("old"), newPush("young")]);
    await ledger.database.run(sql`
      update session_events set recorded_at = recorded_at - interval '2 minutes' where session_id = 'old'`);
    const end = { atMicros: BigInt(Date.now()) * 1_000n, sessionId: "", seq: 0n };
    const { server } = await createFeedReader(ledger.database).look();
    expect(names(await rowsOf(one, { from: end, server }))).toEqual([]);
    expect(names(await rowsOf(one, { from: end, server: "1.5" }))).toEqual(["young 1"]);
    const future = { ...end, atMicros: end.atMicros + 3_600_000_000n };
    expect(names(await rowsOf(one, { from: future, server }))).toEqual(["young 1"]);
  });
});

test("a page walks the index of the times, with and without a filter, and does not read the sessions", async () => {
  await ledger.database.run(sql`truncate sessions, session_events`);
  await ledger.database.run(sql`
    insert into sessions (id, created_at, updated_at)
    select 's' || n, now(), now() from generate_series(0, 4999) n`);
  const insert = async (from: number, to: number): Promise<void> => {
    await ledger.database.run(sql`
      insert into session_events (session_id, seq, id, event_type, payload, created_at, recorded_at)
      select 's' || n % 5000, n, gen_random_uuid(), 'RAW', '{"n":' || n || '}', now(),
        timestamptz '2026-01-01' + n / 20 * interval '1 second'
      from generate_series(${from}::int, ${to}::int) n`);
  };
  await insert(1, LARGE_ROWS / 2);
  await ledger.database.run(sql`analyze session_events, sessions`);
  const at = (seconds: number): bigint => BigInt(1_767_225_600 + seconds) * 1_000_000n;
  const planOf = async (statement: SQL): Promise<string> => {
    const lines = await ledger.database.run(sql`explain ${statement}`, { prepare: false });
    return lines.map((line) => String(line["QUERY PLAN"])).join("\n");
  };
  const page = {
    stream: "events" as const,
    after: { atMicros: at(500), sessionId: "s5", seq: 20n },
    beforeMicros: at(1_200),
    rowsMax: 1_000,
    bytesMax: 1_048_576,
    projectId: undefined,
    eventTypes: [],
  };
  const requests = [
    page,
    { ...page, projectId: "p", eventTypes: ["CUSTOM"] },
    { ...page, after: { ...page.after, atMicros: at(1_199) } },
    { ...page, after: BEGINNING },
  ];
  // With new statistics, and with old ones that do not know the newest half.
  for (const added of [0, LARGE_ROWS / 2]) {
    if (added > 0) await insert(LARGE_ROWS / 2 + 1, LARGE_ROWS);
    for (const request of requests) {
      const plan = await planOf(feedStatement(request));
      expect(plan).toContain("using session_events_recorded");
      expect(plan).toMatch(/(?:using|on) sessions_pkey/);
      expect(plan).not.toContain("Seq Scan");
    }
  }
});
