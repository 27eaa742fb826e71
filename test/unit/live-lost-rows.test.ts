/**
 * A database that goes back under live watches: rows are lost, and other rows take their numbers.
 */
import { expect, test } from "vitest";
import { databaseAway, settled, type SlowTable } from "../support/slow-table.ts";
import { Follower, watching } from "../support/watching.ts";

const LOST = { code: "out_of_range", reason: "CURSOR_BEYOND_HEAD" };

function rows(table: SlowTable, count: number): void {
  for (let at = 0; at < count; at += 1) table.event("s");
}

/** Loses the newest rows, and gives their numbers to new rows with these ids. */
function goBack(table: SlowTable, lost: number, ids: readonly string[] = []) {
  table.lose(lost);
  return ids.map((id) => table.event("s", { id }));
}

async function watched(count: number) {
  const world = watching();
  rows(world.table, count);
  const follower = new Follower(world.live, { sessionId: "s" });
  await settled();
  expect(follower.seqs).toHaveLength(count);
  return { ...world, follower };
}

test("a poll that finds a lower head ends the watches of the session", async () => {
  const { live, table, follower } = await watched(5);
  goBack(table, 2);
  live.onMissed();
  await settled();
  expect(follower.ended).toMatchObject(LOST);
  expect(live.counts()).toMatchObject({ watchers: 0, windowBytes: 0 });
});

test("a poll that no longer finds a watched session ends its watches", async () => {
  const { live, table, follower } = await watched(2);
  table.lose(2);
  table.known.clear();
  live.onMissed();
  await settled();
  expect(follower.ended).toMatchObject(LOST);
});

test("a commit that reuses a number ends the watches that have seen the number", async () => {
  const { live, table, follower } = await watched(5);
  live.onCommit(goBack(table, 2, ["n4", "n5", "n6", "n7"]));
  await settled();
  expect(follower.ended).toMatchObject(LOST);
  expect(follower.seqs).toEqual([1n, 2n, 3n, 4n, 5n]);
  const later = new Follower(live, { sessionId: "s" });
  await settled();
  expect(later.seqs).toEqual([1n, 2n, 3n, 4n, 5n, 6n, 7n]);
});

test("a commit whose rows were already read as a page ends no watch", async () => {
  const { live, table, follower } = await watched(3);
  const row = table.event("s");
  live.onHint("s", table.head("s"));
  await settled();
  live.onCommit([row]);
  live.onErase("s"); // The window is empty now.
  live.onCommit([row]);
  live.onCommit([table.event("s")]);
  await settled();
  expect(follower.ended).toBeUndefined();
  expect(follower.seqs).toEqual([1n, 2n, 3n, 4n, 5n]);
});

test("a new server with other rows under lost numbers ends the watches that have seen them", async () => {
  const { live, table, follower } = await watched(5);
  goBack(table, 2, ["n4", "n5", "n6"]);
  live.onOtherServer();
  live.onCommit([table.event("s")]);
  await settled();
  expect(follower.ended).toMatchObject(LOST);
  expect(follower.seqs).toEqual([1n, 2n, 3n, 4n, 5n]);
});

test("a new server without losses ends no watch, also after rows were erased", async () => {
  const { live, table, follower } = await watched(5);
  table.rows.splice(4, 1);
  table.event("s", { seq: 6n });
  live.onOtherServer();
  await settled();
  live.onCommit([table.event("s")]);
  await settled();
  expect(follower.ended).toBeUndefined();
  expect(follower.seqs).toEqual([1n, 2n, 3n, 4n, 5n, 6n, 7n]);
});

test("a watch that begins during the lookup of seen rows is not ended by it", async () => {
  const { live, table, follower } = await watched(5);
  goBack(table, 2, ["n4", "n5", "n6"]);
  live.onOtherServer();
  const later = new Follower(live, { sessionId: "s" });
  await settled();
  expect(follower.ended).toMatchObject(LOST);
  expect(later.ended).toBeUndefined();
  expect(later.seqs).toEqual([1n, 2n, 3n, 4n, 5n, 6n]);
});

test("delivery pauses while seen rows cannot be looked up, and continues afterwards", async () => {
  const { live, table, timers, follower } = await watched(3);
  table.failure = databaseAway();
  live.onOtherServer();
  await settled();
  live.onCommit([table.event("s")]);
  await settled();
  expect(follower.seqs).toHaveLength(3);
  table.failure = undefined;
  timers.fireAll();
  await settled();
  expect(follower.ended).toBeUndefined();
  expect(follower.seqs).toHaveLength(4);
});
