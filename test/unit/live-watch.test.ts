/**
 * Live delivery, one fact at a time: who reads the table when, what ends a watch, and what stays
 * bounded. That no row is lost or doubled is test/property/live-watch.property.test.ts.
 */
import { getEventListeners } from "node:events";
import { describe, expect, test } from "vitest";
import { settled } from "../support/slow-table.ts";
import { Follower, watching } from "../support/watching.ts";
import { describeUnitContract } from "../support/unit-contract.ts";

const seqs = (from: number, to: number): bigint[] =>
  Array.from({ length: to - from + 1 }, (_, index) => BigInt(from + index));

describe("a row that is committed here", () => {
  test("reaches waiting watchers without a read of the table", async () => {
    const { live, table } = watching();
    const followers = [1, 2, 3].map(() => new Follower(live, { sessionId: "s" }));
    await settled();
    live.committed([table.event("s"), table.event("s", { eventCount: 3 }), table.event("s")]);
    await settled();
    for (const { seqs: got } of followers) expect(got).toEqual([1n, 2n, 5n]);
    expect(table.pagesRead).toBe(0);
  });

  test("is not lost when it comes between the question for the head and its answer", async () => {
    const { live, table } = watching();
    table.fast = false;
    const follower = new Follower(live, { sessionId: "s" });
    live.committed([table.event("s")]);
    table.pending[0]?.answer("began"); // As it was before the commit: no such session.
    table.fast = true;
    await settled();
    expect(follower.seqs).toEqual([1n]);
  });

  test("brings those before it that were committed elsewhere, by one read for all", async () => {
    const { live, table } = watching();
    const followers = Array.from({ length: 50 }, () => new Follower(live, { sessionId: "s" }));
    await settled();
    table.event("s");
    table.event("s");
    live.committed([table.event("s")]);
    await settled();
    for (const { seqs: got } of followers) expect(got).toEqual([1n, 2n, 3n]);
    expect(table.pagesRead).toBe(1);
  });

  test("goes to its own stream and session only", async () => {
    const { live, table } = watching();
    const messages = new Follower(live, { sessionId: "s", stream: "messages" });
    const events = new Follower(live, { sessionId: "s" });
    const other = new Follower(live, { sessionId: "t" });
    await settled();
    live.committed([table.message("s"), table.event("s"), table.event("s"), table.message("u")]);
    await settled();
    expect([messages.seqs, events.seqs, other.seqs]).toEqual([[1n], [1n, 2n], []]);
  });

  test("is measured from its publication to the watcher that waited", async () => {
    const { live, table, metrics } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    live.committed([table.event("s")]);
    await settled();
    expect(follower.seqs).toEqual([1n]);
    const text = await metrics.text();
    expect(text).toContain("session_ledger_watch_lag_seconds_count 1");
    expect(text).toContain('session_ledger_watchers{stream="events"} 1');
  });
});

