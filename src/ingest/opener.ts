/**
 * Opens push streams. Unlike a push, an opening with an unknown outcome may always be repeated:
 * each opening only replaces the one before.
 *
 *   open ─► a slot ─► ledger_open_stream ─┬─ opened, refused ──► answered
 *             ▲                           ├─ the session is locked; after some tries, in a slot
 *             │                           │  of openings that wait for the lock
 *             └── after a pause ──────────┴─ no answer
 *
 * An opening that waits for a locked session occupies a connection, so only few openings may wait:
 * openings of a stuck session must leave the pool to the others.
 */
import { setTimeout as delay } from "node:timers/promises";
import { backoffMs } from "@session-ledger/base/backoff";
import type { Clock } from "@session-ledger/base/clock";
import { ServiceError } from "@session-ledger/base/errors";
import { Semaphore } from "../base/semaphore.ts";
import { failureOf } from "../store/failure.ts";
import type { Outcome, Push } from "../store/rows.ts";
import type { OpenedStream, OpeningResult, StreamRequest } from "../store/streams.ts";
import {
  callerLeft,
  databaseUnavailable,
  openingRefusal,
  queueFull,
  RETRY_DELAY,
  RETRY_LIMIT_MS,
  stopping,
} from "./refusal.ts";

export interface LedgerWriter {
  /** As of the database: on a sharded engine each call has one session. */
  readonly sessionCallsMax?: number | undefined;
  append(pushes: readonly Push[], options: { readonly wait: boolean }): Promise<readonly Outcome[]>;
  openStream(request: StreamRequest, options: { readonly wait: boolean }): Promise<OpeningResult>;
  /** Returns undefined while the disk has room for pushes; otherwise nothing may be sent. */
  readonly refusal?: () => ServiceError | undefined;
}

interface OpenerDependencies {
  readonly writer: Pick<LedgerWriter, "openStream" | "refusal">;
  readonly clock: Clock;
  /** After this abort nothing new is sent. */
  readonly stop: AbortSignal;
}

/** A batch holds a session for milliseconds. After this number of tries the opening waits. */
const BUSY_MAX = 4;
/** Openings at once, and as many for locked sessions: after a restart every writer returns. */
const LANES = { atOnce: 2, waiting: { max: 10_000, full: queueFull } };

export class Opener {
  readonly #dependencies: OpenerDependencies;
  readonly #free = new Semaphore(LANES);
  readonly #locked = new Semaphore(LANES);

  constructor(dependencies: OpenerDependencies) {
    this.#dependencies = dependencies;
  }

  /** Resolves after commit; rejects with a ServiceError. */
  async open(request: StreamRequest, isAbandoned: () => boolean): Promise<OpenedStream> {
    const { clock, stop, writer } = this.#dependencies;
    const refusal = writer.refusal?.();
    if (refusal !== undefined) throw refusal;
    const sinceMs = clock.monotonicMs();
    let busy = 0;
    for (let failures = 0; ; failures += 1) {
      let cause: unknown;
      try {
        const opening = await this.#ask(request, { wait: busy >= BUSY_MAX, isAbandoned });
        if (opening.kind === "opened") return openedStream(opening);
        if (opening.kind !== "busy") throw openingRefusal(opening, request);
        busy += 1;
      } catch (error) {
        const failure = failureOf(error);
        if (failure === "defect") throw ServiceError.from(error);
        if (failure === "unavailable" || failure === "slow") throw databaseUnavailable(error);
        cause = error;
      }
      if (clock.monotonicMs() - sinceMs > RETRY_LIMIT_MS) throw databaseUnavailable(cause);
      const pauseMs = backoffMs(RETRY_DELAY, failures, Math.random());
      await delay(pauseMs, undefined, { signal: stop }).catch(() => undefined);
    }
  }

  #ask(
    request: StreamRequest,
    { wait, isAbandoned }: { readonly wait: boolean; readonly isAbandoned: () => boolean },
  ): Promise<OpeningResult> {
    const { writer, stop } = this.#dependencies;
    return (wait ? this.#locked : this.#free).run(async () => {
      if (stop.aborted) throw stopping();
      if (isAbandoned()) throw callerLeft();
      return writer.openStream(request, { wait });
    });
  }
}

function openedStream(opened: OpenedStream): OpenedStream {
  const { epoch, stream, lastClientSeq, refused, isCancelled } = opened;
  return { epoch, stream, lastClientSeq, refused, isCancelled };
}
