/** When feeds look at the database, and what makes them go back; the database is a double. */
import { expect, test } from "vitest";
import type { Clock } from "@session-ledger/base/clock";
import type { ServiceError } from "@session-ledger/base/errors";
import type { Budget, Reservation } from "../../src/base/budget.ts";
import { Feeds, FEED_LIMITS, type FeedDelivery, type FeedRequest } from "../../src/live/feeds.ts";
import { LIVE_LIMITS } from "../../src/live/limits.ts";
import { WatchLimits } from "../../src/live/watch-limits.ts";
import { createLogTo } from "../../src/observability/log.ts";
import type { FeedPageRequest, FeedReader, Look } from "../../src/store/feed.ts";
import type { StreamName } from "../../src/store/rows.ts";
import { databaseAway, ManualTimers, settled } from "../support/slow-table.ts";
import { describeUnitContract } from "../support/unit-contract.ts";

const POLL_MS = 1_000;
const NOW = 1_800_000_000_000_000n;
const MINUTE = 60_000_000n;

class Bench implements FeedReader {
  readonly timers = new ManualTimers();
  readonly pages: FeedPageRequest<StreamName>[] = [];
  looks = 0;
  failure: Error | undefined;
  server = "1.5";
  writers: readonly string[] = [];
  /** The clock of the database beside ours. */
  offsetMicros = 0n;
  #ms = 0;
  readonly clock: Clock = { nowMicros: () => NOW, monotonicMs: () => this.#ms };
  readonly feeds = new Feeds(
    {
      reader: this,
      watchLimits: new WatchLimits(LIVE_LIMITS),
      clock: this.clock,
      timers: this.timers,
      log: createLogTo({ write: () => undefined }, "silent"),
    },
    { ...FEED_LIMITS, feedsMax: 1, pollIntervalMs: POLL_MS },
  );
  readonly #abort = new AbortController();

  get nowMicros(): bigint {
    return NOW + BigInt(this.#ms) * 1_000n + this.offsetMicros;
  }

  async look(): Promise<Look> {
    this.looks += 1;
    if (this.failure !== undefined) throw this.failure;
    return { atMicros: this.nowMicros, writers: this.writers, server: this.server };
  }

  async changes() {
    return { changed: [], cutAt: undefined };
  }

  async page(request: FeedPageRequest<StreamName>) {
    this.pages.push(request);
    if (this.failure !== undefined) throw this.failure;
    return { rows: [], position: { atMicros: request.beforeMicros, sessionId: "", seq: 0n } };
  }

  /** Moves the clock to the next timer, and `lateMs` further. */
  async pass(lateMs = 0): Promise<number> {
    const [next] = this.timers.pending.toSorted((a, b) => a.delayMs - b.delayMs);
    const delayMs = next?.delayMs ?? 0;
    this.#ms += delayMs + lateMs;
    next?.fire();
    await settled();
    return delayMs;
  }

  follow(request: Partial<FeedRequest<"events">> = {}) {
    const from = { atMicros: NOW, sessionId: "", seq: 0n };
    return this.feeds.follow({
      stream: "events",
      from,
      server: "",
      projectId: undefined,
      eventTypes: [],
      snapshotOnly: false,
      signal: this.#abort.signal,
      acquire,
      ...request,
    });
  }

  leave(): void {
    this.#abort.abort();
  }
}

const acquire = (limit: Budget, refusal: () => ServiceError): Reservation =>
  limit.mustReserve("reader", refusal);

/** What it delivers, while the test lets time pass. */
function collecting(feed: AsyncGenerator<FeedDelivery<"events">>) {
  const seen: FeedDelivery<"events">[] = [];
  const ended = (async () => {
    for await (const delivery of feed) seen.push(delivery);
  })();
  ended.catch(() => undefined);
  return { seen, ended };
}

const standings = (seen: readonly FeedDelivery<"events">[]): readonly string[] =>
  seen.map((delivery) => (delivery.kind === "state" ? delivery.state : "rows"));

const ascending = (left: bigint, right: bigint): number => Number(left - right);

const benches = new WeakMap<Feeds, Bench>();

describeUnitContract("feeds", {
  create: () => {
    const bench = new Bench();
    benches.set(bench.feeds, bench);
    return bench.feeds;
  },
  isOfUse: async (feeds) => {
    const { seen } = collecting(benches.get(feeds)?.follow() ?? new Bench().follow());
    await settled();
    return seen.length > 0;
  },
  remains: (feeds) => (benches.get(feeds)?.timers.pending ?? []).map(() => "a timer"),
});

test("looks only while a feed is open, at the interval of the poll, and sooner after a commit", async () => {
  const bench = new Bench();
  bench.feeds.wake();
  expect(bench.timers.pending).toEqual([]);
  const { ended } = collecting(bench.follow());
  await settled();
  await bench.pass();
  expect(await bench.pass()).toBe(POLL_MS);
  expect(await bench.pass()).toBe(POLL_MS);
  bench.feeds.wake();
  bench.feeds.wake();
  expect(await bench.pass()).toBeLessThan(100);
  expect(bench.looks).toBe(4);
  bench.leave();
  await ended;
  expect(bench.timers.pending).toEqual([]);
});

test("looks again for a feed that begins after another one has left before its look", async () => {
  const bench = new Bench();
  const first = bench.follow();
  await first.next();
  await first.return();
  expect(bench.timers.pending).toEqual([]);
  const { seen } = collecting(bench.follow());
  await settled();
  await bench.pass();
  expect(standings(seen)).toEqual(["catching_up", "live"]);
  bench.leave();
});

test("looks more rarely while a transaction stays open, up to the interval of the poll", async () => {
  const bench = new Bench();
  bench.writers = ["1/1"];
  const { seen } = collecting(bench.follow());
  await settled();
  const pauses: number[] = [];
  for (let look = 0; look < 10; look += 1) {
    bench.feeds.wake();
    pauses.push(await bench.pass());
  }
  expect(pauses.toSorted((a, b) => a - b)).toEqual(pauses);
  expect(pauses.at(-1)).toBe(POLL_MS);
  expect(bench.pages).toEqual([]);
  expect(standings(seen)).toEqual(["catching_up"]);
  bench.writers = [];
  await bench.pass();
  expect(standings(seen)).toEqual(["catching_up", "live"]);
  bench.leave();
});

test("an idle feed sends a frame with its place every five seconds, and reads one page for each look", async () => {
  const bench = new Bench();
  const { seen } = collecting(bench.follow());
  await settled();
  for (let second = 0; second <= 12; second += 1) await bench.pass();
  expect(standings(seen)).toEqual(["catching_up", "live", "live", "live"]);
  const places = seen.map((one) => (one.kind === "state" ? one.position.atMicros : 0n));
  expect(places.toSorted(ascending)).toEqual(places);
  expect(bench.pages.length).toBeLessThanOrEqual(bench.looks);
  bench.leave();
});

test.each([
  ["another server answers", (bench: Bench) => void (bench.server = "2.5")],
  ["the clock goes back by a second", (bench: Bench) => void (bench.offsetMicros = -1_000_000n)],
])("every feed goes back by a minute when %s", async (_name, happen) => {
  const bench = new Bench();
  const { seen } = collecting(bench.follow());
  await settled();
  for (let look = 0; look < 3; look += 1) await bench.pass();
  happen(bench);
  bench.pages.length = 0;
  await bench.pass();
  const lastAt = bench.nowMicros;
  expect(bench.pages[0]?.after.atMicros).toBeLessThanOrEqual(lastAt - MINUTE);
  expect(bench.pages[0]?.after.atMicros).toBeGreaterThan(lastAt - MINUTE - 2_000_000n);
  expect(seen.at(-1)?.server).toBe(bench.server);
  bench.leave();
});

test("a slow answer or a late timer is no clock that goes back", async () => {
  const bench = new Bench();
  collecting(bench.follow());
  await settled();
  for (let look = 0; look < 5; look += 1) await bench.pass(30_000);
  const times = bench.pages.map(({ after }) => after.atMicros);
  expect(times.length).toBeGreaterThan(3);
  expect(times.toSorted(ascending)).toEqual(times);
  bench.leave();
});

test("a failing database makes a feed degraded and does not end it", async () => {
  const bench = new Bench();
  const { seen } = collecting(bench.follow());
  await settled();
  await bench.pass();
  bench.failure = databaseAway();
  for (let look = 0; look < 4; look += 1) await bench.pass();
  bench.failure = undefined;
  for (let look = 0; look < 4; look += 1) await bench.pass();
  expect(standings(seen)).toEqual(["catching_up", "live", "degraded", "live"]);
  bench.leave();
});

test("a reader that does not read causes no read", async () => {
  const bench = new Bench();
  const feed = bench.follow();
  await feed.next();
  for (let look = 0; look < 5; look += 1) await bench.pass();
  expect(bench.pages).toEqual([]);
  bench.leave();
  await feed.return();
});

test("a feed above the limit is refused, and a stop ends the feeds with UNAVAILABLE", async () => {
  const bench = new Bench();
  const { ended } = collecting(bench.follow());
  await settled();
  await expect(bench.follow().next()).rejects.toMatchObject({ reason: "TOO_MANY_WATCHERS" });
  await bench.feeds.stop();
  await expect(ended).rejects.toMatchObject({ reason: "SHUTTING_DOWN" });
  await expect(bench.follow().next()).rejects.toMatchObject({ reason: "SHUTTING_DOWN" });
});
