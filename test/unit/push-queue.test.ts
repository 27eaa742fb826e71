import { describe, expect, test } from "vitest";
import { ServiceError } from "@session-ledger/base/errors";
import { systemClock } from "@session-ledger/base/clock";
import { Ingest } from "../../src/ingest/ingest.ts";
import { PushQueue, type QueuedPush } from "../../src/ingest/queue.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import { newPush, newRow } from "../support/ledger.ts";

function queueOf(items: readonly Omit<QueuedPush, "push">[]): PushQueue<QueuedPush> {
  const queue = new PushQueue<QueuedPush>();
  for (const [n, item] of items.entries()) queue.add({ push: newPush(`s${n}`), ...item });
  return queue;
}

describe("a batch", () => {
  test("ends at its maximum of rows", () => {
    const queue = queueOf(Array.from({ length: 5 }, () => ({ rows: 2, bytes: 10 })));
    const limits = { rowsMax: 6, bytesMax: 1_000 };
    expect(queue.take(limits).map(({ rows }) => rows)).toEqual([2, 2, 2]);
    expect([queue.rows, queue.bytes]).toEqual([4, 20]);
    expect(queue.take(limits)).toHaveLength(2);
  });

  test("ends at its maximum of bytes, and always has one push", () => {
    const queue = queueOf([5_000, 600, 400, 1, 5_000].map((bytes) => ({ rows: 1, bytes })));
    const limits = { rowsMax: 100, bytesMax: 1_000 };
    const taken = (): readonly number[] => queue.take(limits).map(({ bytes }) => bytes);
    expect([taken(), taken(), taken()]).toEqual([[5_000], [600, 400], [1, 5_000]]);
    expect([queue.rows, queue.bytes]).toEqual([0, 0]);
  });
});

describe("the queue of pushes", () => {
  const row = newRow({ payload: "x".repeat(744) }); // 1,000 bytes with the estimated overhead.

  async function accepted(limits: { queueRowsMax: number; queueBytesMax: number }) {
    const writer = {
      append: () => new Promise<never>(() => undefined),
      readByAddress: () => Promise.resolve([]),
      openStream: () => new Promise<never>(() => undefined),
    };
    const batch = { rowsMax: 100, bytesMax: 1_000_000 };
    const parts = {
      writer,
      publish: () => undefined,
      clock: systemClock,
      metrics: createMetrics(),
    };
    const ingest = new Ingest(parts, { batch, ...limits });
    const refusals: ServiceError[] = [];
    for (let n = 0; n < 5; n += 1) {
      void ingest
        .push(newPush(`s${n}`, { rows: [row] }), () => false)
        .catch((error: unknown) => refusals.push(ServiceError.from(error)));
    }
    await Promise.resolve();
    await Promise.resolve();
    return { taken: 5 - refusals.length, refusals };
  }

  test("refuses a push above its maximum of bytes", async () => {
    const { taken, refusals } = await accepted({ queueRowsMax: 100, queueBytesMax: 3_000 });
    expect(taken).toBe(3);
    const refusal = { code: "overloaded", reason: "QUEUE_FULL", retryAfterMs: 250 };
    expect(refusals).toMatchObject([refusal, refusal]);
  });

  test("refuses a push above its maximum of rows", async () => {
    expect((await accepted({ queueRowsMax: 4, queueBytesMax: 1_000_000 })).taken).toBe(4);
  });
});
