/** A held session against everything that erases, also when the hold comes while it erases. */
import { sql } from "drizzle-orm";
import { expect, test } from "vitest";
import { eraseBatch, eraseSession } from "../../src/maintenance/erase.ts";
import { retentionPass } from "../../src/maintenance/retention.ts";
import { append } from "../../src/store/append.ts";
import type { Database } from "../../src/store/database.ts";
import { deleteSession, holdSession } from "../../src/store/deletion.ts";
import { getSession } from "../../src/store/sessions.ts";
import {
  finished,
  holdingOf,
  message,
  newPush,
  newRow,
  started,
  storeAged,
  useLedger,
} from "../support/ledger.ts";

const ledger = await useLedger();

const { signal } = new AbortController();
const ERASE = { marked: () => undefined, counted: () => undefined, signal };
const RETAIN = { afterMs: 86_400_000, sessionId: undefined, dryRun: false, signal };
const HELD = {
  code: "failed_precondition",
  reason: "SESSION_HELD",
  message: expect.stringContaining("case 7"),
};

/** Two runs that ended long ago, and the message of each. */
async function fill(sessionId: string): Promise<void> {
  const runs = [started("a", 9), finished("a", 9), started("b", 8), finished("b", 8)];
  await storeAged(ledger.database, { sessionId, stream: "events" }, runs);
  const said = [message("to a", 10), message("to b", 9)];
  await storeAged(ledger.database, { sessionId, stream: "messages" }, said);
}

async function stateOf(sessionId: string) {
  const [session] = await ledger.database.run(
    sql`select to_jsonb(s) as state from sessions s where id = ${sessionId}`,
  );
  return { rows: await holdingOf(ledger.database, sessionId), session: session?.["state"] };
}

test("a held session is neither deleted nor erased, and loses no row to retention", async () => {
  const { database } = ledger;
  await fill("held");
  expect(await holdSession(database, "held", "case 7")).toMatchObject({ hold: "case 7" });
  const then = await stateOf("held");
  await expect(deleteSession(database, "held")).rejects.toMatchObject(HELD);
  await expect(eraseSession(database, "held", ERASE)).rejects.toMatchObject(HELD);
  for (const dryRun of [true, false]) {
    const summary = await retentionPass({ database }, { ...RETAIN, dryRun });
    expect(summary).toMatchObject({ sessionsErased: 0, messages: 0, events: 0 });
  }
  // Also its record is as before: a refused call changes no time.
  expect(await stateOf("held")).toEqual(then);

  const push = newPush("held", { rows: [newRow()] });
  const options = { createMissing: false, wait: true };
  expect(await append(database, [push], options)).toMatchObject([{ kind: "stored" }]);

  await holdSession(database, "held", null);
  expect(await retentionPass({ database }, RETAIN)).toMatchObject({ messages: 2, events: 4 });
  expect(await deleteSession(database, "held")).toBe(true);
  expect(await eraseSession(database, "held", ERASE)).toEqual({ messages: 0n, events: 1n });
});

test("a deleted session can be held, and an erased or unknown one cannot", async () => {
  const { database } = ledger;
  await fill("deleted");
  await deleteSession(database, "deleted");
  expect(await holdSession(database, "deleted", "case 7")).toMatchObject({ hold: "case 7" });
  expect(await getSession(database, "deleted")).toBeUndefined();
  await expect(eraseSession(database, "deleted", ERASE)).rejects.toMatchObject(HELD);
  await holdSession(database, "deleted", null);
  await eraseSession(database, "deleted", ERASE);
  expect(await holdSession(database, "deleted", "late")).toBeUndefined();
  expect(await holdSession(database, "never", "never")).toBeUndefined();
});

/** Calls `between` before its statement with this number, from 0. */
function before(place: number, between: () => Promise<void>): Database {
  let statements = 0;
  return {
    ...ledger.database,
    async run(statement, how) {
      if (statements === place) await between();
      statements += 1;
      return ledger.database.run(statement, how);
    },
  };
}

/** Holds the session before each statement in turn, until there is none; gives the rows that are left. */
async function heldBeforeEach(
  name: string,
  erase: (database: Database, sessionId: string) => Promise<unknown>,
) {
  const ends: { readonly end: unknown; readonly rows: number }[] = [];
  for (let place = 0; ; place += 1) {
    const sessionId = `${name} ${place}`;
    await fill(sessionId);
    let then: Awaited<ReturnType<typeof stateOf>> | undefined;
    const holding = before(place, async () => {
      await holdSession(ledger.database, sessionId, "case 7");
      then = await stateOf(sessionId);
    });
    const end = await erase(holding, sessionId).catch((error: unknown) => error);
    if (then === undefined) return ends;
    const { events, messages } = await holdingOf(ledger.database, sessionId);
    expect({ events, messages }).toMatchObject({
      events: then.rows.events,
      messages: then.rows.messages,
    });
    ends.push({ end, rows: events.length + messages.length });
  }
}

test("a hold that comes before any statement of an erasure ends it, with every row left so far", async () => {
  const ends = await heldBeforeEach("erased", (database, id) => eraseSession(database, id, ERASE));
  expect(ends).toEqual(ends.map(({ rows }) => ({ rows, end: expect.objectContaining(HELD) })));
  expect(new Set(ends.map(({ rows }) => rows))).toEqual(new Set([6, 4, 0]));
});

test("a hold that comes before any statement of retention keeps every row left so far", async () => {
  const ends = await heldBeforeEach("retained", (database, sessionId) =>
    retentionPass({ database }, { ...RETAIN, sessionId }),
  );
  expect(new Set(ends.map(({ rows }) => rows))).toEqual(new Set([6, 4, 0]));
});

test("no batch that waits for the lock of a hold, or comes with it, erases a row after it", async () => {
  const { database } = ledger;
  for (let round = 0; round < 40; round += 1) {
    const sessionId = `race ${round}`;
    await fill(sessionId);
    const beginning = { sessionId, stream: "events" } as const;
    const batches = Array.from({ length: 4 }, () => eraseBatch(database, beginning));
    const holding = holdSession(database, sessionId, "case 7").then(() => stateOf(sessionId));
    const [{ rows }] = await Promise.all([holding, ...batches]);
    expect(await holdingOf(database, sessionId)).toEqual(rows);
    expect(await eraseBatch(database, beginning)).toMatchObject({ rows: 0n, hold: "case 7" });
  }
});
