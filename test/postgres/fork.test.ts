/** Forks by the store: cuts, limits, turns, other transactions beside the copy. */
import postgres from "postgres";
import { describe, expect, test } from "vitest";
import { encodeFragments } from "@session-ledger/compressor/fragments";
import { eraseSession } from "../../src/maintenance/erase.ts";
import { retentionPass } from "../../src/maintenance/retention.ts";
import { verify } from "../../src/maintenance/verify.ts";
import { append } from "../../src/store/append.ts";
import { sql } from "../../src/store/database.ts";
import { forkSession, forksOf, type Forked, type ForkRequest } from "../../src/store/fork.ts";
import { createTurnStore } from "../../src/store/turns.ts";
import { deleteSession } from "../../src/store/deletion.ts";
import { listSessions } from "../../src/store/session-list.ts";
import { getSession } from "../../src/store/sessions.ts";
import { eventually } from "../support/eventually.ts";
import { createLedger, newPush, newRow, useLedger, useSql } from "../support/ledger.ts";
import { mergeFragments } from "../support/merging.ts";
import { fragments } from "../support/push-stream.ts";
import { event, linesFor, push, run, said, spoken, textIndex } from "../support/texts.ts";

const ledger = await useLedger();
const { database } = ledger;
const beside = useSql(ledger.url, 2);

let forks = 0;

function fork(sessionId: string, request: Partial<ForkRequest>, on = database): Promise<Forked> {
  return forkSession(on, {
    sessionId,
    forkId: `fork-${(forks += 1)}`,
    atSeq: undefined,
    atMessageSeq: undefined,
    createdByUserId: undefined,
    rowsMax: 1_000,
    bytesMax: 1_000_000,
    ...request,
  });
}

async function forked(sessionId: string, request: Partial<ForkRequest>): Promise<string> {
  const answer = await fork(sessionId, request);
  expect(answer).toMatchObject({ kind: "forked", again: false });
  return request.forkId ?? `fork-${forks}`;
}

/** Every column of the rows but the session. */
async function rowsOf(sessionId: string) {
  const [messages, events] = await Promise.all(
    [sql`session_messages`, sql`session_events`].map((table) =>
      database.run(
        sql`select row_to_json(r)::jsonb - 'session_id' as row from ${table} r where session_id = ${sessionId} order by seq`,
      ),
    ),
  );
  return { messages: messages?.map(({ row }) => row), events: events?.map(({ row }) => row) };
}

async function firstOf(sessionId: string, count: { messages: number; events: number }) {
  const { messages, events } = await rowsOf(sessionId);
  return { messages: messages?.slice(0, count.messages), events: events?.slice(0, count.events) };
}

async function problemsOf(sessionId: string): Promise<readonly string[]> {
  const problems: string[] = [];
  await verify(database, {
    sessionIds: [sessionId],
    signal: new AbortController().signal,
    verified: (session) => Promise.resolve(problems.push(...session.problems) >= 0),
  });
  return problems;
}

const tell = (sessionId: string, ...rows: Parameters<typeof push>[2]) =>
  push(database, { sessionId }, rows);
const say = (sessionId: string, ...texts: readonly string[]) =>
  push(
    database,
    { sessionId, stream: "messages" },
    texts.map((text) => said("user", text)),
  );

