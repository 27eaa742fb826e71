/**
 * Feeds: the rows of all sessions, at least once, in the order of the time when they were recorded.
 * A feed is a position; the table gives it pages up to the horizon (horizon.ts).
 *
 *   position below the horizon ──► a page of the table, a delivery
 *   position at the horizon    ──► wait for the next look
 *
 * The consumer pulls, as from a watcher: a slow one holds one page and causes no further read. At most
 * two feeds read pages at once, so that the pool is left to pushes. Watches of sessions (session-watch.ts)
 * use the same horizon and the same turns.
 */
import assert from "node:assert/strict";
import type { Clock } from "@session-ledger/base/clock";
import { Budget, overloaded } from "../base/budget.ts";
import { only, Pull } from "../base/pull.ts";
import { Semaphore } from "../base/semaphore.ts";
import { systemTimers, type Timers } from "@session-ledger/base/timers";
import type { Unit } from "../base/unit.ts";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";
import type { FeedFilter, FeedPage, FeedPosition, FeedReader, FeedRow } from "../store/feed.ts";
import type { StreamName } from "../store/rows.ts";
import type { ChangesPage, ChangesRequest } from "../store/session-changes.ts";
import { FeedWait, type FeedWaitParts } from "./feed-wait.ts";
import { Subscriptions } from "./hints/subscriptions.ts";
import { Horizon } from "./horizon.ts";
import { shuttingDown } from "./reads.ts";
import type { WatchLimits, Acquire } from "./watch-limits.ts";
import { type SessionDelivery, SessionWatch, type SessionWatchRequest } from "./session-watch.ts";
import type { LiveState } from "./watcher.ts";

export const FEED_LIMITS = {
  feedsMax: 32,
  pageRowsMax: 1_000,
  pageBytesMax: 1_048_576,
  pageReadsMax: 2,
  /** The pause between frames of a feed that advances without a sent row. */
  progressIntervalMs: 5_000,
};

type FeedLimits = Readonly<typeof FEED_LIMITS> & { readonly pollIntervalMs: number };

/** `server` is the server process whose clock made the positions. */
export type FeedDelivery<S extends StreamName> =
  | { readonly kind: "rows"; readonly rows: readonly FeedRow<S>[]; readonly server: string }
  /** Every row up to the position was delivered, or did not pass the filter. */
  | {
      readonly kind: "state";
      readonly state: LiveState;
      readonly position: FeedPosition;
      readonly server: string;
    };

export interface FeedRequest<S extends StreamName> extends FeedFilter {
  readonly stream: S;
  readonly from: FeedPosition;
  /** The server of the delivery that gave the position; empty: it is not of a feed. */
  readonly server: string;
  /** Ends with the rows that are committed at the time of the call. */
  readonly snapshotOnly: boolean;
  /** An abort ends the feed. */
  readonly signal: AbortSignal;
  readonly acquire: Acquire;
}

interface FeedParts {
  readonly reader: FeedReader;
  readonly clock: Clock;
  readonly log: Log;
  readonly watchLimits: WatchLimits;
  readonly metrics?: Pick<Metrics, "limitUse" | "feedLag" | "watchers">;
  readonly timers?: Timers;
  readonly subscriptions?: Subscriptions;
}

export class Feeds implements Unit {
  readonly #parts: Required<Omit<FeedParts, "metrics" | "subscriptions">>;
  readonly #subscriptions: Subscriptions;
  readonly #metrics: FeedParts["metrics"];
  readonly #limits: FeedLimits;
  readonly #horizon: Horizon;
  readonly #feedShare: Budget;
  readonly #pages: Semaphore;
  readonly #changes = new Map<string, Promise<ChangesPage>>();
  readonly #following = new Set<Follower<StreamName>>();
  readonly #watching = new Set<SessionWatch>();
  #isStopped = false;
  /** Call this when rows were committed, here or by another instance. Never throws, never waits. */
  readonly wake: () => void;

