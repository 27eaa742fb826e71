/** The text of an event in its line of the table, and the events of a merged row. */
import { type CatalogueEntry, lookup } from "@session-ledger/agui/catalogue";
import { isObject, parseJson } from "@session-ledger/agui/json";
import { expand } from "@session-ledger/compressor/expand";
import type { Row } from "../model/source.ts";

export interface RawEvent {
  readonly seq: number;
  readonly payload: string | undefined;
  readonly atMs: number;
}

export function categoryOf(type: string): CatalogueEntry["category"] | "unknown" {
  return lookup(type)?.category ?? "unknown";
}

/** Rows whose events are kept apart, and their largest count: the screen shows about forty lines. */
const EXPANDED_MAX = 50;
const EXPANDED_COUNT_MAX = 20_000;
const expanded = new Map<Row, readonly RawEvent[]>();

/** The event with this number, as it was before compression. */
export function eventPayload(row: Row, seq: number): RawEvent {
  if (row.count === 1 || row.payload === undefined)
    return { seq, payload: row.payload, atMs: row.atMs };
  if (row.count > EXPANDED_COUNT_MAX) {
    const [event] = eventsOf(row, { after: seq - 1, max: 1 });
    return event ?? { seq, payload: undefined, atMs: row.atMs };
  }
  const known = expanded.get(row) ?? eventsOf(row, { after: row.seq - 1, max: row.count });
  expanded.delete(row); // The newest use comes last.
  expanded.set(row, known);
  for (const oldest of expanded.keys()) {
    if (expanded.size <= EXPANDED_MAX) break;
    expanded.delete(oldest);
  }
  return known[seq - row.seq] ?? { seq, payload: undefined, atMs: row.atMs };
}

/** The events of a row above a number, at most `max`. */
export function eventsOf(
  row: Row,
  { after, max }: { readonly after: number; readonly max: number },
): readonly RawEvent[] {
  const { payload, type: eventType, count: eventCount, fragments } = row;
  if (payload === undefined) return [];
  const micros = BigInt(Math.round(row.atMs * 1_000));
  const whole = { seq: BigInt(row.seq), eventType, payload, createdAtMicros: micros, eventCount };
  const events: RawEvent[] = [];
  for (const event of expand({ ...whole, fragments }, BigInt(after))) {
    if (events.length >= max) break;
    const atMs = Number(event.createdAtMicros) / 1_000;
    events.push({ seq: Number(event.seq), payload: event.payload, atMs });
  }
  return events;
}

/** The most informative members of each type; the first existing one is shown. */
const MEMBERS: Readonly<Record<string, readonly string[]>> = {
  TOOL_CALL_START: ["toolCallName"],
  TOOL_CALL_CHUNK: ["delta", "toolCallName"],
  TOOL_CALL_RESULT: ["content"],
  STEP_STARTED: ["stepName"],
  STEP_FINISHED: ["stepName"],
  SUBAGENT_STARTED: ["name"],
  RUN_STARTED: ["runId"],
  RUN_FINISHED: ["outcome", "result", "runId"],
  RUN_ERROR: ["message"],
  SUBAGENT_ERROR: ["message"],
  STATE_SNAPSHOT: ["snapshot"],
  STATE_DELTA: ["delta"],
  MESSAGES_SNAPSHOT: ["messages"],
  ACTIVITY_SNAPSHOT: ["content"],
  ACTIVITY_DELTA: ["patch"],
  CUSTOM: ["name"],
  RAW: ["event"],
};
const OTHERS = ["delta", "messageId", "toolCallId"];
/** A longer payload is not parsed for one line. */
const PARSED_CHARS_MAX = 100_000;

export function previewOf(type: string, payload: string): string {
  if (payload.length > PARSED_CHARS_MAX) return payload.slice(0, 400);
  const value = parseJson(payload);
  if (!isObject(value)) return payload;
  for (const member of [...(MEMBERS[type] ?? []), ...OTHERS]) {
    const text = value[member];
    if (text !== undefined && text !== null)
      return typeof text === "string" ? text : JSON.stringify(text);
  }
  return payload;
}
