import postgres from "postgres";
import { describe, expect, test } from "vitest";
import { systemClock } from "@session-ledger/base/clock";
import { Ingest, type IngestLimits } from "../../src/ingest/ingest.ts";
import type { LedgerWriter } from "../../src/ingest/opener.ts";
import { loadConfig } from "../../src/config/config.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import { CommitFailures } from "../../src/observability/readiness.ts";
import { createWriter } from "../../src/service-store.ts";
import { append } from "../../src/store/append.ts";
import type { Database, Fields } from "../../src/store/database.ts";
import { readPage } from "../../src/store/pages.ts";
import type { Push, StoredRow } from "../../src/store/rows.ts";
import {
  createLedger,
  holdSession,
  ledgerWriter,
  newPush,
  newRow,
  useLedger,
} from "../support/ledger.ts";

const LIMITS: IngestLimits = {
  batch: { rowsMax: 64, bytesMax: 1_000_000 },
  queueRowsMax: 1_000,
  queueBytesMax: 10_000_000,
};
const stays = () => false;

const ledger = await useLedger();

/** Ingest over the real store, with what it appended and published to look at. */
function start(
  options: { readonly limits?: IngestLimits; readonly before?: () => Promise<void> } = {},
) {
  const published: StoredRow[] = [];
  const batches: (readonly Push[])[] = [];
  const stored = ledgerWriter(ledger.database);
  const writer: LedgerWriter = {
    ...stored,
    async append(pushes, { wait }) {
      batches.push(pushes);
      await options.before?.();
      return stored.append(pushes, { wait });
    },
  };
  const metrics = createMetrics();
  const publish = (rows: readonly StoredRow[]): void => {
    published.push(...rows);
  };
  const ingest = new Ingest(
    { writer, publish, clock: systemClock, metrics },
    options.limits ?? LIMITS,
  );
  return { ingest, published, batches, metrics };
}

async function seqsOf(sessionId: string): Promise<readonly bigint[]> {
  const bounds = {
    after: 0n,
    before: undefined,
    descending: false,
    rowsMax: 1_000,
    bytesMax: 10_000_000,
  };
  const page = await readPage(ledger.database, {
    stream: "events",
    sessionId,
    ...bounds,
    filter: undefined,
  });
  return page.rows.map((row) => row.seq);
}

const codeOf = (pushing: Promise<unknown>) =>
  pushing.then(
    () => "stored",
    (error: { readonly reason?: string }) => error.reason,
  );

