/** Push streams through group commit: order, refusals, lost answers, and reconnects. */
import { describe, expect, test } from "vitest";
import { systemClock } from "@session-ledger/base/clock";
import { Ingest, type IngestLimits } from "../../src/ingest/ingest.ts";
import type { LedgerWriter } from "../../src/ingest/opener.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import { createDatabase as openDatabase } from "../../src/store/database.ts";
import type { Push, StoredRow } from "../../src/store/rows.ts";
import { deleteSession } from "../../src/store/deletion.ts";
import { openStream, type OpenedStream } from "../../src/store/streams.ts";
import {
  holdSession,
  ledgerWriter,
  newPush,
  newRow,
  rangePush,
  useLedger,
  useSql,
} from "../support/ledger.ts";
import { startTcpProxy } from "../support/broken-network.ts";

const LIMITS: IngestLimits = {
  batch: { rowsMax: 64, bytesMax: 1_000_000 },
  queueRowsMax: 1_000,
  queueBytesMax: 10_000_000,
};
const POLL = { interval: 5 };
const stays = () => false;

const ledger = await useLedger();
const sql = useSql(ledger.url, 3);

/** Ingest over the real store, or what a test makes of it. */
function start(
  change: (writer: LedgerWriter) => Partial<LedgerWriter> = () => ({}),
  limits: IngestLimits = LIMITS,
) {
  const stored = ledgerWriter(ledger.database);
  const published: StoredRow[] = [];
  const metrics = createMetrics();
  const ingest = new Ingest(
    {
      writer: { ...stored, ...change(stored) },
      publish: (rows) => void published.push(...rows),
      clock: systemClock,
      metrics,
    },
    limits,
  );
  return { ingest, published, metrics };
}

function failing(code: string): never {
  throw Object.assign(new Error(code), { code });
}

/** What became of it: the seqs, or the reason of the refusal. */
const answerOf = (pushing: Promise<{ readonly rows: readonly StoredRow[] }>) =>
  pushing.then(
    ({ rows }): unknown => rows.map(({ seq }) => seq),
    (error: { readonly reason?: string }): unknown => error.reason,
  );
const reasonOf = (pending: Promise<unknown>) =>
  pending.then(
    () => "done",
    (error: { readonly reason?: string }) => error.reason,
  );

/** One row a number, which says the number. */
function numbered(sessionId: string, stream: OpenedStream, from: bigint, count = 1): Push {
  const numbers = Array.from({ length: count }, (_, index) => from + BigInt(index));
  const rows = numbers.map((n) => newRow({ payload: `{"n":${n}}` }));
  return rangePush(sessionId, stream, { from, to: from + BigInt(count) - 1n, rows });
}

async function numbersOf(sessionId: string): Promise<readonly number[]> {
  const rows = await sql<{ n: number }[]>`
    select (payload::json->>'n')::int as n from session_events where session_id = ${sessionId} order by seq`;
  return rows.map(({ n }) => n);
}