  constructor(
    { timers = systemTimers, subscriptions, metrics, ...parts }: FeedParts,
    limits: FeedLimits,
  ) {
    this.#parts = { timers, ...parts };
    this.#subscriptions = subscriptions ?? new Subscriptions();
    this.#metrics = metrics;
    this.#limits = limits;
    this.#horizon = new Horizon(this.#parts, limits);
    this.wake = this.#horizon.wake.bind(this.#horizon);
    this.#feedShare = new Budget({ max: limits.feedsMax });
    this.#pages = new Semaphore({ atOnce: limits.pageReadsMax });
    metrics?.limitUse.share("feeds", this.#feedShare);
    metrics?.feedLag(() => this.#lagMs / 1_000);
  }

  async start(): Promise<void> {
    // Nothing runs before the first feed.
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    for (const one of [...this.#following, ...this.#watching]) one.wait.end(shuttingDown());
    await this.#horizon.stop();
  }

  /** Throws above the limit of feeds. */
  async *follow<S extends StreamName>(
    request: FeedRequest<S>,
  ): AsyncGenerator<FeedDelivery<S>, void> {
    if (this.#isStopped) throw shuttingDown();
    const { feedsMax } = this.#limits;
    const lease = request.acquire(this.#feedShare, () =>
      overloaded("TOO_MANY_WATCHERS", `the service has ${feedsMax} feeds, its limit`),
    );
    const horizon = this.#horizon;
    const page = <T>(read: () => Promise<T>): Promise<T> => this.#pages.run(read, request.signal);
    const follower = new Follower({ ...this.#parts, horizon, page, limits: this.#limits }, request);
    this.#following.add(follower);
    this.#subscriptions.add();
    try {
      const pull = new Pull(follower.follow(), only);
      while (pull.hasNext() || (await pull.read())) yield pull.take();
    } finally {
      this.#following.delete(follower);
      this.#subscriptions.remove();
      follower.wait.leave();
      lease.release();
    }
  }

  /** Acquires the lease of a watch; throws above the limit. */
  async *watchSessions(request: SessionWatchRequest): AsyncGenerator<SessionDelivery, void> {
    if (this.#isStopped) throw shuttingDown();
    const lease = this.#parts.watchLimits.acquire(request.acquire);
    const reads = { changes: (asked: ChangesRequest) => this.#readChanges(asked) };
    const watch = new SessionWatch({ ...this.#parts, horizon: this.#horizon, reads }, request);
    this.#watching.add(watch);
    this.#subscriptions.add();
    this.#metrics?.watchers.inc({ stream: "sessions" });
    try {
      const pull = new Pull(watch.follow(), only);
      while (pull.hasNext() || (await pull.read())) yield pull.take();
    } finally {
      this.#watching.delete(watch);
      this.#subscriptions.remove();
      this.#metrics?.watchers.dec({ stream: "sessions" });
      watch.wait.leave();
      lease.release();
    }
  }

  /** A look wakes all watches at once: those with the same filters share a read. */
  #readChanges(request: ChangesRequest): Promise<ChangesPage> {
    const { scope, filter, after } = request;
    const key = JSON.stringify([scope, filter, String(after.atMicros), after.sessionId]);
    const running = this.#changes.get(key);
    if (running !== undefined) return running;
    const page = this.#pages
      .run(() => this.#parts.reader.changes(request))
      .finally(() => this.#changes.delete(key));
    this.#changes.set(key, page);
    return page;
  }

  /** The lag of the feed that is furthest behind. */
  get #lagMs(): number {
    const { nowMicros } = this.#horizon;
    if (nowMicros === undefined) return 0;
    const positions = [...this.#following].map(({ position }) => position.atMicros);
    return positions.reduce((lag, micros) => Math.max(lag, Number(nowMicros - micros) / 1_000), 0);
  }
}

interface FollowerParts extends FeedWaitParts {
  readonly reader: FeedReader;
  readonly clock: Clock;
  readonly page: <T>(read: () => Promise<T>) => Promise<T>;
  readonly limits: FeedLimits;
}

class Follower<S extends StreamName> {
  readonly #parts: FollowerParts;
  readonly #request: FeedRequest<S>;
  readonly wait: FeedWait;
  position: FeedPosition;
  /** The rows that `follow` yields next. */
  #delivery: FeedDelivery<S> | undefined;

  constructor(parts: FollowerParts, request: FeedRequest<S>) {
    this.#parts = parts;
    this.#request = request;
    this.position = request.from;
    this.wait = new FeedWait(parts, request.signal);
  }

  async *follow(): AsyncGenerator<FeedDelivery<S>, void> {
    const { horizon, clock, limits } = this.#parts;
    const { from, snapshotOnly } = this.#request;
    const wait = this.wait;
    const beganAt = horizon.fromNowOn();
    let { server } = this.#request;
    let state: LiveState = "catching_up";
    yield { kind: "state", state, position: from, server };
    while (horizon.server === undefined && !wait.isOver) await wait.next();
    if (server !== "" && horizon.isAnother(server, from)) this.#rewind();
    let rewinds: number | undefined;
    let reported = this.position;
    let reportedAtMs = clock.monotonicMs();
    while (!wait.isOver) {
      if (rewinds !== undefined && rewinds !== horizon.rewinds) this.#rewind();
      rewinds = horizon.rewinds;
      server = horizon.server ?? server;
      const began = beganAt();
      const isLive = began !== undefined && this.position.atMicros >= began;
      const now = wait.hasFailed ? "degraded" : isLive ? "live" : "catching_up";
      const isDue = clock.monotonicMs() - reportedAtMs >= limits.progressIntervalMs;
      if (now !== state || (isDue && reported !== this.position)) {
        state = now;
        reported = this.position;
        reportedAtMs = clock.monotonicMs();
        yield { kind: "state", state, position: reported, server };
        continue;
      }
      if (snapshotOnly && isLive) return;
      const end = horizon.micros;
      if (end === undefined || this.position.atMicros >= end) {
        await wait.next();
        continue;
      }
      if (!(await this.#read(end, server))) continue;
      yield this.#take();
      reportedAtMs = clock.monotonicMs();
    }
    wait.throwReason();
  }

  /** Reads the next rows, for `#take`. No variable of `follow` may hold them (base/pull.ts). */
  async #read(beforeMicros: bigint, server: string): Promise<boolean> {
    const { rewinds } = this.#parts.horizon;
    const page = await this.#page(beforeMicros);
    if (page === undefined || rewinds !== this.#parts.horizon.rewinds) return false;
    this.position = page.position;
    if (page.rows.length === 0) return false;
    this.#delivery = { kind: "rows", rows: page.rows, server };
    return true;
  }

  #take(): FeedDelivery<S> {
    const delivery = this.#delivery;
    assert(delivery !== undefined);
    this.#delivery = undefined;
    return delivery;
  }

  #rewind(): void {
    this.position = this.#parts.horizon.rewound(this.position);
  }

  /** Undefined after a failure, which is tried again after a pause. */
  async #page(beforeMicros: bigint): Promise<FeedPage<S> | undefined> {
    const { reader, limits, page } = this.#parts;
    const { stream, projectId, eventTypes } = this.#request;
    const { pageRowsMax: rowsMax, pageBytesMax: bytesMax } = limits;
    const bounds = { after: this.position, beforeMicros, rowsMax, bytesMax };
    const request = { stream, projectId, eventTypes, ...bounds };
    return this.wait.read(() => page(() => reader.page(request)), { stream });
  }
}