describe("group commit", () => {
  test("pushes of one session commit in the order they arrived, in shared batches", async () => {
    const { ingest, batches, published } = start();
    const pushes = Array.from({ length: 300 }, () => newPush("order"));
    const answers = await Promise.all(pushes.map((push) => ingest.push(push, stays)));
    expect(answers.map(({ rows }) => rows[0]?.seq)).toEqual(
      Array.from({ length: 300 }, (_, index) => BigInt(index + 1)),
    );
    expect(batches.length).toBeLessThan(20);
    expect(published.map((row) => row.seq)).toEqual(answers.map(({ rows }) => rows[0]?.seq));
    await ingest.stop();
  });

  test("knows how long the oldest push has waited for its batch", async () => {
    const released = Promise.withResolvers<void>();
    const { ingest, batches } = start({ before: () => released.promise });
    const pushes = [ingest.push(newPush("waits"), stays)];
    await expect.poll(() => batches).toHaveLength(1);
    expect(ingest.waitedMs()).toBe(0); // It is in its batch.
    pushes.push(ingest.push(newPush("waits"), stays));
    await expect.poll(() => ingest.waitedMs()).toBeGreaterThan(10);
    released.resolve();
    await Promise.all(pushes);
    expect(ingest.waitedMs()).toBe(0);
    await ingest.stop();
  });

  test("a push that repeats a waiting one gets its answer, and takes no place in a batch", async () => {
    const held = Promise.withResolvers<void>();
    const { ingest, batches, metrics } = start({ before: () => held.promise });
    const first = ingest.push(newPush("repeated"), stays);
    await expect.poll(() => batches.length).toBe(1);
    const keyed = (digest = 1) =>
      newPush("repeated", { key: "k", digest: Uint8Array.of(digest), rows: [newRow()] });
    const pushes = Array.from({ length: 5 }, () => ingest.push(keyed(), stays));
    const other = codeOf(ingest.push(keyed(2), stays));
    held.resolve();
    const [answer, ...repeats] = await Promise.all(pushes);
    expect((await first).deduplicated).toBe(false);
    expect(answer).toMatchObject({ deduplicated: false, rows: [{ seq: 2n }] });
    expect(repeats).toEqual(repeats.map(() => ({ rows: answer?.rows, deduplicated: true })));
    expect(await other).toBe("KEY_REUSED");
    expect(batches.map(({ length }) => length)).toEqual([1, 1, 1]);
    expect((await metrics.rowsDeduplicated.get()).values[0]?.value).toBe(4);
    await ingest.stop();
  });

  test("a push that repeats a waiting one is stored if the caller of that one leaves", async () => {
    const held = Promise.withResolvers<void>();
    const { ingest, batches } = start({ before: () => held.promise });
    const first = ingest.push(newPush("left"), stays);
    await expect.poll(() => batches.length).toBe(1);
    const keyed = () => newPush("left", { key: "k" });
    const left = codeOf(ingest.push(keyed(), () => true));
    const repeats = [ingest.push(keyed(), stays), ingest.push(keyed(), stays)];
    held.resolve();
    await first;
    expect(await left).toBe("CANCELLED");
    const answers = await Promise.all(repeats);
    expect(answers.map(({ deduplicated }) => deduplicated)).toEqual([false, true]);
    expect(await seqsOf("left")).toEqual([1n, 2n]);
    await ingest.stop();
  });

  test("a session has pushes in at most one batch at a time", async () => {
    const inFlight = new Set<string>();
    let overlaps = 0;
    const stored = ledgerWriter(ledger.database);
    const writer: LedgerWriter = {
      ...stored,
      async append(pushes, { wait }) {
        const ids = new Set(pushes.map((push) => push.sessionId));
        for (const id of ids) if (inFlight.has(id)) overlaps += 1;
        for (const id of ids) inFlight.add(id);
        const outcomes = await stored.append(pushes, { wait });
        for (const id of ids) inFlight.delete(id);
        return outcomes;
      },
    };
    const ingest = new Ingest(
      { writer, publish: () => undefined, clock: systemClock, metrics: createMetrics() },
      { ...LIMITS, batch: { rowsMax: 8, bytesMax: 1_000_000 } },
    );
    const sessions = ["one-a", "one-b", "one-c"];
    await Promise.all(
      Array.from({ length: 300 }, (_, index) =>
        ingest.push(newPush(sessions[index % 3] ?? ""), stays),
      ),
    );
    expect(overlaps).toBe(0);
    await ingest.stop();
  });

  test("a row that PostgreSQL refuses fails only its own caller, anywhere in the batch", async () => {
    const { ingest } = start();
    const bad = () => newPush("poison", { rows: [newRow({ id: "no uuid" })] });
    const answers = await Promise.all(
      Array.from({ length: 60 }, (_, index) =>
        codeOf(ingest.push(index % 20 === 7 ? bad() : newPush("poison"), stays)),
      ),
    );
    expect(
      answers.map((answer, index) =>
        index % 20 === 7 ? answer === "INTERNAL" : answer === "stored",
      ),
    ).toEqual(answers.map(() => true));
    expect(await seqsOf("poison")).toHaveLength(57);
    await ingest.stop();
  });

  test("a session that an idle transaction locks does not stall the others", async () => {
    const { ingest } = start();
    await Promise.all([
      ingest.push(newPush("stuck"), stays),
      ingest.push(newPush("goes-on"), stays),
    ]);
    const other = postgres(ledger.url, { max: 1 });
    let stuck: Promise<unknown> | undefined;
    await other.begin(async (transaction) => {
      await transaction`select 1 from sessions where id = 'stuck' for update`;
      stuck = ingest.push(newPush("stuck"), stays);
      // Twenty round trips of the other session end while the first waits for its lock.
      for (let index = 0; index < 20; index += 1) {
        await ingest.push(newPush("goes-on"), stays);
      }
      expect(await Promise.race([stuck.then(() => "done"), Promise.resolve("waits")])).toBe(
        "waits",
      );
    });
    await stuck;
    expect(await seqsOf("stuck")).toEqual([1n, 2n]);
    await other.end();
    await ingest.stop();
  });

  test("a push above the limits of the queue is refused with a retry time and not stored", async () => {
    const gate = Promise.withResolvers<void>();
    const { ingest, metrics } = start({
      limits: {
        batch: { rowsMax: 2, bytesMax: 100_000 },
        queueRowsMax: 4,
        queueBytesMax: 1_000_000,
      },
      before: () => gate.promise,
    });
    const first = Array.from({ length: 4 }, () => codeOf(ingest.push(newPush("full"), stays)));
    const fifth = await ingest.push(newPush("full"), stays).catch((error: unknown) => error);
    expect(fifth).toMatchObject({ code: "overloaded", reason: "QUEUE_FULL", retryAfterMs: 250 });
    gate.resolve();
    expect(await Promise.all(first)).toEqual(["stored", "stored", "stored", "stored"]);
    expect(await seqsOf("full")).toHaveLength(4);
    expect(await metrics.text()).toContain("session_ledger_queue_rows 0");
    await ingest.stop();
  });

  test("a push whose caller left before it was sent is not stored", async () => {
    const { ingest } = start();
    const gone = codeOf(ingest.push(newPush("gone"), () => true));
    expect(await gone).toBe("CANCELLED");
    expect(await seqsOf("gone")).toEqual([]);
    await ingest.stop();
  });

  test("a stop commits waiting pushes and refuses later ones", async () => {
    const { ingest } = start();
    const waiting = Array.from({ length: 200 }, () => codeOf(ingest.push(newPush("stop"), stays)));
    const stopped = ingest.stop();
    expect(await codeOf(ingest.push(newPush("stop"), stays))).toBe("SHUTTING_DOWN");
    await stopped;
    expect(new Set(await Promise.all(waiting))).toEqual(new Set(["stored"]));
    expect(await seqsOf("stop")).toHaveLength(200);
  });

  test("connections killed during commits: a push with a key is neither lost nor doubled", async () => {
    const { ingest } = start();
    const killer = postgres(ledger.url, { max: 1 });
    const answers: Promise<string | undefined>[] = [];
    for (let round = 0; round < 20; round += 1) {
      for (let index = 0; index < 10; index += 1) {
        answers.push(codeOf(ingest.push(newPush("killed", { key: `${round}-${index}` }), stays)));
      }
      await killer`select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()`;
    }
    expect(new Set(await Promise.all(answers))).toEqual(new Set(["stored"]));
    expect(await seqsOf("killed")).toEqual(
      Array.from({ length: 200 }, (_, index) => BigInt(index + 1)),
    );
    await killer.end();
    await ingest.stop();
  });
});

