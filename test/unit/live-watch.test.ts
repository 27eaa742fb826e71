/**
 * Live delivery, one fact at a time: reads of the table, ends of a watch, and limits.
 * test/property/live-watch.property.test.ts shows that no row is lost or repeated.
 */
import { getEventListeners } from "node:events";
import { describe, expect, test } from "vitest";
import { databaseAway, settled } from "../support/slow-table.ts";
import { Follower, watching } from "../support/watching.ts";
import { describeUnitContract } from "../support/unit-contract.ts";

const seqs = (from: number, to: number): bigint[] =>
  Array.from({ length: to - from + 1 }, (_, index) => BigInt(from + index));

describe("a row committed on this instance", () => {
  test("reaches waiting watchers without a read of the table", async () => {
    const { live, table } = watching();
    const followers = [1, 2, 3].map(() => new Follower(live, { sessionId: "s" }));
    await settled();
    live.onCommit([table.event("s"), table.event("s", { eventCount: 3 }), table.event("s")]);
    await settled();
    for (const { seqs: got } of followers) expect(got).toEqual([1n, 2n, 5n]);
    expect(table.pagesRead).toBe(0);
  });

  test("brings earlier rows of other instances with one read for all watchers", async () => {
    const { live, table } = watching();
    const followers = Array.from({ length: 50 }, () => new Follower(live, { sessionId: "s" }));
    await settled();
    table.event("s");
    table.event("s");
    live.onCommit([table.event("s")]);
    await settled();
    for (const { seqs: got } of followers) expect(got).toEqual([1n, 2n, 3n]);
    expect(table.pagesRead).toBe(1);
  });

  test("is timed from its publication to the waiting watcher", async () => {
    const { live, table, metrics } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    live.onCommit([table.event("s")]);
    await settled();
    expect(follower.seqs).toEqual([1n]);
    const text = await metrics.text();
    expect(text).toContain("session_ledger_watch_lag_seconds_count 1");
    expect(text).toContain('session_ledger_watchers{stream="events"} 1');
  });
});

/** Five events, in pages of two. */
async function readingAhead() {
  const { live, table } = watching({ pageRowsMax: 2 });
  for (let count = 0; count < 5; count += 1) table.event("s");
  const { signal } = new AbortController();
  const watcher = await live.attach({ stream: "events", sessionId: "s", signal });
  const held: (readonly bigint[])[] = [];
  const deliveries = watcher.follow({
    after: 0n,
    until: undefined,
    onRows: (rows) => void held.push(rows.map(({ seq }) => seq)),
  });
  const next = async (): Promise<readonly bigint[]> => {
    const { value } = await deliveries.next();
    return value?.kind === "rows" ? value.rows.map(({ seq }) => seq) : next();
  };
  return { live, table, held, next };
}

