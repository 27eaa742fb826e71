/** Cancels in the table: judged under the lock, named by the session until the run ends, found by an index. */
import { expect, test } from "vitest";
import { append } from "../../src/store/append.ts";
import {
  cancelStatement,
  createCancelStore,
  openCancelsStatement,
} from "../../src/store/cancels.ts";
import { sql } from "../../src/store/database.ts";
import type { Push } from "../../src/store/rows.ts";
import { openStream } from "../../src/store/streams.ts";
import { newPush, newRow, useLedger } from "../support/ledger.ts";

const OPTIONS = { createMissing: true, wait: true };

const ledger = await useLedger();

const started = (sessionId: string, runId = "r1", epoch?: bigint): Push =>
  newPush(sessionId, {
    epoch,
    rows: [newRow({ eventType: "RUN_STARTED", mark: { kind: "open", runId } })],
  });
const finished = (sessionId: string): Push =>
  newPush(sessionId, { rows: [newRow({ eventType: "RUN_FINISHED", mark: { kind: "close" } })] });
const cancelling = (sessionId: string, fields: Partial<Push> = {}): Push =>
  newPush(sessionId, {
    stream: "messages",
    seen: { turnSeq: undefined, openRunId: "r1", epoch: undefined, eventSeq: undefined },
    cancels: true,
    rows: [newRow({ eventType: "lifecycle", payload: "{}" })],
    ...fields,
  });
const message = (sessionId: string): Push => newPush(sessionId, { stream: "messages" });

async function kindsOf(...pushes: readonly Push[]): Promise<readonly string[]> {
  return (await append(ledger.database, pushes, OPTIONS)).map(({ kind }) => kind);
}

async function cancelSeqOf(sessionId: string): Promise<bigint | undefined> {
  const state = await createCancelStore(ledger.database).readRun({ sessionId, key: "none" });
  return state?.cancelSeq;
}

test("a cancel is named by its session until the run ends, whatever shares its batch", async () => {
  await kindsOf(message("a"), started("a"));
  expect(await kindsOf(cancelling("a"), message("a"))).toEqual(["stored", "stored"]);
  expect(await cancelSeqOf("a")).toBe(2n);
  await kindsOf(message("a"));
  expect(await cancelSeqOf("a")).toBe(2n);
  await kindsOf(finished("a"));
  expect(await cancelSeqOf("a")).toBeUndefined();
  await kindsOf(started("a"));
  expect(await kindsOf(cancelling("a"), finished("a"))).toEqual(["stored", "stored"]);
  expect(await cancelSeqOf("a")).toBeUndefined();
  // The next run is not cancelled.
  await kindsOf(started("a"));
  expect(await kindsOf(cancelling("a"), finished("a"), started("a", "r2"))).toEqual([
    "stored",
    "stored",
    "stored",
  ]);
  expect(await cancelSeqOf("a")).toBeUndefined();
});

test("a cancel is refused when another run is open by then, or was cancelled, also without a key", async () => {
  await kindsOf(started("b", "r2"));
  expect(await kindsOf(cancelling("b"))).toEqual(["turn_moved"]);
  await kindsOf(started("b"));
  expect(await kindsOf(cancelling("b"))).toEqual(["stored"]);
  expect(await kindsOf(cancelling("b"))).toEqual(["turn_moved"]);
  await kindsOf(finished("b"));
  expect(await kindsOf(cancelling("b"))).toEqual(["turn_moved"]);
  const { rows } = await ledger.database
    .run(sql`
    select row_count::text as rows from sessions where id = 'b'`)
    .then(([row]) => row ?? {});
  expect(rows).toBe("4");
});

test("a push without rows raises the epoch, for the state that was read", async () => {
  await kindsOf(started("c", "r1", 4n));
  const seen = { turnSeq: undefined, openRunId: "r1", epoch: 4n, eventSeq: undefined };
  const raising = newPush("c", { seen, epoch: 5n, rows: [] });
  expect(await kindsOf(raising)).toEqual(["stored"]);
  expect(await kindsOf(raising)).toEqual(["turn_moved"]);
  expect(await kindsOf(started("c", "r1", 4n))).toEqual(["stale_epoch"]);
  const ending = { ...finished("c"), epoch: 5n, seen: { ...seen, epoch: 5n, eventSeq: 0n } };
  expect(await kindsOf(ending)).toEqual(["turn_moved"]);
  expect(await kindsOf({ ...ending, seen: { ...ending.seen, eventSeq: 1n } })).toEqual(["stored"]);
});

test("an opened stream knows whether the open run is cancelled", async () => {
  const opened = () => openStream(ledger.database, { sessionId: "d", epoch: 1n }, OPTIONS);
  await kindsOf(started("d"));
  expect(await opened()).toMatchObject({ kind: "opened", isCancelled: false });
  const seen = { turnSeq: undefined, openRunId: "r1", epoch: 1n, eventSeq: undefined };
  await kindsOf(cancelling("d", { seen }));
  expect(await opened()).toMatchObject({ kind: "opened", isCancelled: true });
});

test("the cancels of open runs are read by pages, without those of deleted sessions", async () => {
  const sessionIds = ["e1", "e2", "e3", "e4"];
  for (const sessionId of sessionIds) {
    await kindsOf(started(sessionId));
    await kindsOf(cancelling(sessionId));
  }
  await ledger.database.run(sql`update sessions set deleted_at = now() where id = 'e2'`);
  await ledger.database.run(sql`delete from session_messages where session_id = 'e4'`);
  const store = createCancelStore(ledger.database);
  const first = await store.openCancels({ after: "e", rowsMax: 2 });
  expect(first.map(({ sessionId }) => sessionId)).toEqual(["e1", "e3"]);
  expect(first[0]).toMatchObject({ runId: "r1", seq: 1n, payload: "{}" });
  expect(first[0]?.waitedMs).toBeGreaterThan(0);
  const rest = await store.openCancels({ after: "e3", rowsMax: 2 });
  expect(rest).toEqual([
    { sessionId: "e4", runId: "r1", seq: 1n, payload: undefined, waitedMs: undefined },
  ]);
});

test("the cancels of open runs are found by their index among many running sessions", async () => {
  await ledger.database.run(sql`
    insert into sessions (id, created_at, updated_at, open_run_id)
    select 'many-' || n, now(), now(), 'r' from generate_series(1, 5000) n`);
  await ledger.database.run(sql`analyze sessions`);
  const statements = [openCancelsStatement({ after: "", rowsMax: 500 }), cancelStatement("e1", 1n)];
  const lines = [];
  for (const statement of statements)
    lines.push(...(await ledger.database.run(sql`explain ${statement}`)));
  const plan = lines.map((line) => String(line["QUERY PLAN"])).join("\n");
  expect(plan).toMatch(/sessions_cancelled/);
  expect(plan).toMatch(/session_messages_session_id_seq_pk/);
  expect(plan).not.toMatch(/Seq Scan/);
});
