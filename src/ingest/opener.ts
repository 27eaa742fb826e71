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

interface OpenerParts {
  readonly writer: Pick<LedgerWriter, "openStream" | "refusal">;
  readonly clock: Clock;
  /** After this abort nothing new is sent. */
  readonly stop: AbortSignal;
}

/** A batch holds a session for milliseconds. After this number of tries the opening waits. */
const BUSY_MAX = 4;
/** Openings at once, and as many for locked sessions: after a restart every writer returns. */
const LANES = { atOnce: 2, waiting: { max: 10_000, full: queueFull } };

/** Resolves after commit; rejects with a ServiceError. */
type Open = (request: StreamRequest, isAbandoned: () => boolean) => Promise<OpenedStream>;

export function createOpener({ writer, clock, stop }: OpenerParts): Open {
  const free = new Semaphore(LANES);
  const locked = new Semaphore(LANES);
  return async (request, isAbandoned) => {
    const refusal = writer.refusal?.();
    if (refusal !== undefined) throw refusal;
    const sinceMs = clock.monotonicMs();
    let busy = 0;
    for (let failures = 0; ; failures += 1) {
      let cause: unknown;
      try {
        const wait = busy >= BUSY_MAX;
        const opening = await (wait ? locked : free).run(() => {
          if (stop.aborted) throw stopping();
          if (isAbandoned()) throw callerLeft();
          return writer.openStream(request, { wait });
        });
        if (opening.kind === "opened") return opening;
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
  };
}
