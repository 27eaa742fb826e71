/** Watches of sessions over a real database: what a slow reader gets, open transactions, and costs. */
import { sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { systemClock } from "@session-ledger/base/clock";
import type { Budget } from "../../src/base/budget.ts";
import { Feeds, FEED_LIMITS } from "../../src/live/feeds.ts";
import { LIVE_LIMITS } from "../../src/live/limits.ts";
import { WatchLimits } from "../../src/live/watch-limits.ts";
import type { SessionDelivery, SessionWatchRequest } from "../../src/live/session-watch.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { eraseSession } from "../../src/maintenance/erase.ts";
import { createFeedReader } from "../../src/store/feed.ts";
import { changesStatement } from "../../src/store/session-changes.ts";
import { deleteSession, holdSession } from "../../src/store/deletion.ts";
import { createSession, type NewSession, updateSession } from "../../src/store/sessions.ts";
import { useLedger, useSql } from "../support/ledger.ts";
import { Random, seedOfRun } from "../support/random.ts";
import { pace } from "../support/eventually.ts";

const log = createLogTo({ write: () => undefined }, "silent");
const EVERYTHING = { projectId: undefined, sessionId: undefined };
const WRITERS = 6;
const STEPS = 60;

const ledger = await useLedger({ connectionsMax: 16 });
const client = useSql(ledger.url, 8);

const caller = { name: "reader", connection: {} };

class Watch implements AsyncDisposable {
  /** `made-1 created`, in the order of the deliveries. */
  readonly told: string[] = [];
  readonly names = new Map<string, string>();
  deliveries = 0;
  readonly #feeds;
  readonly #deliveries: AsyncGenerator<SessionDelivery, void>;

  constructor(request: Partial<SessionWatchRequest> = {}) {
    const watchLimits = new WatchLimits(LIVE_LIMITS);
    const reader = createFeedReader(ledger.database);
    this.#feeds = new Feeds(
      { reader, watchLimits, clock: systemClock, log },
      { ...FEED_LIMITS, pollIntervalMs: 50 },
    );
    this.#deliveries = this.#feeds.watchSessions({
      scope: EVERYTHING,
      filter: {},
      signal: new AbortController().signal,
      acquire: (limit: Budget, refusal) => limit.mustReserve(caller, refusal),
      ...request,
    });
  }

  static async live(request?: Partial<SessionWatchRequest>): Promise<Watch> {
    const watch = new Watch(request);
    for (let isLive = false; !isLive; ) {
      const { value } = await watch.#deliveries.next();
      isLive = value?.kind === "state" && value.state === "live";
    }
    return watch;
  }

  async pull(): Promise<void> {
    const { value } = await this.#deliveries.next();
    this.deliveries += 1;
    if (value?.kind !== "changes") return;
    for (const { record, change } of value.changes) {
      this.told.push(`${record.id} ${change}`);
      this.names.set(record.id, change === "deleted" ? "" : record.name);
    }
  }

  async upTo(last: string): Promise<readonly string[]> {
    while (this.told.at(-1) !== last) await this.pull();
    return this.told;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#feeds.stop();
  }
}

let made = 0;
function newSession(fields: Partial<NewSession> = {}): NewSession {
  made += 1;
  const none = { prompt: undefined, llmModel: undefined, parentSessionId: undefined };
  const rest = { labels: undefined, annotations: undefined, createdByUserId: undefined };
  return { id: `made-${made}`, name: "new", projectId: undefined, ...none, ...rest, ...fields };
}

async function make(fields: Partial<NewSession> = {}): Promise<string> {
  return (await createSession(ledger.database, newSession(fields))).id;
}

