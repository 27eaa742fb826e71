import type { Violation } from "../base/errors.ts";

/** The fields of the contract that name a session. */
type SessionIdField = "session_id" | "id" | "parent_session_id";

const SESSION_ID_BYTES_MAX = 128;
// Only ASCII passes, so characters are bytes, and U+0000 is refused with everything else.
const SESSION_ID_FORM = new RegExp(`^[A-Za-z0-9._:-]{1,${SESSION_ID_BYTES_MAX}}$`);

/** What is wrong with a session id that a caller sent. */
export function checkSessionId(
  sessionId: string,
  field: SessionIdField = "session_id",
): Violation | undefined {
  if (sessionId === "") return { field, description: `${field} is required` };
  // A path segment of the HTTP API that says `.` or `..` would be taken for another path.
  if (SESSION_ID_FORM.test(sessionId) && sessionId !== "." && sessionId !== "..") return undefined;
  const description = `${field} must be 1 to ${SESSION_ID_BYTES_MAX} bytes of [A-Za-z0-9._:-], not . or ..`;
  return { field, description };
}
