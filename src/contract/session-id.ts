import type { Violation } from "@session-ledger/base/errors";
import { ID_BYTES_MAX, isSessionId } from "@session-ledger/base/ids";

/** The fields of the contract that name a session. */
type SessionIdField = "session_id" | "id" | "new_id" | "parent_session_id";

/** The violation of a session id that a caller sent. */
export function checkSessionId(
  sessionId: string,
  field: SessionIdField = "session_id",
): Violation | undefined {
  if (sessionId === "") return { field, description: `${field} is required` };
  if (isSessionId(sessionId)) return undefined;
  const description = `${field} must be 1 to ${ID_BYTES_MAX} bytes of [A-Za-z0-9._:-], not . or ..`;
  return { field, description };
}