test("a session with a slow statement does not fail the others of its batch, and gets separate batches", async () => {
  // The bug: the whole batch was refused after STATEMENT_TIMEOUT_MS, and the next one with it again.
  const slow = await createLedger({ statementTimeoutMs: 2_000 });
  const client = postgres(slow.url, { max: 1, onnotice: () => undefined });
  await client.unsafe(`
    create function sleep() returns trigger language plpgsql as $$ begin perform pg_sleep(60); return new; end $$;
    create trigger sleep before insert on session_events for each row
      when (new.session_id = 'slow' and new.event_type = 'RAW') execute function sleep()`);
  const batches: ReadonlySet<string>[] = [];
  const stored = ledgerWriter(slow.database);
  const writer: LedgerWriter = {
    ...stored,
    append(pushes, options) {
      batches.push(new Set(pushes.map(({ sessionId }) => sessionId)));
      return stored.append(pushes, options);
    },
  };
  const ingest = new Ingest(
    { writer, publish: () => undefined, clock: systemClock, metrics: createMetrics() },
    LIMITS,
  );
  const others = Array.from({ length: 20 }, (_, index) => `other-${index}`);
  const sharing = (): readonly ReadonlySet<string>[] =>
    batches.filter((ids) => ids.has("slow") && ids.size > 1);
  const round = (): Promise<readonly (string | undefined)[]> =>
    Promise.all([...others, "slow"].map((id) => codeOf(ingest.push(newPush(id), stays))));
  const expected = [...others.map(() => "stored"), "DATABASE_UNAVAILABLE"];
  const shared = stored.sessionCallsMax === undefined ? 1 : 0;
  expect(await round()).toEqual(expected);
  expect(sharing()).toHaveLength(shared);
  expect(await round()).toEqual(expected);
  expect(sharing()).toHaveLength(shared);
  // When one of its own goes through, it shares again.
  const quick = () => newPush("slow", { rows: [newRow({ eventType: "CUSTOM" })] });
  expect(await codeOf(ingest.push(quick(), stays))).toBe("stored");
  await Promise.all([ingest.push(quick(), stays), ingest.push(newPush("other-0"), stays)]);
  expect(sharing()).toHaveLength(2 * shared);
  await ingest.stop();
  await client.end();
  await slow[Symbol.asyncDispose]();
});

