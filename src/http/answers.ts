/** The answers of routes, and their description in the OpenAPI document. */
import { toBinary, toJsonString } from "@bufbuild/protobuf";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { FastifyReply } from "fastify";
import { z } from "zod";
import { FragmentsSchema } from "@session-ledger/proto/ambient/v1/compression_pb";
import type { FeedEvent } from "@session-ledger/proto/ambient/v1/feed_pb";
import type { SessionEvent } from "@session-ledger/proto/ambient/v1/events_pb";
import { SenderSchema, type SessionMessage } from "@session-ledger/proto/ambient/v1/messages_pb";
import { MESSAGE_TYPES } from "@session-ledger/agui/message-types";
import { EVENT_TYPE_FORM, EVENT_TYPES } from "../contract/checks.ts";
import { timestampOf } from "../contract/times.ts";
import { NO_QUERY, sessionParams, textMember } from "./parameters.ts";
import { PROBLEM_TYPE } from "./plumbing/problem.ts";
import type { EventStreamOptions } from "./sse.ts";
import type { ServedMethods, ServedReads } from "../handlers/authorised.ts";

/** What the routes call, and what their streams of events need. */
export interface RouteParts extends ServedReads, EventStreamOptions {
  readonly handlers: ServedMethods;
}

export const JSON_TYPE = "application/json";

interface AnswerOptions {
  readonly status?: number;
  /** The answer is that of an earlier request. */
  readonly isReplayed?: boolean;
}

/** As bytes: to text fastify would add a charset, which JSON does not have. */
export function sendJson(
  reply: FastifyReply,
  text: string,
  { status = 200, isReplayed = false }: AnswerOptions = {},
): FastifyReply {
  if (isReplayed) void reply.header("idempotent-replayed", "true");
  return reply.code(status).type(JSON_TYPE).send(Buffer.from(text));
}

const problemSchema = z
  .strictObject({
    type: z.literal("about:blank"),
    title: z.string(),
    status: z.int(),
    detail: z.string().optional(),
    reason: z.string().meta({ description: "Why, for programs; as gRPC's ErrorInfo has it." }),
    violations: z
      .array(
        z.strictObject({
          field: z.string().meta({ description: "Empty: the request as a whole." }),
          description: z.string(),
        }),
      )
      .optional(),
  })
  .meta({ id: "Problem", description: "RFC 9457." });

const problem = (description: string) => ({
  description,
  content: { [PROBLEM_TYPE]: { schema: problemSchema } },
});

/** The refusals of callers without a valid token, or without the right role. */
export const DENIALS = {
  401: problem("No token, or one that is not accepted or has expired."),
  403: problem("The token's roles do not allow it."),
} as const;

/** The refusals of a route. */
export const PROBLEMS = {
  ...DENIALS,
  "4xx": problem("The request is at fault; `violations` names what."),
  "5xx": problem("The service is at fault, or stops; with Retry-After, try again."),
} as const;

export function answer(description: string, schema: z.ZodType, type = JSON_TYPE) {
  return { description, content: { [type]: { schema } } };
}

/** JSON, or on request a stream of events. */
export function answerOrStream(description: string, schema: z.ZodType) {
  const stream = { schema: z.string() };
  return { description, content: { [JSON_TYPE]: { schema }, "text/event-stream": stream } };
}

/** The description of a route of one session without parameters in the query. */
export function ofSession(tag: string) {
  return { tags: [tag], params: sessionParams, querystring: NO_QUERY };
}

/**
 * Rows in the form of HTTP's older clients: snake_case, numbers as JSON numbers, times with
 * microseconds. Written as text, because a seq above 2^53 - 1 must not be rounded.
 */

const NANOS_PER_MICRO = 1_000;

/** Documents the output of `seqText`; JavaScript reads it exactly up to 2^53 - 1. */
export const seqNumber = z.bigint().meta({ type: "integer", format: "int64", minimum: 0 });
export const timeText = z.string().meta({ format: "date-time" });

/** Only described here: the handlers check types, so that gRPC and HTTP give the same errors. */
const messageType = z.string().meta({ enum: [...MESSAGE_TYPES] });
export const eventType = z.string().meta({
  description: "Of AG-UI; a service with VALIDATION=lenient also stores other types.",
  anyOf: [{ enum: [...EVENT_TYPES] }, { pattern: EVENT_TYPE_FORM.source }],
});