describe("a fork", () => {
  test("has the rows up to the number, with keys, ids, actors and times, and is whole", async () => {
    const key = { key: "k1", actor: "static:ci" };
    await append(
      database,
      [
        newPush("a", { ...key, rows: [newRow({ payload: "ü".repeat(9) })] }),
        newPush("a", { ...key, stream: "messages", rows: [newRow({ sender: '{"id":"u"}' })] }),
      ],
      { createMissing: true, wait: true },
    );
    await tell("a", ...run("r1", ...spoken("m1", "one answer")));
    await say("a", "and then");
    await tell("a", event({ type: "CUSTOM", name: "n" }));
    const id = await forked("a", { atSeq: 7n });
    expect(await rowsOf(id)).toEqual(await firstOf("a", { messages: 1, events: 7 }));
    expect(await problemsOf(id)).toEqual([]);
    expect(await getSession(database, id)).toMatchObject({
      parentSessionId: "a",
      forkedAtSeq: 7n,
      forkedAtMessageSeq: null,
      messageSeq: 1n,
      eventSeq: 7n,
      rowCount: 8n,
    });
    const next = await forked("a", { atMessageSeq: 2n });
    expect(await rowsOf(next)).toEqual(await firstOf("a", { messages: 2, events: 7 }));
    expect(await problemsOf(next)).toEqual([]);
  });

  test("of a number in a merged row ends before the row, and at its ends has all of it", async () => {
    const raw = fragments(["a", "b", "c", "d"]).map(({ payload = "" }) => ({
      eventType: "TEXT_MESSAGE_CONTENT",
      payload,
    }));
    const [merged] = mergeFragments(raw).map((row) =>
      newRow({ ...row, fragments: row.fragments && encodeFragments(row.fragments) }),
    );
    if (merged === undefined) throw new Error("nothing merged");
    await tell("merged", newRow(), merged, newRow());
    for (const [atSeq, eventSeq] of [
      [1n, 1n],
      [2n, 5n],
      [3n, 1n],
      [4n, 1n],
      [5n, 5n],
      [6n, 6n],
    ] as const) {
      const id = await forked("merged", { atSeq });
      expect(await getSession(database, id)).toMatchObject({ eventSeq, forkedAtSeq: atSeq });
      expect(await problemsOf(id)).toEqual([]);
    }
    await tell("merged only", merged);
    expect(await fork("merged only", { atSeq: 2n })).toEqual({ kind: "erased" });
    expect(await fork("merged only", { atSeq: 1n })).toMatchObject({ kind: "forked", rows: 1 });
  });

  test("has the messages before the event when the clock of the database went back", async () => {
    await tell("clock", newRow());
    await say("clock", "one");
    await tell("clock", newRow(), newRow());
    await say("clock", "two");
    // The third event and the second message are older than what came before them.
    await database.run(
      sql`update session_events set recorded_at = recorded_at - interval '1 hour' where session_id = 'clock' and seq = 3`,
    );
    const id = await forked("clock", { atSeq: 3n });
    expect(await rowsOf(id)).toEqual(await firstOf("clock", { messages: 1, events: 3 }));
    const byMessage = await forked("clock", { atMessageSeq: 1n });
    expect(await rowsOf(byMessage)).toEqual(await firstOf("clock", { messages: 1, events: 1 }));
  });

  test("has the rows of one commit in the order of their own times", async () => {
    const rows = (...micros: readonly bigint[]) =>
      micros.map((createdAtMicros) => newRow({ createdAtMicros, eventType: "user" }));
    const batch = [
      newPush("batch", { rows: rows(10n, 20n) }),
      newPush("batch", { stream: "messages", rows: rows(10n, 15n, 20n, 25n) }),
    ];
    await append(database, batch, { createMissing: true, wait: true });
    for (const [at, events, messages] of [
      [{ atSeq: 1n }, 1, 1],
      [{ atSeq: 2n }, 2, 3],
      [{ atMessageSeq: 1n }, 0, 1],
      [{ atMessageSeq: 2n }, 1, 2],
      [{ atMessageSeq: 4n }, 2, 4],
    ] as const) {
      const id = await forked("batch", at);
      expect(await rowsOf(id)).toEqual(await firstOf("batch", { messages, events }));
    }
  });

  test("is a separate session: retention, erasure and deletion of one leave the other", async () => {
    await tell("own", ...run("r1", ...spoken("m", "old")), newRow());
    await database.run(
      sql`update session_events set recorded_at = recorded_at - interval '2 days' where session_id = 'own' and seq <= 6`,
    );
    const [kept, gone] = [await forked("own", { atSeq: 7n }), await forked("own", { atSeq: 7n })];
    const whole = await rowsOf(kept);
    const { signal } = new AbortController();
    const old = { afterMs: 86_400_000, dryRun: false, signal };
    expect(await retentionPass({ database }, { ...old, sessionId: gone })).toMatchObject({
      events: 6,
    });
    expect(await rowsOf("own")).toEqual(whole);
    await eraseSession(database, "own", { marked: () => 0, counted: () => 0, signal });
    expect(await rowsOf(kept)).toEqual(whole);
    expect(await getSession(database, kept)).toMatchObject({ parentSessionId: "own" });
    expect(await problemsOf(kept)).toEqual([]);
    await eraseSession(database, kept, { marked: () => 0, counted: () => 0, signal });
    expect(
      await database.run(sql`
      select parent_session_id, forked_at_seq from sessions where id = ${kept}`),
    ).toEqual([{ parent_session_id: null, forked_at_seq: null }]);
  });

  test("of rows that retention has erased is refused, and above them has the remaining rows", async () => {
    await tell("aged", ...run("r1"), newRow(), newRow());
    await database.run(
      sql`update session_events set recorded_at = recorded_at - interval '2 days' where session_id = 'aged' and seq <= 2`,
    );
    const { signal } = new AbortController();
    const options = { afterMs: 86_400_000, sessionId: "aged", dryRun: false, signal };
    expect(await retentionPass({ database }, options)).toMatchObject({ events: 2 });
    expect(await fork("aged", { atSeq: 2n })).toEqual({ kind: "erased" });
    const id = await forked("aged", { atSeq: 3n });
    expect(await rowsOf(id)).toEqual(await firstOf("aged", { messages: 0, events: 1 }));
    expect(await problemsOf(id)).toEqual([]);
    await tell(id, newRow());
    expect(await getSession(database, id)).toMatchObject({ eventSeq: 4n, rowCount: 2n });
  });

  test("takes a message with another key as new, and with an old key as the copied one", async () => {
    const again = newPush("keys", { key: "k", rows: [newRow()] });
    await append(database, [again], { createMissing: true, wait: true });
    const id = await forked("keys", { atSeq: 1n });
    const options = { createMissing: false, wait: true };
    expect(await append(database, [{ ...again, sessionId: id }], options)).toMatchObject([
      { kind: "deduplicated", row: { seq: 1n } },
    ]);
    expect(await append(database, [newPush(id, { key: "other" })], options)).toMatchObject([
      { kind: "stored" },
    ]);
  });

  test("has no epoch and no push stream, and is claimed by its history", async () => {
    await append(database, [newPush("epoch", { epoch: 9n })], { createMissing: true, wait: true });
    await say("epoch", "waits");
    const id = await forked("epoch", { atMessageSeq: 1n });
    expect(
      await append(database, [newPush(id, { epoch: 1n })], { createMissing: false, wait: true }),
    ).toMatchObject([{ kind: "stored" }]);
    const state = await createTurnStore(database).readTurn({
      sessionId: id,
      key: "claim:x",
      upToSeq: 99n,
      rowsMax: 9,
      bytesMax: 999,
      redeliver: true,
    });
    expect(state).toMatchObject({ pending: 1, turnSeq: 0n, epoch: 1n, openRunId: "" });
    expect(state?.arrivals.map(({ payload }) => payload)).toEqual(["waits"]);
  });

  test("is found by search, and named by its parent", async () => {
    await tell("spoke", ...run("r1", ...spoken("m1", "a rhinoceros")));
    await tell("spoke", ...run("r2", ...spoken("m2", "a later walrus")));
    await database.run(
      sql`update session_events set recorded_at = recorded_at - interval '1 hour' where session_id = 'spoke'`,
    );
    const index = textIndex(database);
    // From now on a pass looks at what is new, and not at all sessions.
    for (const _ of [1, 2]) await index.pass();
    const id = await forked("spoke", { atSeq: 6n });
    await index.pass();
    await index.stop();
    const found = await linesFor(database, "rhinoceros", { sessionId: id });
    expect(found).toEqual([`${id} events 2 assistant: a [rhinoceros]`]);
    expect(await linesFor(database, "walrus", { sessionId: id })).toEqual([]);
    const all = { projectId: undefined, sessionId: undefined };
    expect(await forksOf(database, "spoke", all)).toEqual([id]);
    expect(await forksOf(database, "spoke", { ...all, sessionId: "spoke" })).toEqual([]);
    const listing = { from: 0, size: 9, scope: all, filter: { parentSessionId: "spoke" } };
    expect((await listSessions(database, listing)).items.map((one) => one.id)).toEqual([id]);
    await deleteSession(database, id);
    expect(await forksOf(database, "spoke", all)).toEqual([]);
  });
});

