/** Erases one session, or holds it so that nobody does. */
import type { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import {
  checkTextBytes,
  checkThat,
  type Check,
  refuse,
  checkSessionId,
} from "../contract/checks.ts";
import type { Handlers } from "../contract/context.ts";
import type { ErasedSession } from "../maintenance/erase.ts";
import type { Redactor } from "@session-ledger/agui/redaction/redactor";
import { sessionNotFound } from "../store/failure.ts";
import type { SessionRecord } from "../store/sessions.ts";
import { toSession, type SessionNews } from "./sessions.ts";

const REASON_BYTES_MAX = 1_024;

/** The store, as these handlers need it. */
export interface ErasureStore {
  /** Calls `marked` once the session refuses every push. Undefined: no such session. */
  eraseSession(
    sessionId: string,
    call: { readonly marked: () => void; readonly signal: AbortSignal },
  ): Promise<ErasedSession | undefined>;
  /** Null ends the hold. Returns undefined without a session to hold. */
  holdSession(id: string, hold: string | null): Promise<SessionRecord | undefined>;
}

export function createErasureHandlers(
  store: ErasureStore,
  { onDelete, onChange }: SessionNews,
  redactor?: Redactor,
): Pick<Handlers<typeof SessionService>, "eraseSession" | "holdSession"> {
  return {
    async eraseSession({ id }, { signal }) {
      refuse([checkSessionId(id, "id")]);
      const erased = await store.eraseSession(id, { marked: () => onDelete(id), signal });
      if (erased === undefined) throw sessionNotFound(id);
      // A transcript that was requested before the mark may have been folded since.
      onDelete(id);
      return { $typeName: "ambient.v1.EraseSessionResponse", ...erased };
    },
    async holdSession({ id, reason, release }) {
      refuse([checkSessionId(id, "id"), checkReason(reason, release)]);
      const record = await store.holdSession(
        id,
        release ? null : (redactor?.text(reason) ?? reason),
      );
      if (record === undefined) throw sessionNotFound(id);
      onChange(id);
      return toSession(record);
    },
  };
}

function checkReason(reason: string, release: boolean): Check {
  return (
    checkThat("reason", !release || reason === "", "must be empty with release") ??
    checkThat("reason", release || reason.trim() !== "", "must say why the session is held") ??
    checkTextBytes("reason", reason, REASON_BYTES_MAX)
  );
}