describe("reads of the table", () => {
  test("happen page by page for a watcher that begins before the head, until it is live", async () => {
    const { live, table } = watching({ pageRowsMax: 4 });
    for (let count = 0; count < 10; count += 1) table.event("s");
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    expect(table.pagesRead).toBe(3);
    live.onCommit([table.event("s")]);
    await settled();
    expect(follower.seqs).toEqual(seqs(1, 11));
    expect(table.pagesRead).toBe(3);
  });

  test("are one page ahead of a consumer that counts its memory", async () => {
    const { table, held, next } = await readingAhead();
    expect(await next()).toEqual([1n, 2n]);
    await settled();
    expect(held).toEqual([[1n, 2n, 3n, 4n]]);
    expect(table.pagesRead).toBe(2);
    expect(await next()).toEqual([3n, 4n]);
    await settled();
    expect(await next()).toEqual([5n]);
    expect(held).toEqual([
      [1n, 2n, 3n, 4n],
      [3n, 4n, 5n],
    ]);
    expect(table.pagesRead).toBe(3);
  });

  test("are repeated when the page ahead was read before rows were erased", async () => {
    const { live, table, next } = await readingAhead();
    expect(await next()).toEqual([1n, 2n]);
    await settled();
    table.erase("s", 3n);
    live.onErase("s");
    expect(await next()).toEqual([4n, 5n]);
    expect(table.pagesRead).toBe(3);
  });

  test("are not needed for a paused watcher, and it causes none for others", async () => {
    const { live, table } = watching({ windowRowsMax: 2, pageRowsMax: 2 });
    const still = new Follower(live, { sessionId: "s" });
    const quick = new Follower(live, { sessionId: "s" });
    await settled();
    still.standStill();
    for (let count = 0; count < 9; count += 1) {
      live.onCommit([table.event("s")]);
      await settled();
    }
    expect(quick.seqs).toEqual(seqs(1, 9));
    expect(still.seqs).toEqual([1n]);
    expect(table.pagesRead).toBe(0);
    still.goOn();
    await settled();
    expect(still.seqs).toEqual(seqs(1, 9));
    expect(table.pagesRead).toBe(3); // 2 to 3, 4 to 5, 6 to 7; the window holds 8 and 9.
  });

  test("do not happen for a hint while no watcher waits", async () => {
    const { live, table } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    follower.standStill();
    live.onCommit([table.event("s")]);
    await settled();
    table.event("s");
    live.onHint("s", table.head("s"));
    await settled();
    expect(table.pagesRead).toBe(0);
    follower.goOn();
    await settled();
    expect(follower.seqs).toEqual([1n, 2n]);
  });

  test("run a few at a time, and a watcher that leaves gives up its turn", async () => {
    const { live, table } = watching({ pageReadsMax: 2 });
    table.event("s");
    table.fast = false;
    const followers = Array.from({ length: 5 }, () => new Follower(live, { sessionId: "s" }));
    await table.holdPages();
    expect(table.pending).toHaveLength(2);
    followers[2]?.leave();
    await settled();
    for (const expected of [2, 2, 1, 0]) {
      table.pending[0]?.answer("now");
      await settled();
      expect(table.pending).toHaveLength(expected);
    }
    expect(followers.map((follower) => follower.seqs.length)).toEqual([1, 1, 0, 1, 1]);
    expect(followers[2]?.ended).toBeNull();
  });

  test("skip erased rows of a slow watcher without spinning", async () => {
    const { live, table } = watching({ windowRowsMax: 1, pageRowsMax: 1 });
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    follower.standStill();
    for (let count = 0; count < 5; count += 1) {
      live.onCommit([table.event("s")]);
      await settled();
    }
    table.erase("s", 5n);
    follower.goOn();
    await settled();
    expect(follower.seqs).toEqual([1n, 5n]); // 5 is still in the window.
    expect(table.pagesRead).toBe(1);
  });

  test("happen once for a false hint", async () => {
    const { live, table } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    live.onHint("s", { messageSeq: 0n, eventSeq: 7n, deleted: false });
    await settled();
    expect(table.pagesRead).toBe(1);
    live.onCommit([table.event("s")]);
    await settled();
    expect(follower.seqs).toEqual([1n]);
  });

  test("of heads are shared by watches that begin together", async () => {
    const { live, table } = watching();
    table.fast = false;
    const followers = Array.from(
      { length: 100 },
      (_, index) => new Follower(live, { sessionId: `s${index % 10}` }),
    );
    table.pending[0]?.answer("now");
    await settled();
    table.pending[0]?.answer("now");
    await settled();
    expect(table.headsRead).toBe(2);
    expect(followers.every(({ standings }) => standings.length === 1)).toBe(true);
  });
});

describe("the poll", () => {
  test("brings the rows of other replicas with one query for all", async () => {
    const { live, table, timers } = watching({ headPollIntervalMs: 777 });
    const one = new Follower(live, { sessionId: "s" });
    const two = new Follower(live, { sessionId: "t", stream: "messages" });
    await settled();
    table.event("s");
    table.message("t");
    table.headsRead = 0;
    expect(timers.pending.map(({ delayMs }) => delayMs)).toEqual([777]);
    timers.fireAll();
    await settled();
    expect([one.seqs, two.seqs, table.headsRead]).toEqual([[1n], [1n], 1]);
  });

  test("runs only while a session is watched", async () => {
    const { live, table, timers } = watching();
    expect(timers.pending).toHaveLength(0);
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    follower.leave();
    await settled();
    table.headsRead = 0;
    timers.fireAll();
    await settled();
    expect([table.headsRead, timers.pending.length]).toEqual([0, 0]);
  });

  test("runs at once when hints may have been missed", async () => {
    const { live, table } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    table.event("s");
    live.onMissed();
    await settled();
    expect(follower.seqs).toEqual([1n]);
  });
});

