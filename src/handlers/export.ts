/**
 * Exports a session, as it stood when the export began, for a file. It holds one page, and expands
 * a merged row while it is written. Rows are counted up to the head, so that a file with missing
 * rows cannot look complete; only the beginning may be missing, after retention.
 */
import type { SessionMessage } from "@session-ledger/proto/ambient/v1/messages_pb";
import type { JsonObject } from "@session-ledger/agui/json";
import { ServiceError } from "@session-ledger/base/errors";
import { Budget, overloaded, serverBusy } from "../base/budget.ts";
import { HistoryExport, type HistoryFormat } from "@session-ledger/history/to-history";
import { expand, type RawEvent } from "@session-ledger/compressor/expand";
import type { LimitUse } from "../observability/limit-metrics.ts";
import type { LedgerReader } from "../store/reader.ts";
import { livingOf } from "../store/failure.ts";
import { headOf, lastSeqOf, type RowOf, type SessionHead, type StreamName } from "../store/rows.ts";
import { type CallContext, callerOf } from "../contract/context.ts";
import { rowBytesOf, toSessionMessage } from "../contract/rows-to-wire.ts";
import { checkSessionId, refuse } from "../contract/checks.ts";

export interface ExportHandlers {
  /** Each element stands for one row and yields that row's events on demand. */
  readonly exportEvents: Export<string, Iterable<RawEvent>>;
  readonly exportMessages: Export<string, SessionMessage>;
  /** Entries of a history; a run that is open is an entry so far. */
  readonly exportHistory: Export<HistoryRequest, JsonObject>;
}

interface HistoryRequest {
  readonly sessionId: string;
  readonly format: HistoryFormat;
}

type Export<R, T> = (of: R, context: CallContext) => AsyncIterable<T>;

/** Exports under way; each holds one page while its caller reads. */
const EXPORTS_MAX = 64;
const FULL = `${EXPORTS_MAX} exports are under way, and no more are taken`;
const PAGE_ROWS_MAX = 500;
const PAGE_BYTES_MAX = 256 * 1024;

export function createExportHandlers(
  reader: Pick<LedgerReader, "heads" | "pageAfter">,
  limitUse: Pick<LimitUse, "watch" | "share">,
): ExportHandlers {
  const limit = new Budget({ max: EXPORTS_MAX });
  limitUse.watch("exports", () => limit.used / EXPORTS_MAX);
  limitUse.share("exports", limit);

  async function headOfLiving(sessionId: string): Promise<SessionHead> {
    return livingOf(sessionId, (await reader.heads([sessionId])).get(sessionId));
  }

  async function* rowsOf<S extends StreamName>(
    stream: S,
    sessionId: string,
    context: CallContext,
  ): AsyncGenerator<RowOf<S>> {
    refuse([checkSessionId(sessionId)]);
    const { signal, memory } = context;
    const place = limit.mustReserve(callerOf(context), () => overloaded("SERVER_BUSY", FULL));
    try {
      const end = headOf(await headOfLiving(sessionId), stream);
      const page = { stream, sessionId, rowsMax: PAGE_ROWS_MAX, bytesMax: PAGE_BYTES_MAX };
      let after = 0n;
      while (after < end) {
        const rows = await reader.pageAfter({ ...page, after });
        await headOfLiving(sessionId); // A deleted session is not exported any further.
        if (memory?.resize("rows", rowBytesOf(rows)) === false) throw serverBusy();
        for (const row of rows) {
          if (after !== 0n && row.seq !== after + 1n) throw erased(sessionId);
          after = lastSeqOf(row);
          if (after > end) return;
          yield row;
          signal.throwIfAborted();
        }
        if (rows.length > 0) continue;
        if (after === 0n) return; // Every row was erased before.
        throw erased(sessionId);
      }
    } finally {
      place.release();
    }
  }

  return {
    async *exportEvents(sessionId, context) {
      for await (const row of rowsOf("events", sessionId, context)) yield expand(row);
    },
    async *exportMessages(sessionId, context) {
      for await (const row of rowsOf("messages", sessionId, context)) yield toSessionMessage(row);
    },
    async *exportHistory({ sessionId, format }, context) {
      const history = new HistoryExport(format, { sessionId });
      for await (const row of rowsOf("events", sessionId, context)) yield* history.take(row);
      yield* history.end();
    },
  };
}

function erased(sessionId: string): ServiceError {
  const message = `rows of session ${sessionId} were erased while it was exported`;
  return new ServiceError("aborted", "ROW_ERASED", message, { retryAfterMs: 1_000 });
}
