/** Why a push was not stored, as its caller learns of it. */
import { ServiceError } from "../base/errors.ts";
import type { Push } from "../store/push.ts";
import { sessionDeleted, sessionNotFound } from "../store/refusals.ts";
import { QUEUE_FULL_RETRY_AFTER_MS, RETRY_DELAY_MAX_MS } from "./limits.ts";

export function refusal(
  kind: "key_reused" | "stale_epoch" | "not_found" | "deleted",
  push: Push,
): ServiceError {
  switch (kind) {
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
      return new ServiceError(
        "failed_precondition",
        "STALE_EPOCH",
        `producer_epoch ${push.epoch} is below the highest that this session has seen: another writer took over`,
      );
    case "not_found":
      return sessionNotFound(push.sessionId);
    case "deleted":
      return sessionDeleted(push.sessionId);
  }
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
    retryAfterMs: RETRY_DELAY_MAX_MS,
  });
}

export function callerGone(): ServiceError {
  return new ServiceError("cancelled", "CANCELLED", "the caller left before the push was sent");
}

export function databaseUnavailable(cause: unknown): ServiceError {
  return new ServiceError(
    "unavailable",
    "DATABASE_UNAVAILABLE",
    "the database is not available; nothing was stored",
    { cause, retryAfterMs: RETRY_DELAY_MAX_MS },
  );
}

export function outcomeUnknown(cause: unknown): ServiceError {
  return new ServiceError(
    "unavailable",
    "OUTCOME_UNKNOWN",
    "the database was lost during the commit: the row may or may not be stored; an idempotency_key makes a retry safe",
    { cause, retryAfterMs: RETRY_DELAY_MAX_MS },
  );
}