describe("reading the table", () => {
  test("a watcher that begins behind reads pages, and goes live with what comes", async () => {
    const { live, table } = watching({ pageRowsMax: 4 });
    for (let count = 0; count < 10; count += 1) table.event("s");
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    expect(table.pagesRead).toBe(3);
    live.committed([table.event("s")]);
    await settled();
    expect(follower.seqs).toEqual(seqs(1, 11));
    expect(table.pagesRead).toBe(3);
  });

  test("one that stands still costs no read, and makes nobody else read", async () => {
    const { live, table } = watching({ windowRowsMax: 2, pageRowsMax: 2 });
    const still = new Follower(live, { sessionId: "s" });
    const quick = new Follower(live, { sessionId: "s" });
    await settled();
    still.standStill();
    for (let count = 0; count < 9; count += 1) {
      live.committed([table.event("s")]);
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

  test("a hint that nobody waits for is not read", async () => {
    const { live, table } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    follower.standStill();
    live.committed([table.event("s")]);
    await settled();
    table.event("s");
    live.hinted("s", table.head("s"));
    await settled();
    expect(table.pagesRead).toBe(0);
    follower.goOn();
    await settled();
    expect(follower.seqs).toEqual([1n, 2n]);
  });

  test("pages are read a few at a time, and a watcher that leaves gives up its turn", async () => {
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

  test("rows that were erased behind a slow watcher are passed over, without spinning", async () => {
    const { live, table } = watching({ windowRowsMax: 1, pageRowsMax: 1 });
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    follower.standStill();
    for (let count = 0; count < 5; count += 1) {
      live.committed([table.event("s")]);
      await settled();
    }
    table.erase("s", 5n);
    follower.goOn();
    await settled();
    expect(follower.seqs).toEqual([1n, 5n]); // 5 is still in the window.
    expect(table.pagesRead).toBe(1);
  });

  test("a false hint is asked for once, and then waits for the next", async () => {
    const { live, table } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    live.hinted("s", { messageSeq: 0n, eventSeq: 7n, deleted: false });
    await settled();
    expect(table.pagesRead).toBe(1);
    live.committed([table.event("s")]);
    await settled();
    expect(follower.seqs).toEqual([1n]);
  });

  test("watches that begin together share their questions for heads", async () => {
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
  test("brings what another replica has committed, in one query for all", async () => {
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

  test("runs only while something is watched", async () => {
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

  test("does not wait for its time when hints may have been missed", async () => {
    const { live, table } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    table.event("s");
    live.missed();
    await settled();
    expect(follower.seqs).toEqual([1n]);
  });

  test("a poll that may have looked too early is made again", async () => {
    const { live, table, timers } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    table.fast = false;
    timers.fireAll();
    table.event("s");
    live.missed();
    table.pending[0]?.answer("began");
    await settled();
    table.fast = true;
    table.pending[0]?.answer("began");
    await settled();
    expect(follower.seqs).toEqual([1n]);
  });
});

describe("a hint", () => {
  test("that comes between the question for the head and its answer is not lost", async () => {
    const { live, table } = watching();
    table.fast = false;
    const follower = new Follower(live, { sessionId: "s" });
    table.event("s");
    live.hinted("s", table.head("s"));
    table.pending[0]?.answer("began"); // As it was before the commit: no such session.
    table.fast = true;
    await settled();
    expect(follower.seqs).toEqual([1n]);
  });

  test("that is false opens no window, so nobody takes rows for erased that are to come", async () => {
    const { live, table } = watching();
    table.event("s");
    table.fast = false;
    const follower = new Follower(live, { sessionId: "s" });
    live.hinted("s", { messageSeq: 0n, eventSeq: 9n, deleted: false });
    table.fast = true;
    table.pending[0]?.answer("now");
    await settled();
    expect(follower.seqs).toEqual([1n]);
    for (const row of [table.event("s"), table.event("s")]) live.committed([row]);
    await settled();
    expect(follower.seqs).toEqual([1n, 2n, 3n]);
  });

  test("of one stream says nothing of the other, and makes no window begin at nought", async () => {
    const { live, table } = watching({ pageRowsMax: 2 });
    for (let count = 0; count < 9; count += 1) table.message("s");
    table.fast = false;
    const follower = new Follower(live, { sessionId: "s", stream: "messages", after: 9n });
    live.hinted("s", { messageSeq: 0n, eventSeq: 1n, deleted: false });
    table.fast = true;
    table.pending[0]?.answer("now");
    await settled();
    live.committed([table.message("s")]);
    await settled();
    expect([follower.seqs, table.pagesRead]).toEqual([[10n], 0]);
  });

  test("of a session that nobody watches is not looked up", async () => {
    const { live, table } = watching();
    const other = new Follower(live, { sessionId: "t" });
    await settled();
    table.headsRead = 0;
    live.hinted("s", { messageSeq: 0n, eventSeq: 1n, deleted: true });
    await settled();
    expect([table.headsRead, table.pagesRead, other.ended]).toEqual([0, 0, undefined]);
  });
});

describe("hints that do not come", () => {
  test("are told to every watch, and the sessions are looked up at once", async () => {
    const { live, table } = watching();
    const followers = ["s", "t"].map((sessionId) => new Follower(live, { sessionId }));
    await settled();
    table.event("s");
    live.lost();
    live.lost();
    await settled();
    const late = new Follower(live, { sessionId: "u" });
    await settled();
    expect(followers[0]?.seqs).toEqual([1n]);
    const standings = [...followers, late].map((follower) =>
      follower.standings.map(({ standing }) => standing),
    );
    expect(standings).toEqual([["live", "degraded"], ["live", "degraded"], ["degraded"]]);
  });

  test("and come again: a watch is live when what was missed has been looked up", async () => {
    const { live, table } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    live.lost();
    await settled();
    table.fast = false;
    table.event("s");
    live.regained();
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

  test("are not made up for by a poll that began before they came again, nor by one that failed", async () => {
    const { live, table, timers } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    table.fast = false;
    live.lost();
    live.regained();
    table.pending[0]?.answer("now"); // It began when they were lost.
    await settled();
    const now = () => follower.standings.at(-1)?.standing;
    expect(now()).toBe("degraded");
    table.pending[0]?.fail(new Error("down"));
    await settled();
    table.fast = true;
    expect(now()).toBe("degraded");
    timers.fireAll();
    await settled();
    expect(now()).toBe("live");
  });

  test("and come again while nobody watches need no making up for", async () => {
    const { live, table } = watching();
    live.lost();
    live.regained();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    expect(follower.standings.map(({ standing }) => standing)).toEqual(["live"]);
    expect(table.headsRead).toBe(1); // Its own question.
  });

  test("are no loss where nobody said that there are any", async () => {
    const { live } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    live.regained();
    await settled();
    expect(follower.standings.map(({ standing }) => standing)).toEqual(["live"]);
  });
});

describe("a session that is deleted", () => {
  test("ends its watches, the waiting and the slow ones, and no others", async () => {
    const { live, table } = watching();
    const waiting = new Follower(live, { sessionId: "s" });
    const still = new Follower(live, { sessionId: "s", stream: "messages" });
    const other = new Follower(live, { sessionId: "t" });
    await settled();
    still.standStill();
    live.committed([table.message("s")]);
    await settled();
    table.deleted.add("s");
    live.deleted("s");
    still.goOn();
    await settled();
    const ended = { code: "not_found", reason: "SESSION_DELETED" };
    expect(waiting.ended).toMatchObject(ended);
    expect(still.ended).toMatchObject(ended);
    expect(other.ended).toBeUndefined();
    expect(getEventListeners(waiting.controller.signal, "abort")).toEqual([]);
    expect(live.counts()).toMatchObject({ watchers: 1, sessions: 1 });
  });

  test("by another replica is noticed by the poll", async () => {
    const { live, table, timers } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    table.deleted.add("s");
    timers.fireAll();
    await settled();
    expect(follower.ended).toMatchObject({ reason: "SESSION_DELETED" });
  });

  test("by another replica is looked up when it is said, and not believed", async () => {
    const { live, table } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    const said = { messageSeq: 0n, eventSeq: 0n, deleted: true };
    live.hinted("s", said);
    await settled();
    expect(follower.ended).toBeUndefined();
    table.deleted.add("s");
    live.hinted("s", said);
    await settled();
    expect(follower.ended).toMatchObject({ reason: "SESSION_DELETED" });
  });

  test("takes no new watch, nor one that has just begun", async () => {
    const { live, table } = watching();
    table.deleted.add("s");
    const late = new Follower(live, { sessionId: "s" });
    table.fast = false;
    const between = new Follower(live, { sessionId: "t" });
    live.deleted("t");
    await settled();
    table.pending[0]?.answer("began");
    await settled();
    expect(late.ended).toMatchObject({ reason: "SESSION_DELETED" });
    expect(between.ended).toMatchObject({ reason: "SESSION_DELETED" });
    expect(live.counts()).toMatchObject({ watchers: 0, sessions: 0 });
  });
});

describe("a database that is down", () => {
  test("ends no watch: reads are tried again, ever later, and the watch says that it is late", async () => {
    const { live, table, timers } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    table.failure = new Error("down");
    table.event("s");
    live.hinted("s", table.head("s"));
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

  test("a watcher that is reading pages tries again too, and says so", async () => {
    const { live, table, timers } = watching({ pageRowsMax: 1 });
    table.event("s");
    table.event("s");
    table.fast = false;
    const follower = new Follower(live, { sessionId: "s" });
    table.pending[0]?.answer("now");
    await settled();
    table.pending[0]?.fail(new Error("down"));
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

  test("a poll that fails makes every watch say that it is late, until one succeeds", async () => {
    const { live, table, timers } = watching();
    const followers = ["s", "t"].map((sessionId) => new Follower(live, { sessionId }));
    await settled();
    table.failure = new Error("down");
    timers.fireAll();
    await settled();
    live.committed([table.event("s")]); // What is committed here still comes.
    await settled();
    table.failure = undefined;
    timers.fireAll();
    await settled();
    expect(followers[0]?.seqs).toEqual([1n]);
    for (const { standings } of followers) {
      expect(standings.map(({ standing }) => standing)).toEqual(["live", "degraded", "live"]);
    }
  });

  test("once it is back, a watch that begins is not late", async () => {
    const { live, table, timers } = watching();
    const first = new Follower(live, { sessionId: "s" });
    await settled();
    table.failure = new Error("down");
    timers.fireAll();
    await settled();
    table.failure = undefined;
    const second = new Follower(live, { sessionId: "s" });
    await settled();
    expect(second.standings.map(({ standing }) => standing)).toEqual(["live"]);
    expect(first.standings.map(({ standing }) => standing)).toEqual(["live", "degraded", "live"]);
  });

  test("what a commit here has brought meanwhile is not read, and the failure is forgotten", async () => {
    const { live, table, timers } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    table.failure = new Error("down");
    const row = table.event("s");
    live.hinted("s", table.head("s"));
    await settled();
    live.committed([row]);
    await settled();
    timers.pending.at(-1)?.fire();
    expect([follower.seqs, table.pagesRead]).toEqual([[1n], 1]);
    table.event("s");
    live.hinted("s", table.head("s"));
    await settled();
    expect(timers.pending.at(-1)?.delayMs).toBeLessThan(50); // As after a first failure.
  });

  test("that does not answer is one that is down: nothing waits for it for ever", async () => {
    const { live, table, timers } = watching({ readLimitMs: 9_999, pageReadsMax: 1 });
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    const fire = (delayMs: number): void =>
      timers.pending.find((timer) => timer.delayMs === delayMs)?.fire();
    table.fast = false;
    live.missed(); // A poll that hangs,
    table.event("s");
    table.event("s");
    live.hinted("s", { messageSeq: 0n, eventSeq: 1n, deleted: false }); // and a page.
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

  test("refuses a watch that begins", async () => {
    const { live, table } = watching();
    table.failure = new Error("down");
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    expect(follower.ended).toBe(table.failure);
    expect(live.counts()).toMatchObject({ watchers: 0, sessions: 0 });
  });
});

describe("limits", () => {
  test("watchers of a session and of the service have a limit; one that leaves makes room", async () => {
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

  test("all windows together: the one that was appended to the longest ago is emptied", async () => {
    const { live, table } = watching({ windowBytesMax: 4_300, windowsBytesMax: 8_500 });
    const followers = ["s", "t", "u"].map((sessionId) => new Follower(live, { sessionId }));
    await settled();
    const payload = "x".repeat(1_000);
    for (const sessionId of ["t", "s", "s", "t", "u"]) {
      live.committed([table.event(sessionId, { payload })]);
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

  test("a window goes when its last watcher does, and so does what it waited for", async () => {
    const { live, table, timers } = watching();
    const follower = new Follower(live, { sessionId: "s" });
    await settled();
    live.committed([table.event("s")]);
    table.failure = new Error("down");
    live.hinted("s", { messageSeq: 0n, eventSeq: 9n, deleted: false });
    await settled();
    expect(live.counts().windowBytes).toBeGreaterThan(0);
    expect(timers.pending).toHaveLength(2); // The poll, and the read that is tried again.
    follower.leave();
    await settled();
    expect(live.counts()).toEqual({ watchers: 0, sessions: 0, windowBytes: 0 });
    expect(timers.pending).toHaveLength(1);
  });
});

describe("stop", () => {
  test("ends every watch with UNAVAILABLE, and takes no new one", async () => {
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

  test("waits for the reads that run, and begins none", async () => {
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
    live.committed([live.parts.table.event("s")]);
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
