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
import { eraseSession } from "../maintenance/erase.ts";
import type { Redactor } from "@session-ledger/agui/redaction/redactor";
import type { Metrics } from "../observability/metrics.ts";
import type { Database } from "../store/database.ts";
import { holdSession } from "../store/deletion.ts";
import { sessionNotFound } from "../store/failure.ts";
import type { StreamName } from "../store/rows.ts";
import { toSession, type SessionNews } from "./sessions.ts";

const REASON_BYTES_MAX = 1_024;

interface ErasureParts {
  readonly database: Database;
  readonly metrics: Pick<Metrics, "rowsErased">;
}

export function createErasureHandlers(
  { database, metrics }: ErasureParts,
  { onDelete, onChange }: SessionNews,
  redactor?: Redactor,
): Pick<Handlers<typeof SessionService>, "eraseSession" | "holdSession"> {
  const counted = (stream: StreamName, rows: bigint): void =>
    metrics.rowsErased.inc({ stream, by: "erase" }, Number(rows));
  return {
    async eraseSession({ id }, { signal }) {
      refuse([checkSessionId(id, "id")]);
      const marked = (): void => onDelete(id);
      const erased = await eraseSession(database, id, { marked, counted, signal });
      if (erased === undefined) throw sessionNotFound(id);
      // A transcript that was requested before the mark may have been folded since.
      onDelete(id);
      return { $typeName: "ambient.v1.EraseSessionResponse", ...erased };
    },
    async holdSession({ id, reason, release }) {
      refuse([checkSessionId(id, "id"), checkReason(reason, release)]);
      const hold = release ? null : (redactor?.text(reason) ?? reason);
      const record = await holdSession(database, id, hold);
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
