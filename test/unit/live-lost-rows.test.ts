/** A database that goes back under live watches: rows are gone, and other rows have their numbers. */
import { expect, test } from "vitest";
import { settled, type SlowTable } from "../support/slow-table.ts";
import { Follower, watching } from "../support/watching.ts";

const LOST = { code: "out_of_range", reason: "CURSOR_BEYOND_HEAD" };

function rows(table: SlowTable, count: number): void {
  for (let at = 0; at < count; at += 1) table.event("s");
}

/** The newest rows are lost, and as many others as there are ids take their numbers. */
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

test("a poll that finds a head below the one that was seen ends the watches of the session", async () => {
  const { live, table, follower } = await watched(5);
  goBack(table, 2);
  live.missed();
  await settled();
  expect(follower.ended).toMatchObject(LOST);
  expect(live.counts()).toMatchObject({ watchers: 0, windowBytes: 0 });
});

test("a poll that finds nothing of a watched session any more ends its watches", async () => {
  const { live, table, follower } = await watched(2);
  table.lose(2);
  table.known.clear();
  live.missed();
  await settled();
  expect(follower.ended).toMatchObject(LOST);
});

test("a commit with a number that was seen, of another row, is delivered to nobody who saw the number", async () => {
  const { live, table, follower } = await watched(5);
  live.committed(goBack(table, 2, ["n4", "n5", "n6", "n7"]));
  await settled();
  expect(follower.ended).toMatchObject(LOST);
  expect(follower.seqs).toEqual([1n, 2n, 3n, 4n, 5n]);
  const later = new Follower(live, { sessionId: "s" });
  await settled();
  expect(later.seqs).toEqual([1n, 2n, 3n, 4n, 5n, 6n, 7n]);
});

test("a commit whose rows a page has brought before its answer ends no watch", async () => {
  const { live, table, follower } = await watched(3);
  const row = table.event("s");
  live.hinted("s", table.head("s"));
  await settled();
  live.committed([row]);
  live.erased("s"); // The window holds nothing of it any more.
  live.committed([row]);
  live.committed([table.event("s")]);
  await settled();
  expect(follower.ended).toBeUndefined();
  expect(follower.seqs).toEqual([1n, 2n, 3n, 4n, 5n]);
});

test("another server that has taken the lost numbers for other rows ends the watches that saw them", async () => {
  const { live, table, follower } = await watched(5);
  goBack(table, 2, ["n4", "n5", "n6"]);
  live.otherServer();
  live.committed([table.event("s")]);
  await settled();
  expect(follower.ended).toMatchObject(LOST);
  expect(follower.seqs).toEqual([1n, 2n, 3n, 4n, 5n]);
});

test("another server that has lost nothing ends no watch, also of rows that were erased meanwhile", async () => {
  const { live, table, follower } = await watched(5);
  table.rows.splice(4, 1);
  table.event("s", { seq: 6n });
  live.otherServer();
  await settled();
  live.committed([table.event("s")]);
  await settled();
  expect(follower.ended).toBeUndefined();
  expect(follower.seqs).toEqual([1n, 2n, 3n, 4n, 5n, 6n, 7n]);
});

test("a watch that begins while rows are looked up for those before it is not ended with them", async () => {
  const { live, table, follower } = await watched(5);
  goBack(table, 2, ["n4", "n5", "n6"]);
  live.otherServer();
  const later = new Follower(live, { sessionId: "s" });
  await settled();
  expect(follower.ended).toMatchObject(LOST);
  expect(later.ended).toBeUndefined();
  expect(later.seqs).toEqual([1n, 2n, 3n, 4n, 5n, 6n]);
});

test("nothing is delivered while the rows that were seen cannot be looked up, and goes on when they can", async () => {
  const { live, table, timers, follower } = await watched(3);
  table.failure = new Error("the database is away");
  live.otherServer();
  await settled();
  live.committed([table.event("s")]);
  await settled();
  expect(follower.seqs).toHaveLength(3);
  table.failure = undefined;
  timers.fireAll();
  await settled();
  expect(follower.ended).toBeUndefined();
  expect(follower.seqs).toHaveLength(4);
});