describe("a push without a key", () => {
  test("gets OUTCOME_UNKNOWN when its connection is lost during the commit", async () => {
    const lost = async (): Promise<never> => {
      throw Object.assign(new Error("write CONNECTION_CLOSED"), { code: "CONNECTION_CLOSED" });
    };
    const ingest = new Ingest(
      {
        writer: { append: lost, openStream: lost },
        publish: () => undefined,
        clock: systemClock,
        metrics: createMetrics(),
      },
      LIMITS,
    );
    expect(await codeOf(ingest.push(newPush("lost"), stays))).toBe("OUTCOME_UNKNOWN");
    await ingest.stop();
  });
});

describe("a batch that the limit of a session splits into turns, where the third turn fails", () => {
  // The bug: append() had committed the second turn, and ingest sent the whole batch again.
  async function pushed(
    sessionId: string,
    payloadBytes: readonly number[],
    failing: (turn: () => Promise<readonly Fields[]>) => Promise<readonly Fields[]>,
  ) {
    let turns = 0;
    const database: Database = {
      ...ledger.database,
      attempt(statement) {
        turns += 1;
        const turn = () => ledger.database.attempt(statement);
        return turns === 3 ? failing(turn) : turn();
      },
    };
    const limits = { sessionRowsMax: 10, sessionBytesMax: 1_000, pendingMax: 1_000 };
    const writer: LedgerWriter = {
      ...ledgerWriter(ledger.database),
      append: (pushes) => append(database, pushes, { createMissing: true, wait: true, limits }),
    };
    const ingest = new Ingest(
      { writer, publish: () => undefined, clock: systemClock, metrics: createMetrics() },
      LIMITS,
    );
    const answers = await Promise.all(
      payloadBytes.map((bytes) => {
        const rows = [newRow({ payload: "x".repeat(bytes) })];
        return codeOf(ingest.push(newPush(sessionId, { rows }), stays));
      }),
    );
    await ingest.stop();
    return { answers, seqs: await seqsOf(sessionId) };
  }

  test.each([
    { name: "small", bytes: [300, 900] },
    { name: "large", bytes: [600, 600] },
  ])("a locked row: stored pushes ($name) are stored once and answered", async (one) => {
    const other = postgres(ledger.url, { max: 1 });
    const sessionId = `locked-${one.name}`;
    const { answers, seqs } = await pushed(sessionId, one.bytes, (turn) =>
      other.begin(async (transaction) => {
        await transaction`select 1 from sessions where id = ${sessionId} for update`;
        return turn();
      }),
    );
    expect({ answers, seqs }).toEqual({ answers: ["stored", "SESSION_FULL"], seqs: [1n] });
    await other.end();
  });

  test("a lost answer: only its push has an unknown outcome, and no push is sent again", async () => {
    const lost = await pushed("answer-lost", [600, 600], async () => {
      throw Object.assign(new Error("write CONNECTION_CLOSED"), { code: "CONNECTION_CLOSED" });
    });
    expect(lost).toEqual({ answers: ["stored", "OUTCOME_UNKNOWN"], seqs: [1n] });
  });
});

