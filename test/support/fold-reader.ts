/** Rows in memory, read as folds read them; commits are in the order of the table. */
import type { TranscriptDependencies } from "../../src/conversation/transcripts.ts";
import type { RowTimes } from "../../src/store/talk.ts";
import type { SlowTable } from "./slow-table.ts";

export function foldReader(table: SlowTable): TranscriptDependencies["reader"] {
  const timesOf = (row: { readonly id: string; readonly createdAtMicros: bigint }): RowTimes => ({
    recordedMicros: table.recordedOf(row.id),
    createdMicros: Number(row.createdAtMicros),
  });
  return {
    heads: (sessionIds) => table.heads(sessionIds),
    pageAfter: (request) => table.pageAfter(request),
    async loggedAfter(request) {
      const rows = await table.pageAfter({ stream: "events", ...request });
      return rows.map((row) => ({
        stream: "events",
        ...timesOf(row),
        seq: row.seq,
        eventType: row.eventType,
        payload: row.payload,
        eventCount: row.eventCount,
        conformant: row.conformant,
        newestMicros:
          row === rows.at(-1) ? (row.completedAtMicros ?? row.createdAtMicros) : undefined,
      }));
    },
    async talkAfter({ isWhole, ...request }) {
      const rows = await table.pageAfter({ stream: "messages", ...request });
      return rows.map((row) => ({
        ...row,
        ...timesOf(row),
        eventCount: 1,
        payload: isWhole || row.eventType === "user" ? row.payload : "",
        idempotencyKey: undefined,
      }));
    },
  };
}