describe("a request", () => {
  test("again gives the same fork, also when the parent is gone; another one finds the id taken", async () => {
    await tell("again", newRow(), newRow());
    await say("again", "hi");
    const forkId = "again-1";
    const both = await Promise.all([1, 2, 3].map(() => fork("again", { forkId, atSeq: 2n })));
    expect(both.filter((one) => one.kind === "forked" && !one.again)).toHaveLength(1);
    expect(both.every(({ kind }) => kind === "forked")).toBe(true);
    await tell(forkId, newRow());
    await deleteSession(database, "again");
    expect(await fork("again", { forkId, atSeq: 2n })).toEqual({ kind: "forked", again: true });
    for (const other of [{ atSeq: 1n }, { atMessageSeq: 1n }, { atSeq: 2n, atMessageSeq: 1n }])
      expect(await fork("again", { forkId, ...other })).toEqual({ kind: "exists", again: true });
    expect(await fork("other", { forkId, atSeq: 2n })).toEqual({ kind: "exists", again: true });
    expect(await fork("again", { atSeq: 2n })).toEqual({ kind: "deleted" });
    await deleteSession(database, forkId);
    expect(await fork("again", { forkId, atSeq: 2n })).toEqual({ kind: "exists", again: true });
  });

  test("for an unknown session or number is refused, and stores nothing", async () => {
    await tell("few", newRow());
    expect(await fork("nobody", { atSeq: 1n })).toEqual({ kind: "not_found" });
    expect(await fork("few", { atSeq: 2n })).toEqual({ kind: "beyond", head: 1n });
    expect(await fork("few", { atMessageSeq: 1n })).toEqual({ kind: "beyond", head: 0n });
    expect(await getSession(database, `fork-${forks}`)).toBeUndefined();
  });

  test("above a limit is refused by the size of the copy, not of the parent", async () => {
    await tell("large", ...Array.from({ length: 9 }, () => newRow({ payload: "x".repeat(100) })));
    await say("large", "y".repeat(50));
    const size = (rowsMax: number, bytesMax: number, atSeq: bigint) =>
      fork("large", { rowsMax, bytesMax, atSeq });
    expect(await size(4, 9_999, 5n)).toEqual({ kind: "too_large", rows: 5, bytes: 500 });
    expect(await size(5, 9_999, 5n)).toMatchObject({ kind: "forked", rows: 5 });
    expect(await size(99, 499, 5n)).toEqual({ kind: "too_large", rows: 5, bytes: 500 });
    expect(await size(99, 500, 5n)).toMatchObject({ kind: "forked", rows: 5 });
    const all = { rowsMax: 9, bytesMax: 9_999, atMessageSeq: 1n };
    expect(await fork("large", all)).toMatchObject({ kind: "too_large", rows: 10 });
  });

  test("that takes longer than a statement may is refused, and stores nothing", async () => {
    await using slow = await createLedger({ statementTimeoutMs: 2_000, lockTimeoutMs: 60_000 });
    await append(slow.database, [newPush("s")], { createMissing: true, wait: true });
    const holder = postgres(slow.url, { max: 1 });
    try {
      await holder.begin(async (held) => {
        await held`lock table sessions in share mode`;
        const asked = fork("s", { forkId: "f", atSeq: 1n }, slow.database);
        await expect(asked).rejects.toMatchObject({ code: "deadline_exceeded" });
      });
    } finally {
      await holder.end();
    }
    expect(await getSession(slow.database, "f")).toBeUndefined();
    const left = await slow.database.run(sql`select 1 from session_events where session_id = 'f'`);
    expect(left).toEqual([]);
  });
});

