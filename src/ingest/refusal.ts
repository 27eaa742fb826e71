/** The errors of pushes that were not stored, as their callers see them. */
import { ServiceError } from "@session-ledger/base/errors";
import { diskFull, isDiskFull, sessionDeleted, sessionNotFound } from "../store/failure.ts";
import type { Outcome, Push } from "../store/rows.ts";
import type { OpeningResult, StreamRequest } from "../store/streams.ts";

/** The time during which a push that PostgreSQL could not take is tried again. */
export const RETRY_LIMIT_MS = 10_000;
export const RETRY_DELAY = { minMs: 10, maxMs: 500 } as const;
/** The waiting time in the error of a refused caller. */
const QUEUE_FULL_RETRY_AFTER_MS = 250;

type Refused = Exclude<Outcome, { readonly kind: "stored" | "deduplicated" | "again" | "busy" }>;

export function refusal(outcome: Refused, push: Push): ServiceError {
  switch (outcome.kind) {
    case "key_reused":
      return new ServiceError(
        "already_exists",
        "KEY_REUSED",
        "idempotency_key was used before with other content",
        {
          violations: [
            {
              field: "idempotency_key",
              description: "expected a key that is new, or the content it was first used with",
            },
          ],
        },
      );
    case "stale_epoch":
      return staleEpoch(push.range?.epoch ?? push.epoch);
    case "turn_moved":
      return new TurnMoved("aborted", "RUN_OPEN", "another claim or run came first");
    case "stream_replaced":
      return streamReplaced();
    case "gap":
      return beforeItLost(push.range?.firstClientSeq);
    case "not_found":
      return sessionNotFound(push.sessionId);
    case "deleted":
      return sessionDeleted(push.sessionId);
    case "full":
      return sessionFull(push.sessionId, outcome);
  }
}

export function openingRefusal(
  opening: Exclude<OpeningResult, { readonly kind: "opened" | "busy" }>,
  { sessionId, epoch }: StreamRequest,
): ServiceError {
  switch (opening.kind) {
    case "stale_epoch":
      return epoch === 0n ? noEpochAbove(opening.highest) : staleEpoch(epoch);
    case "not_found":
      return sessionNotFound(sessionId);
    case "deleted":
      return sessionDeleted(sessionId);
  }
}

export function streamReplaced(): ServiceError {
  return new ServiceError(
    "aborted",
    "STREAM_REPLACED",
    "another stream of this session and producer_epoch was opened after this one",
  );
}

export function staleEpoch(epoch: bigint | undefined): ServiceError {
  return new ServiceError(
    "failed_precondition",
    "STALE_EPOCH",
    `producer_epoch ${epoch} is below the highest that this session has seen: another writer took over`,
  );
}

export function noEpochAbove(highest: bigint): ServiceError {
  return new ServiceError(
    "failed_precondition",
    "STALE_EPOCH",
    `this session has seen producer_epoch ${highest}, the highest possible number: no writer can take over`,
  );
}

/** A claim that was made for an earlier state of its session: it must be made again. */
export class TurnMoved extends ServiceError {}

/** A range that does not continue the stored part of its stream. */
export class RangeGap extends ServiceError {}

/** The caller of the earlier events gets the cause; these events are not stored. */
function beforeItLost(firstClientSeq: bigint | undefined): ServiceError {
  return new RangeGap(
    "unavailable",
    "DATABASE_UNAVAILABLE",
    `the events before number ${firstClientSeq} of this stream could not be stored; this event and later ones were not stored`,
    { retryAfterMs: RETRY_DELAY.maxMs },
  );
}

export function rowErased(): ServiceError {
  return new ServiceError("aborted", "ROW_ERASED", "the row of this push was erased meanwhile");
}

function sessionFull(
  sessionId: string,
  { of, max }: Extract<Outcome, { readonly kind: "full" }>,
): ServiceError {
  if (of === "pending") return tooManyPending(sessionId, max);
  const what = of === "rows" ? "rows (SESSION_ROWS_MAX)" : "bytes (SESSION_BYTES_MAX)";
  const message = `session ${sessionId} has no room for this: it may hold ${max} ${what}`;
  return new ServiceError("failed_precondition", "SESSION_FULL", message);
}

function tooManyPending(sessionId: string, max: number): ServiceError {
  const message = `${max} messages of session ${sessionId} wait for a turn (PENDING_MAX)`;
  return new ServiceError("overloaded", "TOO_MANY_PENDING", message, { retryAfterMs: 1_000 });
}

export function queueFull(): ServiceError {
  return new ServiceError(
    "overloaded",
    "QUEUE_FULL",
    "too many pushes are waiting to be committed",
    {
      retryAfterMs: QUEUE_FULL_RETRY_AFTER_MS,
    },
  );
}

export function stopping(): ServiceError {
  return new ServiceError("unavailable", "SHUTTING_DOWN", "the service is stopping", {
    retryAfterMs: RETRY_DELAY.maxMs,
  });
}

export function callerLeft(): ServiceError {
  return new ServiceError("cancelled", "CANCELLED", "the caller left before the push was sent");
}

export function databaseUnavailable(cause: unknown): ServiceError {
  if (isDiskFull(cause)) return diskFull(cause);
  return new ServiceError(
    "unavailable",
    "DATABASE_UNAVAILABLE",
    "the database is not available; nothing was stored",
    { cause, retryAfterMs: RETRY_DELAY.maxMs },
  );
}

export function outcomeUnknown(cause: unknown): ServiceError {
  return new ServiceError(
    "unavailable",
    "OUTCOME_UNKNOWN",
    "the database was lost during the commit: the row may or may not be stored; an idempotency_key or a push stream's numbers make a retry safe",
    { cause, retryAfterMs: RETRY_DELAY.maxMs },
  );
}
