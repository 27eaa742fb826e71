/** The errors of pushes that were not stored, as their callers see them. */
import { type ErrorReason, ServiceError } from "@session-ledger/base/errors";
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
      return keyReused();
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

function keyReused(): ServiceError {
  const message = "idempotency_key was used before with other content";
  const description = "expected a key that is new, or the content it was first used with";
  const violations = [{ field: "idempotency_key", description }];
  return new ServiceError("already_exists", "KEY_REUSED", message, { violations });
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
  const message = "another stream of this session and producer_epoch was opened after this one";
  return new ServiceError("aborted", "STREAM_REPLACED", message);
}

export function staleEpoch(epoch: bigint | undefined): ServiceError {
  const message = `producer_epoch ${epoch} is below the highest that this session has seen: another writer took over`;
  return new ServiceError("failed_precondition", "STALE_EPOCH", message);
}

export function noEpochAbove(highest: bigint): ServiceError {
  const message = `this session has seen producer_epoch ${highest}, the highest possible number: no writer can take over`;
  return new ServiceError("failed_precondition", "STALE_EPOCH", message);
}

/** A claim that was made for an earlier state of its session: it must be made again. */
export class TurnMoved extends ServiceError {}

/** A range that does not continue the stored part of its stream. */
export class RangeGap extends ServiceError {}

/** The caller of the earlier events gets the cause; these events are not stored. */
function beforeItLost(firstClientSeq: bigint | undefined): ServiceError {
  const message = `the events before number ${firstClientSeq} of this stream could not be stored; this event and later ones were not stored`;
  return new RangeGap("unavailable", "DATABASE_UNAVAILABLE", message, {
    retryAfterMs: RETRY_DELAY.maxMs,
  });
}

export function rowErased(): ServiceError {
  return new ServiceError("aborted", "ROW_ERASED", "the row of this push was erased meanwhile");
}

function sessionFull(
  sessionId: string,
  { of, max }: Extract<Outcome, { readonly kind: "full" }>,
): ServiceError {
  if (of === "pending") {
    const message = `${max} messages of session ${sessionId} wait for a turn (PENDING_MAX)`;
    return new ServiceError("overloaded", "TOO_MANY_PENDING", message, { retryAfterMs: 1_000 });
  }
  const what = of === "rows" ? "rows (SESSION_ROWS_MAX)" : "bytes (SESSION_BYTES_MAX)";
  const message = `session ${sessionId} has no room for this: it may hold ${max} ${what}`;
  return new ServiceError("failed_precondition", "SESSION_FULL", message);
}

export function queueFull(): ServiceError {
  const message = "too many pushes are waiting to be committed";
  return new ServiceError("overloaded", "QUEUE_FULL", message, {
    retryAfterMs: QUEUE_FULL_RETRY_AFTER_MS,
  });
}

export function stopping(): ServiceError {
  return unavailable("SHUTTING_DOWN", "the service is stopping");
}

export function callerLeft(): ServiceError {
  return new ServiceError("cancelled", "CANCELLED", "the caller left before the push was sent");
}

export function databaseUnavailable(cause: unknown): ServiceError {
  if (isDiskFull(cause)) return diskFull(cause);
  const message = "the database is not available; nothing was stored";
  return unavailable("DATABASE_UNAVAILABLE", message, cause);
}

export function outcomeUnknown(cause: unknown): ServiceError {
  const message =
    "the database was lost during the commit: the row may or may not be stored; an idempotency_key or a push stream's numbers make a retry safe";
  return unavailable("OUTCOME_UNKNOWN", message, cause);
}

function unavailable(reason: ErrorReason, message: string, cause?: unknown): ServiceError {
  const retryAfterMs = RETRY_DELAY.maxMs;
  return new ServiceError("unavailable", reason, message, { cause, retryAfterMs });
}