describe("a hint", () => {
  test("is not lost when it arrives during the read of the head", async () => {
    const { live, table } = watching();
    table.fast = false;
    const follower = new Follower(live, { sessionId: "s" });
    table.event("s");
    live.onHint("s", table.head("s"));
    table.pending[0]?.answer("began"); // As it was before the commit: no such session.
    table.fast = true;
    await settled();
    expect(follower.seqs).toEqual([1n]);
  });

  test("of an unwatched session causes no lookup", async () => {
    const { live, table } = watching();
    const other = new Follower(live, { sessionId: "t" });
    await settled();
    table.headsRead = 0;
    live.onHint("s", { messageSeq: 0n, eventSeq: 1n, deleted: true });
    await settled();
    expect([table.headsRead, table.pagesRead, other.ended]).toEqual([0, 0, undefined]);
  });
});

describe("lost hints", () => {
  test("degrade every watch, and cause a lookup of all sessions at once", async () => {
    const { live, table } = watching();
    const followers = ["s", "t"].map((sessionId) => new Follower(live, { sessionId }));
    await settled();
    table.event("s");
    live.onLost();
    live.onLost();
    await settled();
    const late = new Follower(live, { sessionId: "u" });
    await settled();
    expect(followers[0]?.seqs).toEqual([1n]);
    const standings = [...followers, late].map((follower) =>
      follower.standings.map(({ standing }) => standing),
    );
    expect(standings).toEqual([["live", "degraded"], ["live", "degraded"], ["degraded"]]);
  });

  test("that return make a watch live after the lookup of missed rows", async () => {
    const { live, table } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    live.onLost();
    await settled();
    table.fast = false;
    table.event("s");
    live.onRestored();
    await settled();
    expect(follower.standings.at(-1)).toMatchObject({ standing: "degraded" });
    table.fast = true;
    table.pending[0]?.answer("now");
    await settled();
    expect(follower.seqs).toEqual([1n]);
    expect(follower.standings.map(({ standing }) => standing)).toEqual([
      "live",
      "degraded",
      "live",
    ]);
  });

  test("are not compensated by a poll that began earlier or failed", async () => {
    const { live, table, timers } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    table.fast = false;
    live.onLost();
    live.onRestored();
    table.pending[0]?.answer("now"); // This poll began when the hints were lost.
    await settled();
    const now = () => follower.standings.at(-1)?.standing;
    expect(now()).toBe("degraded");
    table.pending[0]?.fail(databaseAway());
    await settled();
    table.fast = true;
    expect(now()).toBe("degraded");
    timers.fireAll();
    await settled();
    expect(now()).toBe("live");
  });

  test("that return without watchers cause no lookup", async () => {
    const { live, table } = watching();
    live.onLost();
    live.onRestored();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    expect(follower.standings.map(({ standing }) => standing)).toEqual(["live"]);
    expect(table.headsRead).toBe(1); // The watcher's own read of the head.
  });

  test("cannot return when none were lost", async () => {
    const { live } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    live.onRestored();
    await settled();
    expect(follower.standings.map(({ standing }) => standing)).toEqual(["live"]);
  });
});

