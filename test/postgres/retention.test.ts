/** The rows that retention erases and keeps, and its cost for pushes beside it. */
import { sql } from "drizzle-orm";
import * as fc from "fast-check";
import postgres from "postgres";
import { describe, expect, test } from "vitest";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import { append } from "../../src/store/append.ts";
import type { Database } from "../../src/store/database.ts";
import { candidateStatement, unlookedStatement } from "../../src/maintenance/ended-runs.ts";
import {
  Retention,
  type RetentionOptions,
  retentionPass,
  type RetentionSummary,
} from "../../src/maintenance/retention.ts";
import {
  type Aged,
  createLedger,
  custom,
  finished,
  holdingOf,
  holdSession,
  merged,
  message,
  newPush,
  newRow,
  started,
  storeAged,
  useLedger,
} from "../support/ledger.ts";
import { properties } from "../support/random.ts";
import { describeUnitContract } from "../support/unit-contract.ts";

const DAY_MS = 86_400_000;
const log = createLogTo({ write: () => undefined }, "silent");

const ledger = await useLedger();

type Passing = Partial<RetentionOptions> &
  Partial<Parameters<typeof retentionPass>[0]> & { readonly days?: number };

async function pass({ days = 30, ...more }: Passing = {}): Promise<RetentionSummary> {
  const { sessionId, dryRun = false, signal = new AbortController().signal, ...parts } = more;
  const summary = await retentionPass(
    { database: ledger.database, ...parts },
    { afterMs: days * DAY_MS, sessionId, dryRun, signal },
  );
  if (summary === undefined) throw new Error("there is no such session");
  return summary;
}

let sessions = 0;
interface Rows {
  readonly events?: readonly Aged[];
  readonly messages?: readonly Aged[];
}

async function session({ events = [], messages = [] }: Rows): Promise<string> {
  sessions += 1;
  const sessionId = `s${sessions}`;
  await storeAged(ledger.database, { sessionId, stream: "events" }, events);
  await storeAged(ledger.database, { sessionId, stream: "messages" }, messages);
  return sessionId;
}

const holding = (sessionId: string) => holdingOf(ledger.database, sessionId);
const EXACT = { rowsOff: 0, bytesOff: 0 };

interface Claimed {
  readonly hasClaimed: boolean;
  readonly turnSeq: number;
  readonly openTurnSeq?: number | null;
}

