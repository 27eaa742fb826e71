/** Erases one session; retention erases the old beginnings of all sessions. */
import type { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import { invalidArgument } from "../base/errors.ts";
import { sessionNotFound } from "../store/failure.ts";
import type { ErasedSession } from "../maintenance/erase.ts";
import { violationsOf } from "../contract/checks.ts";
import type { Handlers } from "../contract/context.ts";
import { checkSessionId } from "../contract/session-id.ts";

/** The store, as this handler needs it. */
export interface EraseStore {
  /**
   * Calls `marked` once the session refuses every push. Returns undefined when there is no session
   * to erase.
   */
  eraseSession(
    sessionId: string,
    call: { readonly marked: () => void; readonly signal: AbortSignal },
  ): Promise<ErasedSession | undefined>;
}

export function createEraseHandlers(
  store: EraseStore,
  /** Called after the session is marked as deleted, and again when all of its rows are gone. */
  deleted: (sessionId: string) => void,
): Pick<Handlers<typeof SessionService>, "eraseSession"> {
  return {
    async eraseSession({ id }, { signal }) {
      const violations = violationsOf([checkSessionId(id, "id")]);
      if (violations.length > 0) throw invalidArgument(violations);
      const erased = await store.eraseSession(id, { marked: () => deleted(id), signal });
      if (erased === undefined) throw sessionNotFound(id);
      // A transcript that was requested before the mark may have been folded since.
      deleted(id);
      return { $typeName: "ambient.v1.EraseSessionResponse", ...erased };
    },
  };
}