const senderText = textMember().optional();

/** The handlers check the lengths. */
export const senderSchema = z
  .strictObject(
    {
      id: senderText.meta({ description: "In the system that the message comes from." }),
      name: senderText.meta({ description: "Login or handle." }),
      display_name: senderText.meta({ description: "The name to show to a person." }),
      is_bot: z.boolean({ error: "must be true or false" }).optional(),
      channel: senderText.meta({ description: "The kind of place, for example `slack`." }),
      channel_id: senderText,
      thread_id: senderText,
    },
    { error: "must be an object" },
  )
  .meta({ description: "At most 1,024 bytes a field." });

const recordedText = timeText.optional().meta({
  description:
    "On request: the time of the commit, which gives the rows of both streams one order.",
});

export const messageItemSchema = z
  .strictObject({
    id: z.string().meta({ format: "uuid" }),
    session_id: z.string(),
    seq: seqNumber,
    event_type: messageType,
    payload: z.string(),
    created_at: timeText,
    sent_at: timeText.optional().meta({ description: "As pushed." }),
    sender: senderSchema.optional(),
    recorded_at: recordedText,
  })
  .meta({ id: "Message" });

export const eventItemSchema = z
  .strictObject({
    id: z.string().meta({ format: "uuid" }),
    session_id: z.string(),
    seq: seqNumber,
    event_type: eventType,
    payload: z.string().meta({ description: "The AG-UI event as JSON text." }),
    created_at: timeText,
    completed_at: timeText.optional(),
    event_count: z.int().meta({
      minimum: 1,
      description: "Raw events that the row stands for; it takes as many numbers.",
    }),
    run_id: z.string().optional(),
    fragments: z.string().optional().meta({
      description: "On request: the index of a merged row, ambient.v1.Fragments in base64.",
    }),
    nonconformant: z.literal(true).optional().meta({
      description: "No version of AG-UI has such an event: AG-UI clients get it as CUSTOM.",
    }),
    recorded_at: recordedText,
  })
  .meta({ id: "Event" });

const IN_SNAKE_CASE = { useProtoFieldName: true } as const;

/** The result is JSON text. */
export function messageItem(
  message: SessionMessage,
  { recordedMicros }: { readonly recordedMicros?: bigint | undefined } = {},
): string {
  return jsonObject({
    id: JSON.stringify(message.id),
    session_id: JSON.stringify(message.sessionId),
    seq: message.seq.toString(),
    event_type: JSON.stringify(message.eventType),
    payload: JSON.stringify(message.payload),
    created_at: timeJson(message.createdAt),
    sent_at: timeJson(message.sentAt),
    sender: message.sender && toJsonString(SenderSchema, message.sender, IN_SNAKE_CASE),
    recorded_at: microsJson(recordedMicros),
  });
}

/** The result is JSON text. */
export function eventItem(
  event: SessionEvent,
  {
    fragments = false,
    recordedMicros,
  }: { readonly fragments?: boolean; readonly recordedMicros?: bigint | undefined } = {},
): string {
  const index = fragments && event.fragments && toBinary(FragmentsSchema, event.fragments);
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
    fragments: index ? `"${Buffer.from(index).toString("base64")}"` : undefined,
    nonconformant: event.nonconformant ? "true" : undefined,
    recorded_at: microsJson(recordedMicros),
  });
}

/** A row of a feed: the item, as JSON text, and the other fields of the row. */
export function feedItem(
  item: string,
  { projectId, recordedAt }: Pick<FeedEvent, "projectId" | "recordedAt">,
): string {
  const around = jsonObject({
    project_id: projectId === "" ? undefined : JSON.stringify(projectId),
    recorded_at: timeJson(recordedAt),
  });
  return `${item.slice(0, -1)},${around.slice(1)}`;
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

export function microsJson(micros: bigint | undefined): string | undefined {
  return micros === undefined ? undefined : timeJson(timestampOf(micros));
}

/** With microseconds, always six digits, so that texts sort as times do. */
export function rfc3339Of({ seconds, nanos }: Timestamp): string {
  const whole = new Date(Number(seconds) * 1_000).toISOString().slice(0, -".000Z".length);
  const micros = Math.floor(nanos / NANOS_PER_MICRO);
  return `${whole}.${String(micros).padStart(6, "0")}Z`;
}
