/**
 * One watch: a cursor and its next step (docs/reading.md has its states). The consumer pulls. Until then
 * the watcher reads at most one page ahead, if the consumer counts its memory, and buffers nothing
 * else: the cursor of a slow consumer drops below the window and reads pages. Before every step the
 * watcher checks its end and its state. An abort, the end of the tail and the end of a delay resolve
 * the promise of a wait.
 */
import assert from "node:assert/strict";
import { backoffMs } from "@session-ledger/base/backoff";
import type { Clock } from "@session-ledger/base/clock";
import { ServiceError } from "@session-ledger/base/errors";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";
import type { RowForm } from "../store/columns.ts";
import { defectOf } from "../store/failure.ts";
import { headOf, lastSeqOf, type RowOf, type SessionHead, type StreamName } from "../store/rows.ts";
import { type LiveLimits, READ_RETRY } from "./limits.ts";
import type { Reads } from "./reads.ts";
import type { WindowRow, Tail } from "./tail.ts";
import type { Timers } from "@session-ledger/base/timers";

/** The state of a watch; WatchState of the contract defines each one. */
export type LiveState = "catching_up" | "live" | "degraded";

export type Delivery<S extends StreamName> =
  /** The next rows, in order. Those with `shared` are the same objects for every watcher. */
  | { readonly kind: "rows"; readonly rows: readonly RowOf<S>[]; readonly shared: boolean }
  /** The watch has a new state, after every number up to `seq` was delivered or found absent. */
  | { readonly kind: "state"; readonly state: LiveState; readonly seq: bigint };

interface Follow<S extends StreamName> {
  /** The last number the caller has. A cursor inside a merged row is resolved before. */
  readonly after: bigint;
  /** The watch delivers up to this number, then ends. */
  readonly until: bigint | undefined;
  /** Makes the form of the rows of one page of the table; undefined: rows with all fields. */
  readonly pageForm?: (() => RowForm) | undefined;
  /**
   * With it, PostgreSQL reads the next page while the consumer sends one. Called with the rows of
   * both pages then, and with none when the watch waits.
   */
  readonly onRows?: ((rows: readonly RowOf<S>[]) => void) | undefined;
}

interface TablePage<S extends StreamName> {
  readonly rows: readonly RowOf<S>[];
  /** The number up to which the table has no other rows. */
  readonly seq: bigint;
}

/** A page that was asked for before its turn; it is dropped if the window was emptied meanwhile. */
interface ReadAhead<S extends StreamName> {
  readonly after: bigint;
  readonly emptied: number;
  readonly page: Promise<TablePage<S>>;
  /** The rows before it, which the caller has. Empty after the end: the page may still wait for its turn. */
  given: readonly RowOf<S>[];
}

/** The lag is observed for watchers that were waiting; one below the head chose to be late. */
export type LiveMetrics = Pick<Metrics, "watchers" | "watchLagSeconds" | "limitUse">;

/** The parts that all watchers share. */
export interface WatcherParts {
  readonly reads: Reads;
  readonly timers: Timers;
  readonly log: Log;
  readonly metrics: LiveMetrics | undefined;
  readonly limits: LiveLimits;
  readonly clock: Clock;
  /** True while commits of other replicas arrive late. */
  readonly othersAreLate: () => boolean;
}

interface OneWatch<S extends StreamName> {
  readonly tail: Tail<S>;
  /** An abort ends the watch. */
  readonly signal: AbortSignal;
  readonly onLeave: () => void;
}

export class Watcher<S extends StreamName> {
  readonly #parts: WatcherParts;
  readonly #tail: Tail<S>;
  readonly #signal: AbortSignal;
  readonly #onLeave: () => void;
  /** The session's position when the watch began; `undefined` when the session did not exist. */
  head: SessionHead | undefined;
  #wake: (() => void) | undefined;
  #failures = 0;
  #readAheadPage: ReadAhead<S> | undefined;
  #left = false;
  /** The last number that was delivered or found absent. */
  #cursor = 0n;
  #lastState: LiveState | undefined;
  #hasWaited = false;
  /** The delivery that `follow` yields next. */
  #delivery: Delivery<S> | undefined;

  constructor(parts: WatcherParts, watch: OneWatch<S>) {
    this.#parts = parts;
    this.#tail = watch.tail;
    this.#signal = watch.signal;
    this.#onLeave = watch.onLeave;
    watch.signal.addEventListener("abort", this.wake, { once: true });
  }

  /** The session's head, read after the watcher began to hear of commits. */
  begin(head: SessionHead | undefined): void {
    this.head = head;
    this.throwIfEnded();
  }

  throwIfEnded(): void {
    const { endReason } = this.#tail;
    if (endReason !== undefined) throw endReason;
  }

  /** A field, because it is a listener: one closure per watcher instead of one per wait. */
  readonly wake = (): void => {
    const wake = this.#wake;
    this.#wake = undefined;
    wake?.();
  };

