/** The refusals that follow from the state of a session, with one text for all callers. */
import { ServiceError } from "../base/errors.ts";

export function sessionNotFound(sessionId: string): ServiceError {
  return new ServiceError("not_found", "SESSION_NOT_FOUND", `session ${sessionId} does not exist`);
}

export function sessionDeleted(sessionId: string): ServiceError {
  return new ServiceError("not_found", "SESSION_DELETED", `session ${sessionId} was deleted`);
}

/**
 * For a session whose newest rows are lost; clients that have those rows must start from the
 * beginning.
 */
export function historyLost(sessionId: string): ServiceError {
  return new ServiceError(
    "out_of_range",
    "CURSOR_BEYOND_HEAD",
    `the database has lost the newest rows of session ${sessionId} (a failover, or a restored backup), and their numbers are given to other rows: drop what you have of the session and read it again from the beginning`,
  );
}

/** For a push stream with acknowledged commits that the database has lost. */
export function committedEventsLost(next: bigint): ServiceError {
  return new ServiceError(
    "out_of_range",
    "CURSOR_BEYOND_HEAD",
    `the database has lost events of this stream that were committed (a failover, or a restored backup): open the stream again and send again from number ${next}`,
    { violations: [{ field: "batch.first_client_seq", description: `expected ${next}` }] },
  );
}

export function cursorBeyondHead(head: bigint): ServiceError {
  return new ServiceError(
    "out_of_range",
    "CURSOR_BEYOND_HEAD",
    `after_seq is above the head of the session, which is ${head}`,
    { violations: [{ field: "after_seq", description: `expected at most ${head}` }] },
  );
}
