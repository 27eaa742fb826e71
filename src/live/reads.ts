/**
 * Every read that live delivery makes of the table. Few pages are read at once, so thousands of
 * returning watchers leave the pool to the pushes. Every read ends, and `close` waits for all.
 *
 * A read that is not answered in time has failed: a poll that hangs would hide the commits of all
 * other replicas. The server's statement_timeout does not help when an answer is lost, or the
 * question never left: postgres.js 3.4.9 can keep one for ever on a connection that was cut while a
 * write was pending (test/postgres/watch.test.ts met it).
 */
import { type ErrorReason, ServiceError } from "@session-ledger/base/errors";
import type { PageAfter } from "../store/pages.ts";
import type { LedgerReader, Seen } from "../store/reader.ts";
import type { RowOf, SessionHead, StreamName } from "../store/rows.ts";
import type { LiveLimits } from "./limits.ts";
import { type Timers, within } from "@session-ledger/base/timers";
import { Semaphore } from "../base/semaphore.ts";

export class Reads {
  readonly #reader: LedgerReader;
  readonly #timers: Timers;
  readonly #limits: ReadLimits;
  readonly #pages: Semaphore;
  readonly #running = new Set<Promise<unknown>>();
  #closed = false;

  constructor(
    { reader, timers }: { readonly reader: LedgerReader; readonly timers: Timers },
    limits: ReadLimits,
  ) {
    this.#reader = reader;
    this.#timers = timers;
    this.#limits = limits;
    // No limit of waiting reads: each watcher and each window has at most one.
    this.#pages = new Semaphore({ atOnce: limits.pageReadsMax });
  }

  /** An abort before the turn gives the turn up, and nothing is read for a caller that has left by then. */
  async pageAfter<S extends StreamName>(
    { hasLeft, ...request }: PageAfter<S> & { readonly hasLeft?: () => boolean },
    signal?: AbortSignal,
  ): Promise<readonly RowOf<S>[]> {
    const read = () => this.#run(() => this.#reader.pageAfter(request));
    return this.#pages.run(() => (hasLeft?.() === true ? [] : read()), signal);
  }

  /**
   * One answer for each session, from one question for all. On a sharded engine a lost node fails the question:
   * then each session is asked alone, and only sessions of that node have an error.
   */
  async heads(sessionIds: readonly string[]): Promise<readonly HeadAnswer[]> {
    try {
      const heads = await this.#run(() => this.#reader.heads(sessionIds));
      return sessionIds.map((sessionId) => ({ sessionId, head: heads.get(sessionId) }));
    } catch (error) {
      if (this.#reader.isSharded !== true || sessionIds.length === 1) throw error;
      const answers = await Promise.all(sessionIds.map((sessionId) => this.#headAlone(sessionId)));
      if (answers.every((answer) => answer.error !== undefined)) throw error;
      return answers;
    }
  }

  async #headAlone(sessionId: string): Promise<HeadAnswer> {
    try {
      const heads = await this.#run(() => this.#reader.heads([sessionId]));
      return { sessionId, head: heads.get(sessionId) };
    } catch (error) {
      return { sessionId, head: undefined, error };
    }
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
    const running = within(read(), {
      limitMs: this.#limits.readLimitMs,
      onTimeout: () =>
        Promise.reject(unavailable("DATABASE_UNAVAILABLE", "the database does not answer")),
      timers: this.#timers,
    });
    this.#running.add(running);
    try {
      return await running;
    } finally {
      this.#running.delete(running);
    }
  }
}

interface HeadAnswer {
  readonly sessionId: string;
  /** Undefined: the session is missing, or the answer has an error. */
  readonly head: SessionHead | undefined;
  readonly error?: unknown;
}

type ReadLimits = Pick<LiveLimits, "pageReadsMax" | "readLimitMs">;

export function shuttingDown(): ServiceError {
  const message = "the service is stopping: watch again from the last number you have";
  return unavailable("SHUTTING_DOWN", message);
}

function unavailable(reason: ErrorReason, message: string): ServiceError {
  return new ServiceError("unavailable", reason, message, { retryAfterMs: 1_000 });
}

/**
 * The head of a session, which every starting watch asks. At most one query is in flight, and all
 * questions that arrive meanwhile share the next one. An answer never comes from a query that began
 * before the question: it could be older than the caller's cursor, or than a published commit.
 */
export function sharedHeads(
  reads: Reads,
  { headIdsMax }: { readonly headIdsMax: number },
): (sessionId: string) => Promise<SessionHead | undefined> {
  const asked = new Map<string, PromiseWithResolvers<SessionHead | undefined>>();
  let isRunning = false;
  async function run(): Promise<void> {
    isRunning = true;
    while (asked.size > 0) {
      const questions = [...asked].slice(0, headIdsMax);
      for (const [sessionId] of questions) asked.delete(sessionId);
      try {
        const answers = await reads.heads(questions.map(([sessionId]) => sessionId));
        questions.forEach(([, { resolve, reject }], index) => {
          const answer = answers[index];
          if (answer?.error === undefined) resolve(answer?.head);
          else reject(answer.error);
        });
      } catch (error) {
        for (const [, { reject }] of questions) reject(error);
      }
    }
    isRunning = false;
  }
  return (sessionId) => {
    const question = asked.get(sessionId) ?? Promise.withResolvers<SessionHead | undefined>();
    asked.set(sessionId, question);
    if (!isRunning) void run();
    return question.promise;
  };
}