describe("while a fork is copied", () => {
  /** The copy waits for the row that another transaction has in its place. */
  async function held(
    sessionId: string,
    { forkId, atSeq }: { readonly forkId: string; readonly atSeq: bigint },
    work: () => Promise<void>,
  ): Promise<Forked> {
    const taken = Promise.withResolvers<void>();
    const free = Promise.withResolvers<void>();
    const holding = beside
      .begin(async (on) => {
        await on`insert into session_events (session_id, seq, id, event_type, payload, created_at, recorded_at)
          values (${forkId}, ${String(atSeq)}, gen_random_uuid(), 'RAW', '', now(), now())`;
        taken.resolve();
        await free.promise;
        throw new Error("rolled back");
      })
      .catch(() => undefined);
    await taken.promise;
    const asked = fork(sessionId, { forkId, atSeq });
    asked.catch(() => undefined);
    await eventually(async () => {
      const waits = await beside`
        select 1 from pg_stat_activity where query like '%ledger_fork%' and wait_event_type = 'Lock'
          and datname = current_database()`;
      if (waits.length === 0) throw new Error("the copy does not wait yet");
    });
    try {
      await work();
    } finally {
      free.resolve();
      await holding;
    }
    return asked;
  }

  test("pushes to the parent are stored, and are not in it", async () => {
    await tell("busy", newRow(), newRow());
    const answer = await held("busy", { forkId: "busy-1", atSeq: 2n }, async () => {
      await tell("busy", newRow(), newRow());
      await say("busy", "meanwhile");
    });
    expect(answer).toMatchObject({ kind: "forked", rows: 2 });
    expect(await getSession(database, "busy")).toMatchObject({ eventSeq: 4n, messageSeq: 1n });
    expect(await rowsOf("busy-1")).toEqual(await firstOf("busy", { messages: 0, events: 2 }));
  });

  test("a deletion of the parent ends it, and nothing is stored", async () => {
    await tell("leaving", newRow(), newRow());
    const answer = await held("leaving", { forkId: "leaving-1", atSeq: 2n }, async () => {
      await deleteSession(database, "leaving");
    });
    expect(answer).toEqual({ kind: "deleted" });
    expect(await rowsOf("leaving-1")).toEqual({ messages: [], events: [] });
  });

  test("feeds do not wait for it", async () => {
    await tell("fed", newRow());
    await held("fed", { forkId: "fed-1", atSeq: 1n }, async () => {
      const writers = await beside`
        select 1 from pg_locks where locktype = 'relation' and relation = 'sessions'::regclass
          and mode in ('RowShareLock', 'RowExclusiveLock') and granted`;
      expect(writers).toEqual([]);
    });
  });

  test("hundreds of pushes during many forks leave each fork with just its rows", async () => {
    await tell("crowd", newRow());
    const pushes = Array.from({ length: 100 }, async (_, at) => {
      await tell("crowd", newRow());
      if (at % 5 === 0) await say("crowd", `${at}`);
    });
    const asked = Array.from({ length: 20 }, async (_, at) => {
      const [head] = await database.run(sql`select event_seq from sessions where id = 'crowd'`);
      return forked("crowd", { forkId: `crowd-${at}`, atSeq: BigInt(String(head?.["event_seq"])) });
    });
    const ids = await Promise.all(asked);
    await Promise.all(pushes);
    for (const id of ids) {
      const record = await getSession(database, id);
      const count = { messages: Number(record?.messageSeq), events: Number(record?.eventSeq) };
      expect(await rowsOf(id)).toEqual(await firstOf("crowd", count));
      // A later fork of the same number has the same messages.
      const later = await forked("crowd", {
        forkId: `${id}-later`,
        atSeq: record?.forkedAtSeq ?? 0n,
      });
      expect(await rowsOf(later)).toEqual(await rowsOf(id));
      expect(await problemsOf(id)).toEqual([]);
    }
  });
});

test("a fork of 100,000 rows is made in one statement, and by index", async () => {
  await tell("long", newRow());
  await database.run(sql`
    with made as (
      insert into session_events (session_id, seq, id, event_type, payload, created_at, recorded_at)
      select 'long', n, gen_random_uuid(), 'CUSTOM', repeat('x', 600), now(), now()
      from generate_series(2, 100000) n returning 1)
    update sessions set event_seq = 100000, row_count = 100000, payload_bytes = payload_bytes + 600 * 99999
    where id = 'long' and (select count(*) from made) > 0`);
  const beganMs = performance.now();
  const answer = await fork("long", { atSeq: 99_999n, rowsMax: 200_000, bytesMax: 134_217_728 });
  const ms = performance.now() - beganMs;
  expect(answer).toMatchObject({ kind: "forked", rows: 99_999 });
  process.stdout.write(`a fork of 99,999 rows took ${Math.round(ms)} ms\n`);
  expect(await problemsOf(`fork-${forks}`)).toEqual([]);
});
