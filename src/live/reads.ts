/**
 * Every read that live delivery makes of the table. Only few pages are read at once, so thousands
 * of watchers that return together leave the pool to the pushes. Every read ends, and `close` waits
 * for all of them. The other reads wait in order; at most one waits for each watcher and each
 * window.
 *
 * A read that is not answered in time has failed, because much depends on one: a poll that hangs
 * would hide the commits of all other replicas. The server's statement_timeout is no help when the
 * answer is lost on the way, or when the question never left: postgres.js 3.4.9 can keep one for
 * ever on a connection that was cut while a write was pending (test/postgres/watch.test.ts met it).
 */
import { ServiceError } from "../base/errors.ts";
import type { LedgerReader, PageAfter, Seen } from "../store/reader.ts";
import type { RowOf, SessionHead, StreamName } from "../store/rows.ts";
import type { LiveLimits } from "./limits.ts";
import type { Timers } from "../base/timers.ts";

export class Reads {
  readonly #reader: LedgerReader;
  readonly #timers: Timers;
  readonly #limits: ReadLimits;
  #pagesRunning = 0;
  /** Insertion order is the order of the turns. */
  readonly #turns = new Set<() => void>();
  readonly #running = new Set<Promise<unknown>>();
  #closed = false;

  constructor(
    { reader, timers }: { readonly reader: LedgerReader; readonly timers: Timers },
    limits: ReadLimits,
  ) {
    this.#reader = reader;
    this.#timers = timers;
    this.#limits = limits;
  }

  /** An abort before the turn gives the turn up; a running read is not cancelled. */
  async pageAfter<S extends StreamName>(
    request: PageAfter<S>,
    signal?: AbortSignal,
  ): Promise<readonly RowOf<S>[]> {
    if (this.#pagesRunning < this.#limits.pageReadsMax) this.#pagesRunning += 1;
    else await this.#turn(signal);
    try {
      return await this.#run(() => this.#reader.pageAfter(request));
    } finally {
      this.#passOn();
    }
  }

  heads(sessionIds: readonly string[]): Promise<ReadonlyMap<string, SessionHead>> {
    return this.#run(() => this.#reader.heads(sessionIds));
  }

  lostOf(seen: readonly Seen[]): Promise<ReadonlySet<Seen>> {
    return this.#run(() => this.#reader.lostOf(seen));
  }

  /** Prevents further reads; resolves when none runs. */
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.allSettled(this.#running);
  }

  async #run<T>(read: () => Promise<T>): Promise<T> {
    if (this.#closed) throw shuttingDown();
    const running = this.#within(read());
    this.#running.add(running);
    try {
      return await running;
    } finally {
      this.#running.delete(running);
    }
  }

  #within<T>(answer: Promise<T>): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const cancel = this.#timers.after(this.#limits.readLimitMs, () => reject(unanswered()));
    answer.then(resolve, reject).finally(cancel);
    return promise;
  }

  async #turn(signal: AbortSignal | undefined): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const giveUp = (): void => {
      if (this.#turns.delete(resolve)) reject(signal?.reason);
    };
    this.#turns.add(resolve);
    signal?.addEventListener("abort", giveUp, { once: true });
    try {
      await promise;
    } finally {
      signal?.removeEventListener("abort", giveUp);
    }
  }

  /** Gives the turn to the read that has waited the longest, or frees it when none waits. */
  #passOn(): void {
    for (const next of this.#turns) {
      this.#turns.delete(next);
      return next();
    }
    this.#pagesRunning -= 1;
  }
}

type ReadLimits = Pick<LiveLimits, "pageReadsMax" | "readLimitMs">;

function unanswered(): ServiceError {
  return new ServiceError("unavailable", "DATABASE_UNAVAILABLE", "the database does not answer", {
    retryAfterMs: 1_000,
  });
}

export function shuttingDown(): ServiceError {
  return new ServiceError(
    "unavailable",
    "SHUTTING_DOWN",
    "the service is stopping: watch again from the last number you have",
    { retryAfterMs: 1_000 },
  );
}