describe("a deleted session", () => {
  test("ends its waiting and slow watches, and no others", async () => {
    const { live, table } = watching();
    const waiting = new Follower(live, { sessionId: "s" });
    const still = new Follower(live, { sessionId: "s", stream: "messages" });
    const other = new Follower(live, { sessionId: "t" });
    await settled();
    still.standStill();
    live.onCommit([table.message("s")]);
    await settled();
    table.deleted.add("s");
    live.onDelete("s");
    still.goOn();
    await settled();
    const ended = { code: "not_found", reason: "SESSION_DELETED" };
    expect(waiting.ended).toMatchObject(ended);
    expect(still.ended).toMatchObject(ended);
    expect(other.ended).toBeUndefined();
    expect(getEventListeners(waiting.controller.signal, "abort")).toEqual([]);
    expect(live.counts()).toMatchObject({ watchers: 1, sessions: 1 });
  });

  test("on another replica is found by the poll", async () => {
    const { live, table, timers } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    table.deleted.add("s");
    timers.fireAll();
    await settled();
    expect(follower.ended).toMatchObject({ reason: "SESSION_DELETED" });
  });

  test("on another replica is checked in the table when it is announced", async () => {
    const { live, table } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    const said = { messageSeq: 0n, eventSeq: 0n, deleted: true };
    live.onHint("s", said);
    await settled();
    expect(follower.ended).toBeUndefined();
    table.deleted.add("s");
    live.onHint("s", said);
    await settled();
    expect(follower.ended).toMatchObject({ reason: "SESSION_DELETED" });
  });

  test("accepts no new watch, not even one that is just beginning", async () => {
    const { live, table } = watching();
    table.deleted.add("s");
    const late = new Follower(live, { sessionId: "s" });
    table.fast = false;
    const between = new Follower(live, { sessionId: "t" });
    live.onDelete("t");
    await settled();
    table.pending[0]?.answer("began");
    await settled();
    expect(late.ended).toMatchObject({ reason: "SESSION_DELETED" });
    expect(between.ended).toMatchObject({ reason: "SESSION_DELETED" });
    expect(live.counts()).toMatchObject({ watchers: 0, sessions: 0 });
  });
});

describe("an unavailable database", () => {
  test("ends no watch: reads are repeated with growing pauses, and the watch is degraded", async () => {
    const { live, table, timers } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    table.failure = databaseAway();
    table.event("s");
    live.onHint("s", table.head("s"));
    await settled();
    const retry = () => timers.pending.at(-1);
    const delays: number[] = [];
    for (let tries = 0; tries < 12; tries += 1) {
      delays.push(retry()?.delayMs ?? 0);
      retry()?.fire();
      await settled();
    }
    expect(delays[0]).toBeLessThanOrEqual(50);
    expect(delays[11]).toBeGreaterThanOrEqual(2_500);
    expect(delays[11]).toBeLessThanOrEqual(5_000);
    table.failure = undefined;
    retry()?.fire();
    await settled();
    expect(follower.seqs).toEqual([1n]);
    expect(follower.standings).toEqual([
      { standing: "live", seq: 0n },
      { standing: "degraded", seq: 0n },
      { standing: "live", seq: 0n },
    ]);
  });

  test("delays a watcher that reads pages, and it shows as degraded", async () => {
    const { live, table, timers } = watching({ pageRowsMax: 1 });
    table.event("s");
    table.event("s");
    table.fast = false;
    const follower = new Follower(live, { sessionId: "s" });
    table.pending[0]?.answer("now");
    await settled();
    table.pending[0]?.fail(databaseAway());
    await settled();
    table.fast = true;
    timers.pending.at(-1)?.fire();
    await settled();
    expect(follower.seqs).toEqual([1n, 2n]);
    expect(follower.standings.map(({ standing }) => standing)).toEqual([
      "catching_up",
      "degraded",
      "catching_up",
      "live",
    ]);
  });

  test("degrades every watch after a failed poll, until a poll succeeds", async () => {
    const { live, table, timers } = watching();
    const followers = ["s", "t"].map((sessionId) => new Follower(live, { sessionId }));
    await settled();
    table.failure = databaseAway();
    timers.fireAll();
    await settled();
    live.onCommit([table.event("s")]); // Local commits are still delivered.
    await settled();
    table.failure = undefined;
    timers.fireAll();
    await settled();
    expect(followers[0]?.seqs).toEqual([1n]);
    for (const { standings } of followers) {
      expect(standings.map(({ standing }) => standing)).toEqual(["live", "degraded", "live"]);
    }
  });

  test("does not degrade a watch that begins after it has recovered", async () => {
    const { live, table, timers } = watching();
    const first = new Follower(live, { sessionId: "s" });
    await settled();
    table.failure = databaseAway();
    timers.fireAll();
    await settled();
    table.failure = undefined;
    const second = new Follower(live, { sessionId: "s" });
    await settled();
    expect(second.standings.map(({ standing }) => standing)).toEqual(["live"]);
    expect(first.standings.map(({ standing }) => standing)).toEqual(["live", "degraded", "live"]);
  });

  test("needs no read for rows that a local commit brought, and its failure is forgotten", async () => {
    const { live, table, timers } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    table.failure = databaseAway();
    const row = table.event("s");
    live.onHint("s", table.head("s"));
    await settled();
    live.onCommit([row]);
    await settled();
    timers.pending.at(-1)?.fire();
    expect([follower.seqs, table.pagesRead]).toEqual([[1n], 1]);
    table.event("s");
    live.onHint("s", table.head("s"));
    await settled();
    expect(timers.pending.at(-1)?.delayMs).toBeLessThan(50); // As after a first failure.
  });

  test("counts as down when it does not answer, and no read waits for it for ever", async () => {
    const { live, table, timers } = watching({ readLimitMs: 9_999, pageReadsMax: 1 });
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    const fire = (delayMs: number): void =>
      timers.pending.find((timer) => timer.delayMs === delayMs)?.fire();
    table.fast = false;
    live.onMissed(); // A poll that hangs,
    table.event("s");
    table.event("s");
    live.onHint("s", { messageSeq: 0n, eventSeq: 1n, deleted: false }); // and a page.
    fire(9_999);
    fire(9_999);
    await settled();
    table.fast = true;
    expect(follower.standings.at(-1)).toEqual({ standing: "degraded", seq: 0n });
    const retries = [...timers.pending];
    for (const retry of retries) retry.fire();
    await settled();
    expect(follower.seqs).toEqual([1n, 2n]);
    expect(follower.standings.at(-1)).toMatchObject({ standing: "live" });
  });

  test("refuses a new watch", async () => {
    const { live, table } = watching();
    table.failure = databaseAway();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    expect(follower.ended).toBe(table.failure);
    expect(live.counts()).toMatchObject({ watchers: 0, sessions: 0 });
  });
});

