/**
 * Rows in the form of HTTP's older clients: snake_case, numbers as JSON numbers, times with
 * microseconds. The JSON is written as text: JSON.stringify takes no bigint, and a seq above 2^53 -
 * 1 must not be rounded. A JSON number may have any number of digits.
 */
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { z } from "zod";
import type { SessionEvent } from "../../gen/ambient/v1/events_pb.ts";
import type { SessionMessage } from "../../gen/ambient/v1/messages_pb.ts";

const NANOS_PER_MICRO = 1_000;

/** Documents the output of `seqText`; JavaScript reads it exactly up to 2^53 - 1. */
export const seqNumber = z.bigint().meta({ type: "integer", format: "int64", minimum: 0 });
export const timeText = z.string().meta({ format: "date-time" });

export const messageItemSchema = z
  .strictObject({
    id: z.string().meta({ format: "uuid" }),
    session_id: z.string(),
    seq: seqNumber,
    event_type: z.string(),
    payload: z.string(),
    created_at: timeText,
  })
  .meta({ id: "Message" });

export const eventItemSchema = z
  .strictObject({
    id: z.string().meta({ format: "uuid" }),
    session_id: z.string(),
    seq: seqNumber,
    event_type: z.string(),
    payload: z.string().meta({ description: "The AG-UI event as JSON text." }),
    created_at: timeText,
    completed_at: timeText.optional(),
    event_count: z.int().meta({
      minimum: 1,
      description: "Raw events that the row stands for; it takes as many numbers.",
    }),
    run_id: z.string().optional(),
  })
  .meta({ id: "Event" });

/** The result is JSON text. */
export function messageItem(message: SessionMessage): string {
  return jsonObject({
    id: JSON.stringify(message.id),
    session_id: JSON.stringify(message.sessionId),
    seq: message.seq.toString(),
    event_type: JSON.stringify(message.eventType),
    payload: JSON.stringify(message.payload),
    created_at: timeJson(message.createdAt),
  });
}

/** The result is JSON text. */
export function eventItem(event: SessionEvent): string {
  return jsonObject({
    id: JSON.stringify(event.id),
    session_id: JSON.stringify(event.sessionId),
    seq: event.seq.toString(),
    event_type: JSON.stringify(event.eventType),
    payload: JSON.stringify(event.payload),
    created_at: timeJson(event.createdAt),
    completed_at: timeJson(event.completedAt),
    event_count: String(event.eventCount),
    run_id: event.runId === "" ? undefined : JSON.stringify(event.runId),
  });
}

/** An object of fields that are JSON text already; an undefined field is left out. */
export function jsonObject(fields: Readonly<Record<string, string | undefined>>): string {
  let text = "";
  for (const [name, value] of Object.entries(fields)) {
    if (value !== undefined) text += `${text === "" ? "" : ","}"${name}":${value}`;
  }
  return `{${text}}`;
}

export function jsonArray(items: readonly string[]): string {
  return `[${items.join(",")}]`;
}

function timeJson(time: Timestamp | undefined): string | undefined {
  return time === undefined ? undefined : `"${rfc3339Of(time)}"`;
}

/** With microseconds, always six digits, so that texts sort as times do. */
export function rfc3339Of({ seconds, nanos }: Timestamp): string {
  const whole = new Date(Number(seconds) * 1_000).toISOString().slice(0, -".000Z".length);
  const micros = Math.floor(nanos / NANOS_PER_MICRO);
  return `${whole}.${String(micros).padStart(6, "0")}Z`;
}