test("a push and an opening whose statement somebody cancels are sent again", async () => {
  // Bug: a lock_timeout in the moment of the unlock was such a cancel, and the caller was refused.
  const { ingest } = start();
  const sql = postgres(ledger.url, { max: 2, onnotice: () => undefined });
  for (const [sessionId, ask] of [
    ["cancelled-push", () => ingest.push(newPush("cancelled-push"), stays)],
    ["cancelled-opening", () => ingest.open({ sessionId: "cancelled-opening", epoch: 0n }, stays)],
  ] as const) {
    await ingest.push(newPush(sessionId), stays);
    const held = await holdSession(sql, sessionId);
    const asking = ask();
    const cancelled = async (): Promise<number> => {
      const rows = await sql`
        select pg_cancel_backend(pid) from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'`;
      return rows.length;
    };
    await expect.poll(cancelled).toBe(1);
    await held.release();
    await expect(asking).resolves.toBeDefined();
  }
  await ingest.stop();
  await sql.end();
});

test("a push that is given up after a lost try is not reported as not stored", async () => {
  // The bug: the last failure alone decided, and the caller got "nothing was stored".
  const codes = ["CONNECTION_CLOSED", "57014"];
  const failing = async (): Promise<never> => {
    throw Object.assign(new Error("failed"), { code: codes.shift() });
  };
  const ingest = new Ingest(
    {
      writer: { append: failing, openStream: failing },
      publish: () => undefined,
      clock: systemClock,
      metrics: createMetrics(),
    },
    LIMITS,
  );
  const pushing = ingest.push(newPush("uncertain", { key: "k" }), stays);
  expect(await codeOf(pushing)).toBe("OUTCOME_UNKNOWN");
  await ingest.stop();
});