describe("retention erases", () => {
  test("whole runs that ended long ago with the rows before them, and keeps the numbers", async () => {
    const sessionId = await session({
      events: [
        custom("before", 60),
        started("a", 50),
        merged(5, 50), // 3 to 7
        finished("a", 49),
        custom("between", 48),
        started("b", 45),
        finished("b", 40, "RUN_ERROR"), // 11
        custom("after", 39), // 12
        started("c", 35), // 13
        finished("c", 20),
      ],
      messages: [
        message("to a", 51),
        message("of b", 44),
        message("to c", 36),
        message("of c", 21),
      ],
    });
    const summary = await pass({ sessionId });
    expect(await holding(sessionId)).toEqual({
      events: [12n, 13n, 14n],
      messages: [3n, 4n],
      ...EXACT,
    });
    expect(summary).toMatchObject({ sessionsErased: 1, sessionsBusy: 0, messages: 2, events: 7 });
    const [row] = await ledger.database.run(
      sql`select message_seq, event_seq, deleted_at from sessions where id = ${sessionId}`,
    );
    expect(row).toEqual({ message_seq: "4", event_seq: "14", deleted_at: null });
    expect(await pass({ sessionId })).toMatchObject({ sessionsErased: 0, events: 0 });
  });

  test.each([true, false])(
    "no message that waits for a turn, and none of the open run, once a session was claimed (named: %s)",
    async (isNamed) => {
      await pass(); // What the tests before left.
      const rows = {
        events: [started("a", 60), finished("a", 50)],
        messages: [1, 2, 3, 4].map((at) => message(`m${at}`, 60)),
      };
      const erasedOf = async ({ hasClaimed, turnSeq, openTurnSeq = null }: Claimed) => {
        const sessionId = await session(rows);
        await ledger.database.run(sql`
        update sessions set has_claimed = ${hasClaimed}, turn_seq = ${turnSeq},
          open_turn_seq = ${openTurnSeq}::bigint, pending_count = 4 - ${turnSeq}::bigint
        where id = ${sessionId}`);
        const { messages: erased, events } = await pass({ sessionId, dryRun: true });
        // Without a name the session is one of several of a statement.
        expect(await pass(isNamed ? { sessionId } : {})).toMatchObject({
          messages: erased,
          events,
        });
        const [row] = await ledger.database.run(sql`
        select pending_count, waiting_since is not null as waits from sessions where id = ${sessionId}`);
        const { messages } = await holding(sessionId);
        return [messages, Number(row?.["pending_count"]), row?.["waits"]];
      };
      expect(await erasedOf({ hasClaimed: true, turnSeq: 2 })).toEqual([[3n, 4n], 2, true]);
      const open = { hasClaimed: true, turnSeq: 3, openTurnSeq: 1 };
      expect(await erasedOf(open)).toEqual([[2n, 3n, 4n], 1, true]);
      expect(await erasedOf({ hasClaimed: false, turnSeq: 2 })).toEqual([[], 0, false]);
    },
  );

  test("nothing in or after an open run, however old it is", async () => {
    const open = await session({
      events: [started("a", 90), custom(1, 80)],
      messages: [message("m", 99)],
    });
    const behind = await session({
      events: [started("x", 99), finished("x", 98), started("a", 90), custom(1, 80)],
    });
    await pass();
    expect(await holding(open)).toEqual({ events: [1n, 2n], messages: [1n], ...EXACT });
    expect(await holding(behind)).toMatchObject({ events: [3n, 4n], ...EXACT });
  });

  test.each([2, 3, 20_000])(
    "a run that was replaced long ago, %i rows looked at",
    async (lookedAtRowsMax) => {
      const sessionId = await session({
        events: [started("a", 90), custom(1, 80), started("b", 40), started("c", 20)],
        messages: [message("to a", 91), message("to b", 41), message("to c", 21)],
      });
      await pass({ sessionId, lookedAtRowsMax });
      expect(await holding(sessionId)).toEqual({ events: [3n, 4n], messages: [2n, 3n], ...EXACT });
    },
  );

  test("no part of a run id whose second run is still open", async () => {
    const sessionId = await session({
      events: [started("a", 90), finished("a", 89), started("a", 88), custom(1, 87)],
    });
    expect(await pass({ sessionId })).toMatchObject({ events: 0 });
    await pass();
    expect((await holding(sessionId)).events).toHaveLength(4);
    await storeAged(ledger.database, { sessionId, stream: "events" }, [finished("a", 60)]);
    expect(await pass({ sessionId })).toMatchObject({ events: 5 });
  });

  const drawnRow = fc.oneof(
    { weight: 3, arbitrary: fc.constantFrom("started a", "started b", "started c") },
    { weight: 3, arbitrary: fc.constantFrom("finished", "failed") },
    { weight: 4, arbitrary: fc.constantFrom("custom", "merged", "malformed end") },
  );
  const drawn = fc.array(fc.record({ what: drawnRow, steps: fc.integer({ min: 0, max: 12 }) }), {
    minLength: 1,
    maxLength: 25,
  });

  /** In the words of the decision, over the list of rows and not by a statement. */
  function keptOf(rows: readonly Aged[], days: number): readonly number[] {
    let runId: string | undefined;
    let gone = 0;
    for (const [at, { row, days: age }] of rows.entries()) {
      if (age <= days) break;
      const begins = row.eventType === "RUN_STARTED" && row.conformant ? row.runId : undefined;
      if (begins !== undefined && runId !== undefined && begins !== runId) gone = at;
      if (begins !== undefined) runId = begins;
      const ends = /^RUN_(?:FINISHED|ERROR)$/.test(row.eventType) && row.conformant;
      if (ends && runId !== undefined) {
        gone = at + 1;
        runId = undefined;
      }
    }
    return rows.map((_, at) => at).slice(gone);
  }

  test("random rows as the model does, however few a statement examines", async () => {
    await pass(); // What the tests before left.
    const lookedAt = fc.integer({ min: 2, max: 9 });
    const rowOf = (what: string, days: number): Aged => {
      if (what.startsWith("started")) return started(what.slice(8), days);
      if (what === "finished") return finished("any", days);
      if (what === "failed") return finished("any", days, "RUN_ERROR");
      if (what === "merged") return merged(3, days);
      const malformed = { row: newRow({ eventType: "RUN_ERROR", conformant: false }), days };
      return what === "custom" ? custom(1, days) : malformed;
    };
    await fc.assert(
      fc.asyncProperty(drawn, lookedAt, fc.boolean(), async (list, lookedAtRowsMax, isNamed) => {
        let days = 60.5;
        const events = list.map(({ what, steps }) => {
          days = Math.max(0.5, days - steps);
          return rowOf(what, days);
        });
        const sessionId = await session({ events });
        const before = await holding(sessionId);
        // The open run may hold back an ended one of the same id: only later is it the rule's turn.
        await ledger.database.run(
          sql`update sessions set open_run_id = null where id = ${sessionId}`,
        );
        const dry = await pass({ sessionId, lookedAtRowsMax, dryRun: true });
        expect(await holding(sessionId)).toEqual(before);
        // Without a name the session is one of several of a statement.
        const named = isNamed ? { sessionId } : {};
        const {
          messages,
          events: erased,
          payloadBytes,
        } = await pass({ lookedAtRowsMax, ...named });
        expect({ ...dry, messages, events: erased, payloadBytes }).toEqual(dry);
        const kept = keptOf(events, 30).map((at) => before.events[at]);
        expect(await holding(sessionId)).toEqual({ messages: [], events: kept, ...EXACT });
      }),
      properties({ runs: 60 }),
    );
  });
});

