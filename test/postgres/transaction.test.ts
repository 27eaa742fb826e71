/** A transaction that loses its connection: all statements or none, and one error for the caller. */
import { sql } from "drizzle-orm";
import { expect, test } from "vitest";
import type { Transaction } from "../../src/store/database.ts";
import { useLedger, useSql } from "../support/ledger.ts";

const ledger = await useLedger();
const client = useSql(ledger.url, 1);
await client`create table told (word text)`;

const words = async () =>
  (await client`select word from told order by word`).map((row) => row["word"]);
const tell = (transaction: Transaction, word: string) =>
  transaction.execute(sql`insert into told values (${word})`);

async function pidOf(transaction: Transaction): Promise<number> {
  const [row] = await transaction.execute(sql`select pg_backend_pid() as pid`);
  return Number(row?.["pid"]);
}

const isConnected = async (pid: number) =>
  (await client`select from pg_stat_activity where pid = ${pid}`).length > 0;

test("a transaction is committed whole, and its connection ends with it", async () => {
  const pid = await ledger.database.transaction(async (transaction) => {
    await tell(transaction, "a");
    await tell(transaction, "b");
    return pidOf(transaction);
  });
  expect(await words()).toEqual(["a", "b"]);
  await expect.poll(() => isConnected(pid)).toBe(false);
});

test("a transaction whose work fails is rolled back, and its locks are free soon", async () => {
  const failing = ledger.database.transaction(async (transaction) => {
    await transaction.execute(sql`lock table told in access exclusive mode`);
    await tell(transaction, "failed");
    throw new Error("of the work");
  });
  await expect(failing).rejects.toThrow("of the work");
  expect(await words()).toEqual(["a", "b"]);
});

// Bug: postgres.js 3.4.9 sent what came next to a socket that was gone, outside of every promise.
const LOSSES = {
  "between two statements": async (_: Transaction, pid: number) => {
    await client`select pg_terminate_backend(${pid})`;
    while (await isConnected(pid));
  },
  "in a statement": async (transaction: Transaction, pid: number) => {
    const asleep = transaction.execute(sql`select pg_sleep(4)`);
    await Promise.allSettled([asleep, client`select pg_terminate_backend(${pid})`]);
  },
} as const;

test.each(["between two statements", "in a statement"] as const)(
  "lost %s: nothing of it is kept, nothing more is sent, and its caller gets the error",
  async (when) => {
    const failures: unknown[] = [];
    const losing = ledger.database.transaction(async (transaction) => {
      await tell(transaction, "lost");
      await LOSSES[when](transaction, await pidOf(transaction));
      // Statements after the first failure fail with it too, and write on no other connection.
      for (const word of ["after", "later"]) {
        await tell(transaction, word).catch((error: unknown) => failures.push(error));
      }
      await tell(transaction, "end");
    });
    await expect(losing).rejects.toMatchObject({ reason: "DATABASE_UNAVAILABLE" });
    expect(failures).toHaveLength(2);
    expect(await words()).toEqual(["a", "b"]);
  },
);