describe("limits", () => {
  test("bound the watchers of a session and of the service, and a leaving one makes room", async () => {
    const { live } = watching({ watchersPerSessionMax: 2, watchersMax: 3 });
    const [first] = [
      new Follower(live, { sessionId: "s" }),
      new Follower(live, { sessionId: "s", stream: "messages" }),
    ];
    const third = new Follower(live, { sessionId: "s" });
    const other = new Follower(live, { sessionId: "t" });
    const fifth = new Follower(live, { sessionId: "u" });
    await settled();
    const refused = { code: "overloaded", reason: "TOO_MANY_WATCHERS", retryAfterMs: 1_000 };
    expect(third.ended).toMatchObject(refused);
    expect(fifth.ended).toMatchObject(refused);
    first?.leave();
    await settled();
    const again = new Follower(live, { sessionId: "s" });
    await settled();
    expect([first?.ended, other.ended, again.ended]).toEqual([null, undefined, undefined]);
    expect(live.counts()).toMatchObject({ watchers: 3, sessions: 2 });
  });

  test("bound the bytes of all windows, and empty the window with the oldest last row", async () => {
    const { live, table } = watching({ windowBytesMax: 4_300, windowsBytesMax: 8_500 });
    const followers = ["s", "t", "u"].map((sessionId) => new Follower(live, { sessionId }));
    await settled();
    const payload = "x".repeat(1_000);
    for (const sessionId of ["t", "s", "s", "t", "u"]) {
      live.onCommit([table.event(sessionId, { payload })]);
      await settled();
      expect(live.counts().windowBytes).toBeLessThanOrEqual(8_500);
    }
    expect(live.counts().windowBytes).toBeGreaterThan(2_000);
    expect(followers.map(({ seqs: got }) => got)).toEqual([[1n, 2n], [1n, 2n], [1n]]);
    const inWindow = new Follower(live, { sessionId: "t", after: 1n });
    await settled();
    expect(table.pagesRead).toBe(0);
    const emptied = new Follower(live, { sessionId: "s", after: 1n });
    await settled();
    expect(table.pagesRead).toBe(1);
    expect([inWindow.seqs, emptied.seqs]).toEqual([[2n], [2n]]);
  });

  test("leave no window and no waiting read after the last watcher", async () => {
    const { live, table, timers } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    live.onCommit([table.event("s")]);
    table.failure = databaseAway();
    live.onHint("s", { messageSeq: 0n, eventSeq: 9n, deleted: false });
    await settled();
    expect(live.counts().windowBytes).toBeGreaterThan(0);
    expect(timers.pending).toHaveLength(2); // The poll, and the repeated read.
    follower.leave();
    await settled();
    expect(live.counts()).toEqual({ watchers: 0, sessions: 0, windowBytes: 0 });
    expect(timers.pending).toHaveLength(1);
  });
});

