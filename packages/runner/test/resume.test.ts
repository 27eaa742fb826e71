/**
 * A watch over ending connections gives each row after the cursor once and in order, for any
 * moments of their ends and any rows that the service repeats.
 *
 * Method: the table is an array of rows of one to four numbers; a connection sends the rows after
 * its cursor, including the row that the cursor is inside, and ends after a random number of rows,
 * with a failure or without one. The model is the table after the first cursor.
 */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { RpcFailure } from "@session-ledger/runner/internal/failure";
import { resume } from "@session-ledger/runner/internal/session-reader";
import type { RetryOptions } from "@session-ledger/runner/internal/retry";
import { properties } from "../../../test/support/random.ts";

interface Row {
  readonly lastSeq: bigint;
}

type End = "clean" | "lost" | "full" | "late";

const FAILURES: Record<Exclude<End, "clean">, RpcFailure> = {
  lost: new RpcFailure("UNAVAILABLE", "lost"),
  full: new RpcFailure("RESOURCE_EXHAUSTED", "full", { retryAfterMs: 10 }),
  late: new RpcFailure("DEADLINE_EXCEEDED", "late"),
};

const noPause: Pick<RetryOptions, "wait"> = { wait: () => Promise.resolve() };

async function take<T>(rows: AsyncGenerator<T>, count: number): Promise<readonly T[]> {
  const taken: T[] = [];
  if (count === 0) return taken;
  for await (const row of rows) if (taken.push(row) === count) break;
  return taken;
}

test("a watch gives each row once and in order, whenever connections end", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.integer({ min: 1, max: 4 }), { maxLength: 12 }),
      fc.nat(20),
      fc.array(fc.tuple(fc.nat(3), fc.constantFrom<End>("clean", "lost", "full", "late"))),
      fc.nat(2),
      async (counts, first, ends, repeated) => {
        let seq = 0n;
        const table = counts.map((count): Row => ({ lastSeq: (seq += BigInt(count)) }));
        const left = [...ends];
        async function* open(cursor: bigint, onAttached: () => void): AsyncGenerator<Row> {
          onAttached();
          const start = table.findIndex(({ lastSeq }) => lastSeq > cursor);
          if (start === -1) return;
          const end = left.shift();
          const rows = table.slice(Math.max(0, start - repeated));
          if (end === undefined) return yield* rows;
          yield* rows.slice(0, end[0]);
          if (end[1] !== "clean") throw FAILURES[end[1]];
        }
        const afterSeq = BigInt(first);
        const expected = table.filter(({ lastSeq }) => lastSeq > afterSeq);
        const rows = resume<Row>(
          { open, afterSeq, cursorOf: ({ lastSeq }) => lastSeq },
          { retryForMs: 60_000, random: () => 0, ...noPause },
        );
        expect(await take(rows, expected.length)).toEqual(expected);
      },
    ),
    properties({ runs: 500 }),
  );
});

test("a watch opens again when its token expires, and ends when the next one is refused too", async () => {
  const refused = new RpcFailure("UNAUTHENTICATED", "the bearer token is not accepted");
  let opened = 0;
  async function* open(cursor: bigint, onAttached: () => void): AsyncGenerator<Row> {
    opened += 1;
    if (opened > 3) throw refused;
    onAttached();
    yield { lastSeq: cursor + 1n };
    throw refused;
  }
  const rows = resume<Row>(
    { open, afterSeq: 0n, cursorOf: ({ lastSeq }) => lastSeq },
    { retryForMs: 60_000, ...noPause },
  );
  expect(await take(rows, 3)).toEqual([1n, 2n, 3n].map((lastSeq) => ({ lastSeq })));
  const more = resume<Row>(
    { open, afterSeq: 0n, cursorOf: ({ lastSeq }) => lastSeq },
    { retryForMs: 60_000, ...noPause },
  );
  await expect(take(more, 1)).rejects.toBe(refused);
});

describe("a watch ends", () => {
  async function* broken(failure: RpcFailure): AsyncGenerator<Row, void, undefined> {
    yield* [];
    throw failure;
  }

  test.each(["NOT_FOUND", "OUT_OF_RANGE", "INVALID_ARGUMENT", "PERMISSION_DENIED"] as const)(
    "at once on %s, which a wait does not change",
    async (code) => {
      const failure = new RpcFailure(code, "no");
      const rows = resume<Row>(
        { open: () => broken(failure), afterSeq: 0n, cursorOf: ({ lastSeq }) => lastSeq },
        { retryForMs: 60_000, ...noPause },
      );
      await expect(rows.next()).rejects.toBe(failure);
    },
  );

  /** The number of connections in a second of a watch whose connections last `heldMs` each. */
  async function connectionsIn(heldMs: number): Promise<number> {
    let nowMs = 0;
    let opened = 0;
    const rows = resume<Row>(
      {
        open: (_, onAttached) => {
          opened += 1;
          onAttached();
          nowMs += heldMs;
          return broken(opened < 100 ? FAILURES.lost : new RpcFailure("NOT_FOUND", "the end"));
        },
        afterSeq: 0n,
        cursorOf: ({ lastSeq }) => lastSeq,
      },
      {
        retryForMs: 1_000,
        clock: { nowMicros: () => 0n, monotonicMs: () => nowMs },
        wait: (pauseMs) => {
          nowMs += pauseMs;
          return Promise.resolve();
        },
      },
    );
    await expect(rows.next()).rejects.toBeInstanceOf(RpcFailure);
    return opened;
  }

  test("when the service accepts and drops it again and again", async () => {
    expect(await connectionsIn(0)).toBeLessThan(10);
  });

  test("but not after rare cuts in a long life without rows", async () => {
    expect(await connectionsIn(60_000)).toBe(100);
  });
});