describe("a stream", () => {
  test("commits its ranges in order and in shared batches, also ranges without rows", async () => {
    const { ingest, published, metrics } = start();
    const stream = await ingest.open({ sessionId: "order", epoch: 0n }, stays);
    expect(stream).toMatchObject({ epoch: 1n, stream: 1n, lastClientSeq: 0n, refused: 0n });
    const answers = await Promise.all(
      Array.from({ length: 300 }, (_, index) => {
        const at = BigInt(index + 1);
        const refused = index % 3 === 2 ? 1 : 0;
        return answerOf(
          ingest.push(rangePush("order", stream, { from: at, to: at, refused }), stays),
        );
      }),
    );
    const rows = answers.flat();
    expect(rows).toEqual(Array.from({ length: 200 }, (_, index) => BigInt(index + 1)));
    expect(published.map(({ seq }) => seq)).toEqual(rows);
    expect(await metrics.text()).toContain('session_ledger_rows_stored_total{stream="events"} 200');
    const again = await ingest.open({ sessionId: "order", epoch: 1n }, stays);
    expect(again).toMatchObject({ epoch: 1n, stream: 2n, lastClientSeq: 300n, refused: 100n });
    await ingest.stop();
  });

  test("has ranges without rows counted in the queue too", async () => {
    const gate = Promise.withResolvers<void>();
    const { ingest } = start(
      (writer) => ({
        async append(pushes, options) {
          await gate.promise;
          return writer.append(pushes, options);
        },
      }),
      { ...LIMITS, queueRowsMax: 4 },
    );
    const stream = await ingest.open({ sessionId: "room", epoch: 0n }, stays);
    const answers = Array.from({ length: 5 }, (_, index) => {
      const at = BigInt(index + 1);
      const push = rangePush("room", stream, { from: at, to: at, refused: 1 });
      return answerOf(ingest.push(push, stays));
    });
    expect(await answers[4]).toBe("QUEUE_FULL");
    gate.resolve();
    expect(await Promise.all(answers.slice(0, 4))).toEqual([[], [], [], []]);
    await ingest.stop();
  });

  test("stores nothing after a range that cannot be stored, and other sessions continue", async () => {
    const { ingest } = start();
    const stream = await ingest.open({ sessionId: "poison", epoch: 0n }, stays);
    const bad = rangePush("poison", stream, {
      from: 2n,
      to: 2n,
      rows: [newRow({ id: "no uuid" })],
    });
    const answers = await Promise.all(
      [
        numbered("poison", stream, 1n),
        bad,
        numbered("poison", stream, 3n),
        newPush("poison", { rows: [newRow({ payload: '{"n":0}' })] }),
        numbered("poison", stream, 4n, 2),
        newPush("beside"),
      ].map((push) => answerOf(ingest.push(push, stays))),
    );
    const lost = "DATABASE_UNAVAILABLE";
    expect(answers).toEqual([[1n], "INTERNAL", lost, [2n], lost, [1n]]);
    const again = await ingest.open({ sessionId: "poison", epoch: 1n }, stays);
    expect(again.lastClientSeq).toBe(1n);
    await ingest.push(numbered("poison", again, 2n, 4), stays);
    expect(await numbersOf("poison")).toEqual([1, 0, 2, 3, 4, 5]);
    await ingest.stop();
  });

  test("is refused with the reason after another one was opened", async () => {
    const here = start().ingest;
    const there = start().ingest;
    const sessionId = "two";
    const old = await here.open({ sessionId, epoch: 4n }, stays);
    const late = await there.open({ sessionId, epoch: 4n }, stays);
    const replaced = here.push(numbered(sessionId, old, 1n), stays);
    await expect(replaced).rejects.toMatchObject({ code: "aborted", reason: "STREAM_REPLACED" });
    await there.push(numbered(sessionId, late, 1n), stays);
    const high = await here.open({ sessionId, epoch: 5n }, stays);
    const stale = there.push(numbered(sessionId, late, 2n), stays);
    await expect(stale).rejects.toMatchObject({
      code: "failed_precondition",
      reason: "STALE_EPOCH",
      message: expect.stringContaining("producer_epoch 4"),
    });
    await here.push(numbered(sessionId, high, 1n), stays);
    await deleteSession(ledger.database, sessionId);
    expect(await reasonOf(here.push(numbered(sessionId, high, 2n), stays))).toBe("SESSION_DELETED");
    expect(await reasonOf(here.open({ sessionId, epoch: 0n }, stays))).toBe("SESSION_DELETED");
    await Promise.all([here.stop(), there.stop()]);
  });
});