describe("a pass of retention", () => {
  const large = (): readonly Aged[] => [
    started("a", 90),
    ...Array.from({ length: 1_300 }, (_, at) => custom(at, 85)),
    finished("a", 80),
    started("b", 70),
  ];

  test("that is interrupted leaves a part that the next one continues", async () => {
    const sessionId = await session({ events: large(), messages: [message("m", 99)] });
    const controller = new AbortController();
    const cut = await pass({
      sessionId,
      signal: controller.signal,
      counted: (stream) => {
        if (stream === "events") controller.abort();
      },
    });
    expect(cut).toMatchObject({ messages: 1, events: 500 });
    const half = await holding(sessionId);
    expect(half).toMatchObject({ messages: [], ...EXACT });
    expect(half.events[0]).toBe(501n);
    expect(await pass({ sessionId })).toMatchObject({ messages: 0, events: 802 });
    expect(await holding(sessionId)).toEqual({ messages: [], events: [1_303n], ...EXACT });
  });

  test("erases all that is old of large sessions beside small ones", async () => {
    const small = { events: [started("a", 90), finished("a", 80)] };
    const messages = Array.from({ length: 600 }, (_, at) => message(`m${at}`, 85));
    const ids = [
      await session(small),
      await session({ events: large() }),
      await session({ ...small, messages }),
    ];
    await pass();
    const left = await Promise.all(ids.map(holding));
    expect(left.map(({ events }) => events)).toEqual([[], [1_303n], []]);
    expect(left.map((one) => one.messages)).toEqual([[], [], []]);
  });

  test("limits the bytes of a batch, and still erases one larger row", async () => {
    const big = (at: number) => custom("x".repeat(1_500_000) + String(at), 85);
    const events = [started("a", 90), big(1), big(2), big(3), big(4), finished("a", 80)];
    const sessionId = await session({ events: [...events, started("b", 1)] });
    const batches: bigint[] = [];
    await pass({ sessionId, counted: (_, rows) => batches.push(rows) });
    expect(batches).toEqual([3n, 3n]);
    expect(await holding(sessionId)).toMatchObject({ events: [7n], ...EXACT });
  });

  test("leaves a locked session to the next pass and does not wait", async () => {
    const held = await session({ events: [started("a", 90), finished("a", 80)] });
    const free = await session({ events: [started("a", 90), finished("a", 80)] });
    const client = postgres(ledger.url, { max: 1 });
    try {
      await using _ = await holdSession(client, held);
      const summary = await pass();
      expect(summary.sessionsBusy).toBe(1);
      expect((await holding(held)).events).toEqual([1n, 2n]);
      expect((await holding(free)).events).toEqual([]);
    } finally {
      await client.end();
    }
    await pass();
    expect((await holding(held)).events).toEqual([]);
  });

  test("during other passes and pushes erases each row once, with exact counts", async () => {
    const ids = await Promise.all([1, 2, 3].map(() => session({ events: large() })));
    const pushing = new AbortController();
    const pushes = ids.map(async (sessionId) => {
      let stored = 0;
      while (!pushing.signal.aborted) {
        const push = newPush(sessionId, { rows: [newRow()] });
        const options = { createMissing: false, wait: true };
        const [outcome] = await append(ledger.database, [push], options);
        if (outcome?.kind === "stored") stored += 1;
      }
      return stored;
    });
    const counted = (await Promise.all([pass(), pass(), pass()])).map(({ events }) => events);
    pushing.abort();
    const stored = await Promise.all(pushes);
    expect(counted.reduce((sum, one) => sum + one, 0)).toBe(3 * 1_302);
    for (const [at, sessionId] of ids.entries()) {
      const { events, ...rest } = await holding(sessionId);
      expect(rest).toEqual({ messages: [], ...EXACT });
      expect(events).toHaveLength(1 + (stored[at] ?? 0));
      expect(events[0]).toBe(1_303n);
    }
  });

  test("frees the key of an erased row", async () => {
    const key = { key: "k", digest: new Uint8Array([1]) };
    const sessionId = await session({ events: [started("a", 90)] });
    const push = newPush(sessionId, { ...key, rows: [newRow()] });
    const options = { createMissing: false, wait: true };
    expect(await append(ledger.database, [push], options)).toMatchObject([{ kind: "stored" }]);
    expect(await append(ledger.database, [push], options)).toMatchObject([
      { kind: "deduplicated" },
    ]);
    await storeAged(ledger.database, { sessionId, stream: "events" }, [finished("a", 80)]);
    await ledger.database.run(sql`
      update session_events set recorded_at = now() - interval '85 days'
      where session_id = ${sessionId} and seq = 2`);
    await pass({ sessionId });
    const again = newPush(sessionId, { ...key, digest: new Uint8Array([2]), rows: [newRow()] });
    expect(await append(ledger.database, [again], options)).toEqual([{ kind: "stored" }]);
    expect(again.rows).toMatchObject([{ seq: 4n }]);
  });

  test("looks at a long run that ended recently only when it is old", async () => {
    const sessionId = await session({
      events: [started("a", 90), custom(1, 80), finished("a", 10)],
    });
    await pass();
    const [looked] = await ledger.database.run(sql`
      select extract(epoch from now() - retained_until)::float8 as seconds from sessions where id = ${sessionId}`);
    const days = Number(looked?.["seconds"]) / 86_400;
    expect(days).toBeGreaterThan(9.9);
    expect(days).toBeLessThan(10.1);
    // Aged by the test: only a pass that reads the rows sees it.
    await ledger.database.run(sql`
      update session_events set recorded_at = now() - interval '70 days' where session_id = ${sessionId} and seq = 3`);
    await pass();
    expect((await holding(sessionId)).events).toHaveLength(3);
    expect(await pass({ sessionId })).toMatchObject({ events: 3 });
  });

  test("walks the primary key, and the index of sessions that may have old rows", async () => {
    // In a table of its own: the plan depends on the rows, and the tests beside it store more of them
    // on a slow machine.
    await using own = await createLedger();
    const planOf = async (statement: Parameters<typeof sql>[1]): Promise<string> => {
      const lines = await own.database.run(sql`explain ${statement}`);
      return lines.map((line) => String(line["QUERY PLAN"])).join("\n");
    };
    await own.database.run(sql`
      insert into session_events (session_id, seq, id, event_type, payload, created_at, recorded_at)
      select 's' || (100 + n / 1000), n, gen_random_uuid(), 'CUSTOM', '{}', now(), now() from generate_series(1, 20000) n`);
    await own.database.run(sql`
      insert into sessions (id, created_at, updated_at) select 's' || n, now(), now() from generate_series(1, 5000) n`);
    await own.database.run(sql`analyze session_events, sessions`);
    const sessionId = "s101";
    const plan = await planOf(candidateStatement(sessionId));
    expect(plan).toMatch(/using session_events_session_id_seq_pk/);
    expect(plan).not.toMatch(/Seq Scan on session_events/);
    for (const after of [undefined, { id: sessionId, micros: 1n }]) {
      const page = { after, cutoffMicros: 0n, sessionsMax: 200 };
      expect(await planOf(unlookedStatement(page))).toMatch(/using sessions_unlooked/);
    }
  });
});

