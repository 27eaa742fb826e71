/**
 * Reads that can hold a connection of the database for long: lists, searches, forks, and
 * transcripts of earlier moments. They have half of the connections for reads, and one caller has
 * half of that.
 */
import { actorOf } from "../auth/principal.ts";
import { ServiceError } from "@session-ledger/base/errors";
import { overloaded } from "../base/budget.ts";
import { Semaphore } from "../base/semaphore.ts";
import type { CallContext } from "../contract/context.ts";
import { failureOf } from "../store/failure.ts";

const WAITING_MAX = 1_024;
/** Of one caller. */
const WAITING_OF_CALLER_MAX = 64;
const TOO_MANY = "too many lists, searches, forks and earlier transcripts wait";

/** `connections`: those of the database for reads. */
export function createReadSlots(connections: number): Semaphore {
  const atOnce = Math.max(1, Math.floor(connections / 2));
  return new Semaphore({
    atOnce,
    atOnceOfCaller: Math.max(1, Math.floor(atOnce / 2)),
    waiting: {
      max: WAITING_MAX,
      ofCallerMax: WAITING_OF_CALLER_MAX,
      full: () => overloaded("SERVER_BUSY", TOO_MANY),
    },
  });
}

export function withReadSlot<Request, Response>(
  slots: Semaphore,
  read: (request: Request, context: CallContext) => Promise<Response>,
): (request: Request, context: CallContext) => Promise<Response> {
  return async (request, context) => {
    const { principal, signal } = context;
    try {
      return await slots.run(() => read(request, context), signal, actorOf(principal));
    } catch (error) {
      throw tooSlow(error) ?? error;
    }
  };
}

/** The statement of a caller that was too long reveals nothing of the database. */
function tooSlow(error: unknown): ServiceError | undefined {
  if (!(error instanceof ServiceError) || failureOf(error.cause) !== "slow") return undefined;
  const message = "the database took longer than STATEMENT_TIMEOUT_MS for this: ask for less";
  return new ServiceError("deadline_exceeded", "DEADLINE_EXCEEDED", message, {
    cause: error.cause,
    retryAfterMs: 10_000,
  });
}