describe("a lost answer", () => {
  test("to a commit: the range is found, and its callers get their answer", async () => {
    const url = new URL(ledger.url);
    const proxy = await startTcpProxy({ host: url.hostname, port: Number(url.port) });
    url.port = String(proxy.port);
    const limits = { connectionsMax: 4, statementTimeoutMs: 10_000, lockTimeoutMs: 5_000 };
    const database = openDatabase({ url: () => url.href, ...limits });
    await database.start();
    const { ingest, published } = start(() => ledgerWriter(database));
    try {
      const stream = await ingest.open({ sessionId: "unheard", epoch: 0n }, stays);
      const held = await holdSession(sql, "unheard");
      const sent = [
        numbered("unheard", stream, 1n, 3),
        rangePush("unheard", stream, { from: 4n, to: 4n, refused: 1 }),
        numbered("unheard", stream, 5n),
      ].map((push) => answerOf(ingest.push(push, stays)));
      const waiting = async (): Promise<number> => {
        const [row] = await sql<{ n: number }[]>`
          select count(*)::int as n from pg_stat_activity
          where datname = current_database() and wait_event_type = 'Lock'`;
        return row?.n ?? 0;
      };
      await expect.poll(waiting, POLL).toBe(1);
      proxy.holdAnswers();
      await held.release();
      await expect.poll(() => numbersOf("unheard"), POLL).toEqual([1, 2, 3, 5]);
      proxy.cut();
      expect(await Promise.all(sent)).toEqual([[1n], [], [4n]]);
      expect(published.map(({ seq }) => seq)).toEqual([1n, 4n]);
      await ingest.push(numbered("unheard", stream, 6n), stays);
      expect(await numbersOf("unheard")).toEqual([1, 2, 3, 5, 6]);
    } finally {
      await ingest.stop();
      await database.stop();
      await proxy.stop();
    }
  });

  test("to a replaced stream: it is refused, and the new stream knows the stored number", async () => {
    let late: OpenedStream | undefined;
    const { ingest } = start((writer) => ({
      async append(pushes, options) {
        const outcomes = await writer.append(pushes, options);
        if (late !== undefined) return outcomes;
        const options1 = { createMissing: false, wait: true };
        const request = { sessionId: "late", epoch: 1n };
        const opening = await openStream(ledger.database, request, options1);
        if (opening.kind === "opened") late = opening;
        return failing("CONNECTION_CLOSED");
      },
    }));
    const stream = await ingest.open({ sessionId: "late", epoch: 1n }, stays);
    expect(await answerOf(ingest.push(numbered("late", stream, 1n, 2), stays))).toBe(
      "STREAM_REPLACED",
    );
    expect(late).toMatchObject({ lastClientSeq: 2n });
    expect(await numbersOf("late")).toEqual([1, 2]);
    await ingest.stop();
  });

  test("connections killed during commits: each number is stored once, in order", async () => {
    const { ingest } = start();
    const stream = await ingest.open({ sessionId: "killed", epoch: 0n }, stays);
    const answers: Promise<unknown>[] = [];
    let next = 1n;
    for (let round = 0; round < 20; round += 1) {
      for (let index = 0; index < 10; index += 1) {
        const count = 1 + ((round + index) % 3);
        answers.push(reasonOf(ingest.push(numbered("killed", stream, next, count), stays)));
        next += BigInt(count);
      }
      await killOthers();
    }
    expect(new Set(await Promise.all(answers))).toEqual(new Set(["done"]));
    expect(await numbersOf("killed")).toEqual(
      Array.from({ length: Number(next) - 1 }, (_, index) => index + 1),
    );
    await ingest.stop();
  });

  test("a client that moves between replicas sends again from the opened number, and each number is stored once", async () => {
    // Each replica hangs after a few batches, some with their connections killed. It stores the rest of
    // its events while the client already uses the next replica.
    const sessionId = "roams";
    const total = 200n;
    const limits = { ...LIMITS, batch: { rowsMax: 8, bytesMax: 1_000_000 } };
    const left: ReturnType<typeof start>["ingest"][] = [];
    const fates: Promise<unknown>[] = [];
    let wakePrevious = (): void => undefined;
    for (let round = 0; ; round += 1) {
      const hangs = Promise.withResolvers<void>();
      let settled = 0;
      const hanging = (writer: LedgerWriter): Partial<LedgerWriter> => ({
        async append(pushes, options) {
          if (settled >= 3) await hangs.promise;
          const outcomes = await writer.append(pushes, options);
          if (outcomes[0]?.kind !== "busy") settled += 1;
          return outcomes;
        },
      });
      const { ingest } = start(hanging, limits);
      left.push(ingest);
      const stream = await ingest.open({ sessionId, epoch: 1n }, stays);
      const sent: Promise<unknown>[] = [];
      for (let from = stream.lastClientSeq + 1n; from <= total; ) {
        const count = Math.min(1 + ((Number(from) + round) % 4), Number(total - from) + 1);
        sent.push(reasonOf(ingest.push(numbered(sessionId, stream, from, count), stays)));
        from += BigInt(count);
      }
      const killing = round % 4 === 1 ? killOthers() : undefined;
      await sent[0];
      await killing;
      fates.push(...sent);
      wakePrevious();
      wakePrevious = hangs.resolve;
      if (stream.lastClientSeq === total) break;
    }
    expect(left.length).toBeGreaterThan(5);
    expect(new Set(await Promise.all(fates))).toEqual(new Set(["done", "STREAM_REPLACED"]));
    await Promise.all(left.map((ingest) => ingest.stop()));
    expect(await numbersOf(sessionId)).toEqual(
      Array.from({ length: Number(total) }, (_, index) => index + 1),
    );
  });
});