describe("the unit of retention", () => {
  const create = (erased: (sessionId: string) => void = () => undefined) => {
    const metrics = createMetrics();
    const times = { afterMs: 30 * DAY_MS, intervalMs: 60_000 };
    const running = new Set<Promise<unknown>>();
    const database = watched(ledger.database, running);
    return { metrics, running, unit: new Retention({ database, log, metrics, erased }, times) };
  };
  const runningOf = new WeakMap<object, ReadonlySet<unknown>>();

  describeUnitContract("retention", {
    create: () => {
      const { unit, running } = create();
      runningOf.set(unit, running);
      return unit;
    },
    isOfUse: () => true,
    remains: (unit) => [...(runningOf.get(unit) ?? [])].map(() => "a statement"),
  });

  test("starts a pass at its start, counts the rows, and reports the session", async () => {
    await pass(); // What the tests before left.
    const sessionId = await session({
      events: [started("a", 90), finished("a", 80)],
      messages: [message("m", 99)],
    });
    const told = Promise.withResolvers<string>();
    const { unit, metrics } = create((id) => told.resolve(id));
    await unit.start();
    expect(await told.promise).toBe(sessionId);
    await unit.stop();
    const text = await metrics.text();
    expect(text).toContain('session_ledger_rows_erased_total{stream="events",by="retention"} 2');
    expect(text).toContain('session_ledger_rows_erased_total{stream="messages",by="retention"} 1');
  });

  test("counts a failed pass and continues", async () => {
    const metrics = createMetrics();
    const failed = Promise.withResolvers<void>();
    const database = {
      ...ledger.database,
      run: () => {
        failed.resolve();
        return Promise.reject(new Error("down"));
      },
    };
    const times = { afterMs: DAY_MS, intervalMs: 60_000 };
    const unit = new Retention({ database, log, metrics, erased: () => undefined }, times);
    await unit.start();
    await failed.promise;
    await expect.poll(() => metrics.text()).toContain("session_ledger_retention_failures_total 1");
    await unit.stop();
  });
});

/** The database, and what of it is under way. */
function watched(database: Database, running: Set<Promise<unknown>>): Database {
  const under = <T>(asked: Promise<T>): Promise<T> => {
    running.add(asked);
    const over = (): void => {
      running.delete(asked);
    };
    asked.then(over, over);
    return asked;
  };
  return {
    ...database,
    run: (statement) => under(database.run(statement)),
    query: (build) => under(database.query(build)),
  };
}
