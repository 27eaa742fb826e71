/** Rows in memory, read as folds read them. */
import type { TranscriptDependencies } from "../../src/conversation/transcripts.ts";
import type { SlowTable } from "./slow-table.ts";

export function foldReader(table: SlowTable): TranscriptDependencies["reader"] {
  return {
    heads: (sessionIds) => table.heads(sessionIds),
    pageAfter: (request) => table.pageAfter(request),
    async loggedAfter(request) {
      const rows = await table.pageAfter({ stream: "events", ...request });
      return rows.map((row) => ({
        seq: row.seq,
        eventType: row.eventType,
        payload: row.payload,
        eventCount: row.eventCount,
        conformant: row.conformant,
        newestMicros:
          row === rows.at(-1) ? (row.completedAtMicros ?? row.createdAtMicros) : undefined,
      }));
    },
  };
}