describe("a watch of sessions", () => {
  test("gives a reader that stopped one change of each session, in its newest state", async () => {
    await using watch = await Watch.live();
    const id = await make();
    await watch.upTo(`${id} created`);
    const other = await make();
    for (let n = 0; n < 100; n += 1) await updateSession(ledger.database, id, { name: `n${n}` });
    await watch.upTo(`${id} updated`);
    expect(watch.told.slice(-2)).toEqual([`${other} created`, `${id} updated`]);
    expect(watch.names.get(id)).toBe("n99");
  });

  test.each([
    ["the project of its caller", { scope: { projectId: "p1", sessionId: undefined } }, false],
    ["the project that it asked for", { filter: { projectId: "p1" } }, false],
    ["labels", { filter: { labels: { team: "blue" } } }, true],
  ])(
    "regression: an erasure was not told to a watch that has only %s",
    async (_name, request, isToldOfForeign) => {
      await using watch = await Watch.live(request);
      const id = await make({ projectId: "p1", labels: '{"team":"blue"}' });
      await watch.upTo(`${id} created`);
      const foreign = await make({ projectId: "p2", labels: '{"team":"red"}' });
      // Between two looks: the watch never sees the session in between.
      const { signal } = new AbortController();
      const call = { signal, marked: () => undefined, counted: () => undefined };
      await eraseSession(ledger.database, foreign, call);
      await eraseSession(ledger.database, id, call);
      const last = await make({ projectId: "p1", labels: '{"team":"blue"}' });
      const told = await watch.upTo(`${last} created`);
      expect(told).toContain(`${id} deleted`);
      expect(told.includes(`${foreign} deleted`)).toBe(isToldOfForeign);
    },
  );

  test("gives large sessions in pages, each once and each as made", async () => {
    await using watch = await Watch.live();
    const ids: string[] = [];
    for (let n = 0; n < 12; n += 1) ids.push(await make({ prompt: "p".repeat(300_000) }));
    const { deliveries } = watch;
    const told = await watch.upTo(`${ids.at(-1)} created`);
    expect(told).toEqual(ids.map((id) => `${id} created`));
    expect(watch.deliveries - deliveries).toBeGreaterThanOrEqual(4);
  });

  test("never gets a change with a time from before its transaction held the table", async () => {
    const { database } = ledger;
    const id = await make();
    for (const change of [
      () => make(),
      () => updateSession(database, id, { name: "late" }),
      () => holdSession(database, id, null),
      () => deleteSession(database, id),
    ]) {
      const locked = Promise.withResolvers<void>();
      const over = Promise.withResolvers<void>();
      const holder = client.begin(async (open) => {
        await open`lock table sessions in access exclusive mode`;
        locked.resolve();
        await over.promise;
        return open<{ at: string }[]>`select clock_timestamp()::text as at`;
      });
      await locked.promise;
      const changed = change();
      await expect
        .poll(
          () =>
            client`select 1 from pg_locks where relation = 'sessions'::regclass and not granted`,
        )
        .toHaveLength(1);
      over.resolve();
      const [before] = await holder;
      await changed;
      const [newest] = await client`
        select max(changed_at) > ${before?.at ?? ""}::timestamptz as "isLater" from sessions`;
      expect(newest?.["isLater"]).toBe(true);
    }
  });

  test("does not wait for an open transaction, and has its change after the commit", async () => {
    await using watch = await Watch.live();
    const stored = Promise.withResolvers<void>();
    const over = Promise.withResolvers<void>();
    const transaction = client.begin(async (open) => {
      // One time, as the service takes it: now() is that of the BEGIN, which a look may have passed.
      await open`
        insert into sessions (id, created_at, updated_at, changed_at)
        select 'open', at, at, at from (select clock_timestamp() as at) made`;
      stored.resolve();
      await over.promise;
    });
    await stored.promise;
    const ids = [await make(), await make()];
    expect(await watch.upTo(`${ids[1]} created`)).toEqual(ids.map((id) => `${id} created`));
    over.resolve();
    await transaction;
    const last = await make();
    await watch.upTo(`${last} created`);
    expect(watch.told.toSorted()).toEqual(
      [...ids.map((id) => `${id} created`), "open created", `${last} created`].toSorted(),
    );
  });

  test("ends in the state of the database, and tells each session once as made, whatever overlaps", async () => {
    const random = new Random(seedOfRun());
    const watches = [await Watch.live(), await Watch.live(), await Watch.live()];
    const ids: string[] = [];
    const step = async (): Promise<void> => {
      const id = ids[random.below(ids.length)] ?? (await make());
      const name = `n${random.below(1_000_000)}`;
      const kind = random.below(6);
      if (kind === 0) ids.push(await make({ name }));
      else if (kind === 1) await deleteSession(ledger.database, id);
      else if (kind < 4) await updateSession(ledger.database, id, { name });
      else {
        // A transaction that takes its time early and commits late.
        const holdMs = random.below(40);
        await client.begin(async (open) => {
          await open`update sessions set name = ${name}, changed_at = clock_timestamp()
            where id = ${id} and deleted_at is null`;
          await pace(holdMs);
        });
      }
    };
    const writing = Array.from({ length: WRITERS }, async () => {
      for (let n = 0; n < STEPS; n += 1) await step();
    });
    const last = `last-${made}`;
    const reading = watches.map(async (watch, reader) => {
      for (let pulls = 0; !watch.names.has(last); pulls += 1) {
        await watch.pull();
        if (reader > 0 && pulls % 3 === 0) await pace(random.below(60 * reader));
      }
    });
    await Promise.all(writing);
    await createSession(ledger.database, newSession({ id: last }));
    await Promise.all(reading);
    const rows = await client<{ id: string; name: string }[]>`
      select id, case when deleted_at is null then name else '' end as name from sessions`;
    for (const watch of watches) {
      for (const { id, name } of rows.filter((row) => ids.includes(row.id))) {
        expect(watch.names.get(id)).toBe(name);
        const own = watch.told.filter((told) => told.startsWith(`${id} `));
        // A session that was deleted before the reader came was never told as made.
        expect(own.indexOf(`${id} created`)).toBeLessThanOrEqual(0);
        expect(own.filter((told) => told.endsWith("created")).length).toBe(
          own[0] === `${id} deleted` ? 0 : 1,
        );
      }
      await watch[Symbol.asyncDispose]();
    }
  });
});

test("a page of changes walks the index of their times, for any filter", async () => {
  await ledger.database.run(sql`
    insert into sessions (id, created_at, updated_at, changed_at)
    select 'old-' || n, now(), now(), now() - n * interval '1 s' from generate_series(1, 20000) n`);
  await ledger.database.run(sql`vacuum analyze sessions`, { prepare: false });
  const after = { atMicros: BigInt(Date.now() - 60_000) * 1_000n, sessionId: "" };
  const filters = [
    {},
    { waiting: true },
    { running: true },
    { labels: { a: "b" }, projectId: "p" },
  ];
  for (const filter of filters) {
    for (const scope of [EVERYTHING, { projectId: "p", sessionId: undefined }]) {
      const statement = changesStatement({ scope, filter, after });
      const lines = await ledger.database.run(sql`explain ${statement}`, { prepare: false });
      const plan = lines.map((line) => String(line["QUERY PLAN"])).join("\n");
      expect(plan).toContain("using sessions_changed");
      expect(plan).not.toContain("Seq Scan");
    }
  }
});