describe("a lost node of a sharded engine", () => {
  const answerOf = (code: string, message: string, where = "") =>
    Object.assign(new Error(message), { code, where, severity: "ERROR" });
  /** As the coordinator answers for a node that it cannot reach, or loses during a statement or its commit. */
  const NODE_LOST = [
    answerOf("08006", "connection to the remote node failed"),
    answerOf("XX000", "server closed it", "while executing command on 127.0.0.1:9701"),
    answerOf("XX000", "could not commit transaction for shard 102008 on at least one active node"),
    answerOf("XX000", "failure on connection marked as essential: 127.0.0.1:9701"),
  ];
  const nodeLost = (time = 0): Error => NODE_LOST[time % NODE_LOST.length] ?? new Error();

  test("stops the pushes of its sessions, and delays no push of others", async () => {
    const stored = ledgerWriter(ledger.database);
    const calls = new Map<string, number>();
    let isLost = true;
    const writer: LedgerWriter = {
      ...stored,
      sessionCallsMax: 2,
      append(pushes, options) {
        const sessionIds = new Set(pushes.map(({ sessionId }) => sessionId));
        expect(sessionIds.size).toBe(1);
        const [sessionId = ""] = sessionIds;
        calls.set(sessionId, (calls.get(sessionId) ?? 0) + 1);
        if (isLost && sessionId.startsWith("lost"))
          return Promise.reject(nodeLost(calls.get(sessionId)));
        return stored.append(pushes, options);
      },
    };
    const ingest = new Ingest(
      { writer, publish: () => undefined, clock: systemClock, metrics: createMetrics() },
      LIMITS,
    );
    const ids = (name: string) => Array.from({ length: 40 }, (_, index) => `${name}-${index}`);
    const pushAll = (name: string, key?: string) =>
      ids(name).map((id) => codeOf(ingest.push(newPush(id, { key }), stays)));
    const lost = pushAll("lost", "k");
    // By now each pause of a session is long: in its slot it would keep the others waiting for seconds.
    await expect.poll(() => calls.size === 40 && Math.min(...calls.values())).toBeGreaterThan(5);
    const began = performance.now();
    expect(await Promise.all(pushAll("other"))).toEqual(ids("other").map(() => "stored"));
    expect(performance.now() - began).toBeLessThan(2_000);
    for (const _ of NODE_LOST)
      expect(await codeOf(ingest.push(newPush("lost-keyless"), stays))).toBe("OUTCOME_UNKNOWN");
    isLost = false;
    expect(await Promise.all(lost)).toEqual(lost.map(() => "stored"));
    await ingest.stop();
  });

  test("that answers late occupies few connections after its first answers", async () => {
    const stored = ledgerWriter(ledger.database);
    const failed = new Set<string>();
    const back = Promise.withResolvers<void>();
    const writer: LedgerWriter = {
      ...stored,
      sessionCallsMax: 5,
      async append(pushes, options) {
        const sessionId = pushes[0]?.sessionId ?? "";
        if (sessionId.startsWith("late")) {
          if (failed.has(sessionId)) await back.promise;
          else {
            failed.add(sessionId);
            throw nodeLost();
          }
        }
        return stored.append(pushes, options);
      },
    };
    const ingest = new Ingest(
      { writer, publish: () => undefined, clock: systemClock, metrics: createMetrics() },
      LIMITS,
    );
    const pushAll = (name: string) =>
      Array.from({ length: 20 }, (_, at) =>
        codeOf(ingest.push(newPush(`${name}-${at}`, { key: "k" }), stays)),
      );
    const late = pushAll("late");
    await expect.poll(() => failed.size).toBe(20);
    expect(await Promise.all(pushAll("soon"))).toEqual(late.map(() => "stored"));
    back.resolve();
    expect(await Promise.all(late)).toEqual(late.map(() => "stored"));
    await ingest.stop();
  });

  test("does not end the readiness of the service, and a lost coordinator does", async () => {
    const loaded = loadConfig({});
    if (!loaded.ok) throw new Error("the defaults are refused");
    const failuresOf = async (sessionCallsMax: number | undefined, error: Error) => {
      const commits = new CommitFailures(systemClock);
      const attempt: Database["attempt"] = () => Promise.reject(error);
      const database = { ...ledger.database, sessionCallsMax, attempt };
      const parts = { ...createMetrics(), commits, refusal: () => undefined };
      const writer = createWriter(database, loaded.config, parts);
      const pushing = writer.append([newPush("unready")], { wait: false });
      await expect(pushing).rejects.toBe(error);
      return commits.count;
    };
    for (const error of NODE_LOST) expect(await failuresOf(2, error)).toBe(0);
    expect(await failuresOf(undefined, nodeLost())).toBe(1);
    const lost = Object.assign(new Error("lost"), { code: "CONNECTION_CLOSED" });
    expect(await failuresOf(2, lost)).toBe(1);
    for (const code of ["0A000", "XX000", "58030"])
      expect(await failuresOf(2, answerOf(code, "no plan"))).toBe(1);
  });
});
