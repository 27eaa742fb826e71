import type { EventRow as AguiRow } from "../agui/rows.ts";
import type { NewRow } from "../store/rows.ts";
import { rowId } from "./row-id.ts";

/** The fields that AG-UI or the compressor made. */
export type EventFields = Pick<
  AguiRow,
  "eventType" | "payload" | "eventCount" | "createdAtMicros" | "completedAtMicros"
> &
  Pick<AguiRow, "conformant" | "mark">;

export function newEventRow(row: EventFields, fragments: Uint8Array | undefined): NewRow {
  return {
    id: rowId(),
    eventType: row.eventType,
    payload: row.payload,
    createdAtMicros: row.createdAtMicros,
    completedAtMicros: row.completedAtMicros,
    eventCount: row.eventCount,
    fragments,
    conformant: row.conformant,
    mark: row.mark,
    sender: undefined,
    sentAtMicros: undefined,
  };
}