async function killOthers(): Promise<void> {
  await sql`select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and application_name = 'session-ledger'`;
}

describe("an opening", () => {
  test("at once with many others on two replicas: one stream is the newest, and only that one may push", async () => {
    const replicas = [start().ingest, start().ingest];
    const openings = await Promise.all(
      Array.from({ length: 30 }, async (_, index) => {
        const ingest = replicas[index % 2] ?? failing("no replica");
        return { ingest, stream: await ingest.open({ sessionId: "many", epoch: 9n }, stays) };
      }),
    );
    const streams = openings.map(({ stream }) => Number(stream.stream));
    expect(streams.toSorted((a, b) => a - b)).toEqual(
      Array.from({ length: 30 }, (_, index) => index + 1),
    );
    const answers = await Promise.all(
      openings.map(async ({ ingest, stream }) => ({
        stream: stream.stream,
        answer: await reasonOf(ingest.push(numbered("many", stream, 1n), stays)),
      })),
    );
    for (const { stream, answer } of answers)
      expect(answer).toBe(stream === 30n ? "done" : "STREAM_REPLACED");
    expect(await numbersOf("many")).toEqual([1]);
    await Promise.all(replicas.map((ingest) => ingest.stop()));
  });

  test("waits for a locked session longer than lock_timeout, and delays no other opening", async () => {
    let timeouts = 0;
    const { ingest } = start((writer) => ({
      openStream: (request, options) =>
        writer.openStream(request, options).catch((error: unknown) => {
          timeouts += 1;
          throw error;
        }),
    }));
    await ingest.open({ sessionId: "stuck", epoch: 0n }, stays);
    const held = await holdSession(sql, "stuck");
    const stuck = Array.from({ length: 20 }, () =>
      ingest.open({ sessionId: "stuck", epoch: 0n }, stays),
    );
    let others = 0;
    const hasWaited = () => timeouts >= 4;
    for (; !hasWaited(); others += 1) {
      await ingest.open({ sessionId: `free-${others}`, epoch: 0n }, stays);
    }
    const isWaiting = await Promise.race([stuck[0], Promise.resolve("waits")]);
    await held.release();
    // Regression: the test wanted 50, which a busy machine does not do. An opening that waits for the
    // locked session would wait for one of the timeouts.
    expect(others).toBeGreaterThan(2 * timeouts);
    expect(isWaiting).toBe("waits");
    const streams = (await Promise.all(stuck)).map(({ stream }) => stream);
    expect(new Set(streams).size).toBe(20);
    await ingest.stop();
  });

  test("continues after lost connections, though it may open twice", async () => {
    let lost = 0;
    const { ingest } = start((writer) => ({
      async openStream(request, options) {
        const opening = await writer.openStream(request, options);
        return (lost += 1) < 3 ? failing("CONNECTION_CLOSED") : opening;
      },
    }));
    const stream = await ingest.open({ sessionId: "lost", epoch: 0n }, stays);
    expect(stream).toMatchObject({ epoch: 3n, stream: 3n });
    await ingest.push(numbered("lost", stream, 1n), stays);
    await ingest.stop();
  });

  test("ends when its caller leaves, after its time limit, and at a stop", async () => {
    const unreachable = () => ({ openStream: async () => failing("ECONNREFUSED") });
    const request = { sessionId: "ends", epoch: 0n };
    let asked = 0;
    const { ingest } = start(unreachable);
    expect(await reasonOf(ingest.open(request, () => (asked += 1) > 3))).toBe("CANCELLED");
    expect(asked).toBe(4);

    let nowMs = 0;
    const clock = { ...systemClock, monotonicMs: () => (nowMs += 4_000) };
    const slow = new Ingest(
      {
        writer: { ...ledgerWriter(ledger.database), ...unreachable() },
        publish: () => undefined,
        clock,
        metrics: createMetrics(),
      },
      LIMITS,
    );
    expect(await reasonOf(slow.open(request, stays))).toBe("DATABASE_UNAVAILABLE");

    const underWay = reasonOf(ingest.open(request, stays));
    await ingest.stop();
    expect(await underWay).toBe("SHUTTING_DOWN");
    expect(await reasonOf(ingest.open(request, stays))).toBe("SHUTTING_DOWN");
  });

  test("that is running delays a stop until it ends", async () => {
    const asked = Promise.withResolvers<void>();
    const gate = Promise.withResolvers<void>();
    const { ingest } = start((writer) => ({
      async openStream(request, options) {
        asked.resolve();
        await gate.promise;
        return writer.openStream(request, options);
      },
    }));
    const opening = reasonOf(ingest.open({ sessionId: "stop", epoch: 0n }, stays));
    await asked.promise;
    let hasStopped = false;
    const stopping = ingest.stop().then(() => (hasStopped = true));
    await new Promise(setImmediate);
    expect(hasStopped).toBe(false);
    gate.resolve();
    expect(await opening).toBe("done");
    await stopping;
  });

  test("is refused with the reason", async () => {
    const { ingest } = start();
    await ingest.open({ sessionId: "refused", epoch: 2n ** 63n - 1n }, stays);
    const lower = ingest.open({ sessionId: "refused", epoch: 7n }, stays);
    await expect(lower).rejects.toMatchObject({
      code: "failed_precondition",
      reason: "STALE_EPOCH",
      message: expect.stringContaining("producer_epoch 7"),
    });
    const above = ingest.open({ sessionId: "refused", epoch: 0n }, stays);
    await expect(above).rejects.toMatchObject({
      reason: "STALE_EPOCH",
      message: expect.stringContaining("9223372036854775807"),
    });
    await ingest.stop();
    const strict = start(() => ({
      openStream: (request, { wait }) =>
        openStream(ledger.database, request, { createMissing: false, wait }),
    })).ingest;
    const unknown = strict.open({ sessionId: "unknown", epoch: 0n }, stays);
    expect(await reasonOf(unknown)).toBe("SESSION_NOT_FOUND");
    const defect = start(() => ({ openStream: async () => failing("42601") })).ingest;
    expect(await reasonOf(defect.open({ sessionId: "x", epoch: 0n }, stays))).toBe("INTERNAL");
    const full = start(() => ({ openStream: async () => failing("53100") })).ingest;
    const unavailable = full.open({ sessionId: "x", epoch: 0n }, stays);
    expect(await reasonOf(unavailable)).toBe("DISK_FULL");
    await Promise.all([strict.stop(), defect.stop(), full.stop()]);
  });
});
