/** Transcripts over rows in memory. */
import { Semaphore } from "../../src/base/semaphore.ts";
import type { JsonObject } from "@session-ledger/agui/json";
import {
  TRANSCRIPT_LIMITS,
  type TranscriptDependencies,
  type TranscriptCacheLimits,
  Transcripts,
} from "../../src/conversation/transcripts.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import type { Cut } from "../../src/conversation/merging.ts";
import { SlowTable } from "./slow-table.ts";
import type { RowTimes } from "../../src/store/transcript-messages.ts";

export function folding(limits: Partial<TranscriptCacheLimits> = {}) {
  const table = new SlowTable();
  const metrics = createMetrics();
  const transcripts = new Transcripts(
    { reader: foldReader(table), metrics, pastTurns: new Semaphore({ atOnce: 1 }) },
    { ...TRANSCRIPT_LIMITS, bytesMax: 1_000_000, ...limits },
  );
  const asked = async (): Promise<Readonly<Record<string, number>>> => {
    const found = (await metrics.text()).matchAll(/_transcripts_total\{cache="(\w+)"\} (\d+)/g);
    return Object.fromEntries([...found].map(([, cache, count]) => [cache, Number(count)]));
  };
  return { table, metrics, transcripts, asked };
}

/** The session with this many events, and messages. */
export function at(events: bigint, messages = 0n): Cut {
  return { events, messages };
}

/** Says one word in its own message. */
export function say(table: SlowTable, text: string, sessionId = "s"): void {
  const messageId = `m${table.rows.length}`;
  add(table, sessionId, { type: "TEXT_MESSAGE_START", messageId, role: "assistant" });
  add(table, sessionId, { type: "TEXT_MESSAGE_CONTENT", messageId, delta: text });
  add(table, sessionId, { type: "TEXT_MESSAGE_END", messageId });
}

export function add(table: SlowTable, sessionId: string, event: JsonObject): void {
  table.event(sessionId, { eventType: String(event["type"]), payload: JSON.stringify(event) });
}

// Rows in memory, read as folds read them; commits are in the order of the table.

export function foldReader(table: SlowTable): TranscriptDependencies["reader"] {
  const timesOf = (row: { readonly id: string; readonly createdAtMicros: bigint }): RowTimes => ({
    recordedMicros: table.recordedOf(row.id),
    createdMicros: Number(row.createdAtMicros),
  });
  return {
    heads: (sessionIds) => table.heads(sessionIds),
    pageAfter: (request) => table.pageAfter(request),
    async transcriptRowsAfter(request) {
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
    async transcriptMessagesAfter({ isWhole, ...request }) {
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
