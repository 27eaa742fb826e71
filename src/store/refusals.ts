/** What the state of a session refuses, in the words that every caller gets. */
import { ServiceError } from "../base/errors.ts";

export function sessionNotFound(sessionId: string): ServiceError {
  return new ServiceError("not_found", "SESSION_NOT_FOUND", `session ${sessionId} does not exist`);
}

export function sessionDeleted(sessionId: string): ServiceError {
  return new ServiceError("not_found", "SESSION_DELETED", `session ${sessionId} was deleted`);
}

export function cursorBeyondHead(head: bigint): ServiceError {
  return new ServiceError(
    "out_of_range",
    "CURSOR_BEYOND_HEAD",
    `after_seq is above the head of the session, which is ${head}`,
    { violations: [{ field: "after_seq", description: `expected at most ${head}` }] },
  );
}