  /** Idempotent. `follow` calls it at its end, but a watcher may leave without `follow`. */
  leave(): void {
    if (this.#left) return;
    this.#left = true;
    if (this.#readAheadPage !== undefined) this.#readAheadPage.given = [];
    this.#readAheadPage = undefined;
    this.#signal.removeEventListener("abort", this.wake);
    this.#tail.forget(this);
    this.#onLeave();
  }

  /** Ends when `until` is reached or the signal aborts; throws the error that ended the tail. */
  async *follow(follow: Follow<S>): AsyncGenerator<Delivery<S>, void, undefined> {
    this.#cursor = follow.after;
    try {
      while (await this.#advance(follow)) yield this.#take();
    } finally {
      this.leave();
    }
  }

  /**
   * False when the watch is over. A separate method: a generator that waits would hold the rows of
   * its last delivery (base/pull.ts).
   */
  async #advance(follow: Follow<S>): Promise<boolean> {
    const { until } = follow;
    while (!this.#signal.aborted) {
      this.throwIfEnded();
      const cursor = this.#cursor;
      const state = this.#stateAt(cursor);
      if (state !== this.#lastState) {
        this.#lastState = state;
        this.#delivery = { kind: "state", state, seq: cursor };
        return true;
      }
      if (until !== undefined && cursor >= until) return false;
      const taken = this.#tail.take(cursor);
      if (taken.kind === "wait") {
        this.#hasWaited = true;
        follow.onRows?.([]);
        await this.#wait();
        continue;
      }
      const { rows, seq } =
        taken.kind === "page" ? await this.#nextPage(cursor, follow) : this.#taken(taken.rows);
      this.#hasWaited = false;
      const looked = until !== undefined && seq > until ? until : seq;
      if (looked > cursor) this.#cursor = looked;
      const wanted = looked === seq ? rows : rows.filter((row) => row.seq <= looked);
      if (wanted.length === 0) continue;
      const isPage = taken.kind === "page";
      if (isPage && this.#cursor !== until) this.#readAhead(this.#cursor, wanted, follow);
      this.#delivery = { kind: "rows", rows: wanted, shared: !isPage };
      return true;
    }
    // The reason of the abort may be an error for the caller; a caller that left gets no error.
    if (this.#signal.reason instanceof ServiceError) throw this.#signal.reason;
    return false;
  }

  #take(): Delivery<S> {
    const delivery = this.#delivery;
    assert(delivery !== undefined);
    this.#delivery = undefined;
    return delivery;
  }

  get #hasEnded(): boolean {
    return this.#signal.aborted || this.#tail.endReason !== undefined;
  }

  #stateAt(cursor: bigint): LiveState {
    if (this.#failures > 0 || this.#tail.degraded || this.#parts.othersAreLate()) {
      return "degraded";
    }
    const beganAt = this.head === undefined ? 0n : headOf(this.head, this.#tail.stream);
    return cursor < beganAt ? "catching_up" : "live";
  }

  #wait(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
      this.#tail.wait(this);
    });
  }

  #taken(shared: readonly WindowRow<S>[]) {
    const publishedAtMs = shared[0]?.publishedAtMs;
    if (this.#hasWaited && publishedAtMs !== undefined) {
      const lagMs = this.#parts.clock.monotonicMs() - publishedAtMs;
      this.#parts.metrics?.watchLagSeconds.observe(lagMs / 1_000);
    }
    return { rows: shared.map(({ row }) => row), seq: shared.at(-1)?.lastSeq ?? 0n };
  }

  #readAhead(after: bigint, given: readonly RowOf<S>[], follow: Follow<S>): void {
    const { onRows } = follow;
    const { floor, emptied } = this.#tail;
    if (onRows === undefined || after >= floor) return;
    const page = this.#page(after, follow);
    const ahead: ReadAhead<S> = { after, emptied, page, given };
    this.#readAheadPage = ahead;
    const onPage = ({ rows }: TablePage<S>): void => {
      if (this.#readAheadPage === ahead) onRows([...ahead.given, ...rows]);
    };
    page.then(onPage, () => undefined); // The next page has the error.
  }

  async #nextPage(cursor: bigint, follow: Follow<S>): Promise<TablePage<S>> {
    const ahead = this.#readAheadPage;
    this.#readAheadPage = undefined;
    if (ahead?.after === cursor) {
      const page = await ahead.page;
      if (ahead.emptied === this.#tail.emptied) return page;
      if (this.#hasEnded) return { rows: [], seq: cursor };
    }
    return this.#page(cursor, follow);
  }

  /** A page of the table after `cursor`. */
  async #page(cursor: bigint, { pageForm }: Follow<S>): Promise<TablePage<S>> {
    const { reads, limits, log } = this.#parts;
    const { stream, sessionId } = this.#tail;
    if (this.#failures > 0) {
      await this.#delay(backoffMs(READ_RETRY, this.#failures - 1, Math.random()));
      if (this.#hasEnded) return { rows: [], seq: cursor };
    }
    const { floor, suspicions } = this.#tail;
    const page = { rowsMax: limits.pageRowsMax, bytesMax: limits.pageBytesMax };
    try {
      const { eventOf } = pageForm?.() ?? {};
      const request = { stream, sessionId, after: cursor, ...page, eventOf };
      const hasLeft = (): boolean => this.#left;
      const rows = await reads.pageAfter({ ...request, hasLeft }, this.#signal);
      this.#failures = 0;
      // The page may come from a different history than the caller's rows.
      if (this.#tail.suspicions !== suspicions) return { rows: [], seq: cursor };
      const last = rows.at(-1);
      this.#tail.observe(last);
      // Every row up to the floor was committed before the read, so missing ones were erased.
      return { rows, seq: last === undefined ? floor : lastSeqOf(last) };
    } catch (error) {
      if (this.#hasEnded) return { rows: [], seq: cursor };
      const defect = defectOf(error);
      if (defect !== undefined) throw defect;
      this.#failures += 1;
      if (this.#failures === 1) log.warn({ stream, sessionId, err: error }, "live read failed");
      return { rows: [], seq: cursor };
    }
  }

  async #delay(delayMs: number): Promise<void> {
    let cancel: (() => void) | undefined;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      cancel = this.#parts.timers.after(delayMs, this.wake);
    });
    cancel?.();
  }
}