describe("a stop", () => {
  test("ends every watch with UNAVAILABLE, and refuses new ones", async () => {
    const { live, timers } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    await live.stop();
    const late = new Follower(live, { sessionId: "s" });
    await settled();
    const stopped = { code: "unavailable", reason: "SHUTTING_DOWN" };
    expect([follower.ended, late.ended]).toMatchObject([stopped, stopped]);
    expect(live.counts()).toEqual({ watchers: 0, sessions: 0, windowBytes: 0 });
    expect(timers.pending).toEqual([]);
  });

  test("waits for running reads, and begins none", async () => {
    const { live, table } = watching({ pageReadsMax: 1 });
    table.event("s");
    table.fast = false;
    const followers = [1, 2].map(() => new Follower(live, { sessionId: "s" }));
    await table.holdPages();
    let stopped = false;
    const stopping = live.stop().then(() => (stopped = true));
    await settled();
    expect([table.pending.length, stopped]).toEqual([1, false]);
    table.pending[0]?.answer("now");
    await stopping;
    await settled();
    expect(table.pagesRead).toBe(1);
    for (const { ended } of followers) expect(ended).toMatchObject({ reason: "SHUTTING_DOWN" });
  });
});

describeUnitContract("live", {
  create: () => {
    const parts = watching();
    return Object.assign(parts.live, { parts });
  },
  isOfUse: async (live) => {
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    live.onCommit([live.parts.table.event("s")]);
    await settled();
    return follower.seqs.length === 1;
  },
  remains: async ({ parts }) => {
    await settled();
    const { watchers, sessions } = parts.live.counts();
    return [
      ...(watchers === 0 ? [] : [`${watchers} watchers`]),
      ...(sessions === 0 ? [] : [`${sessions} windows`]),
      ...parts.timers.pending.map(({ delayMs }) => `a timer of ${delayMs} ms`),
    ];
  },
});

describe("a lost node of a sharded engine", () => {
  test("stops watches of its sessions, and others begin, get rows and stay live", async () => {
    const { live, table } = watching();
    table.isSharded = true;
    const of = (sessionId: string) => new Follower(live, { sessionId });
    table.event("lost");
    const before = of("other");
    const lost = of("lost");
    await settled();
    table.ofLostNode.add("lost");
    table.event("other");
    live.onMissed();
    await settled();
    expect([before.seqs, lost.seqs]).toEqual([[1n], [1n]]);
    of("first"); // Its question is asked at once, and the next two share one.
    const after = of("other");
    const lostAfter = of("lost");
    await settled();
    expect(after.seqs).toEqual([1n]);
    expect([before.ended, after.ended, lost.ended]).toEqual([undefined, undefined, undefined]);
    expect(lostAfter.ended).toMatchObject({ reason: "DATABASE_UNAVAILABLE" });
    expect(before.standings.at(-1)?.standing).toBe("live");
    table.ofLostNode.clear();
    table.event("lost");
    live.onMissed();
    await settled();
    expect(lost.seqs).toEqual([1n, 2n]);
    await live.stop();
  });

  test("delays all watches of an engine that is not sharded", async () => {
    const { live, table } = watching();
    const other = new Follower(live, { sessionId: "other" });
    const lost = new Follower(live, { sessionId: "lost" });
    await settled();
    table.ofLostNode.add("lost");
    table.event("other");
    const { headsRead } = table;
    live.onMissed();
    await settled();
    expect([other.seqs, lost.ended, table.headsRead - headsRead]).toEqual([[], undefined, 1]);
    await live.stop();
  });
});
