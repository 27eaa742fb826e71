/**
 * Events pushed over HTTP: one, an array, or a line an event (NDJSON). A request is one push,
 * stored whole or not at all; `Idempotency-Key` makes a repetition safe, and `Producer-Epoch`
 * fences. The text of an event is its payload, so a body is cut and not printed again.
 */
import type { IncomingMessage } from "node:http";
import type { FastifyRequest } from "fastify";
import { z } from "zod";
import { LIST_EVENTS_MAX } from "../handlers/push-list.ts";
import { invalidArgument, ServiceError, type Violation } from "@session-ledger/base/errors";
import { utf8Of } from "@session-ledger/base/utf8";
import { elementTexts } from "../contract/checks.ts";
import {
  answer,
  JSON_TYPE,
  jsonObject,
  ofSession,
  PROBLEMS,
  type RouteParts,
  sendJson,
  seqNumber,
} from "./answers.ts";
import { keyOf } from "./message-routes.ts";
import { seqHeader } from "./parameters.ts";
import type { App } from "./plumbing/app.ts";
import { callContextOf } from "./plumbing/call-context.ts";
import { checkCharset, parse, readText, receive } from "./plumbing/json-body.ts";
import { withNames } from "../contract/checks.ts";
import { fieldRefusal } from "./plumbing/problem.ts";

const LINES_TYPE = "application/x-ndjson";

/** The events of a body, as this route's parsers leave them. */
class EventsBody {
  readonly events: readonly string[];
  readonly isList: boolean;

  constructor(events: readonly string[], { isList }: { readonly isList: boolean }) {
    this.events = events;
    this.isList = isList;
  }
}

export function eventPushRoutes(
  app: App,
  { handlers }: RouteParts,
  { requestBytesMax }: { readonly requestBytesMax: number },
): void {
  // A separate plugin, because no other route gets such bodies.
  void app.register((own: App, _options, done) => {
    parseEvents(own, requestBytesMax);
    own.post("/sessions/:id/events", { schema: PUSH }, async (request, reply) => {
      const { body } = request;
      if (!(body instanceof EventsBody)) throw wrongType();
      // A caller that relies on its numbers would store a repetition twice.
      if (request.headers["client-seq"] !== undefined) throw invalidArgument([NO_NUMBERS]);
      const list = {
        sessionId: request.params.id,
        payloads: body.events,
        idempotencyKey: keyOf(request.headers["idempotency-key"]?.toString()),
        producerEpoch: seqHeader("Producer-Epoch", request.headers["producer-epoch"]),
      };
      const { firstSeq, lastSeq, deduplicated } = await handlers
        .pushEventList(list, callContextOf(request))
        .catch((error: unknown) => {
          throw withNames(ServiceError.from(error), (text) => nameInRequest(text, body));
        });
      const seqs = { first_seq: firstSeq.toString(), last_seq: lastSeq.toString() };
      return sendJson(reply, jsonObject(seqs), { isReplayed: deduplicated });
    });
    done();
  });
}

function parseEvents(app: App, bytesMax: number): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser(JSON_TYPE, async (request: FastifyRequest, payload: IncomingMessage) =>
    eventsOf(request, await receive(request, payload, { bytesMax })),
  );
  app.addContentTypeParser(
    LINES_TYPE,
    async (request: FastifyRequest, payload: IncomingMessage) => {
      checkCharset(request.headers["content-type"]);
      return eventsOfLines(await receive(request, payload, { bytesMax }));
    },
  );
  app.addContentTypeParser("*", () => Promise.reject(wrongType()));
}

const NO_NUMBERS = {
  field: "Client-Seq",
  description:
    "Client-Seq is not known here: a body is one push, and Idempotency-Key makes it safe",
};

function wrongType(): ServiceError {
  const description = `Content-Type must be ${JSON_TYPE} or ${LINES_TYPE}`;
  return fieldRefusal(415, "Content-Type", description, { accept: `${JSON_TYPE}, ${LINES_TYPE}` });
}

/** Anything that is no array is one event, and refused like an event where it is none. */
function eventsOf(request: FastifyRequest, bytes: Buffer): EventsBody | undefined {
  const value = parse(request, bytes);
  if (value === undefined) return undefined;
  const text = readText(request, bytes);
  if (!Array.isArray(value)) return new EventsBody([text.trim()], { isList: false });
  if (value.length === 0 || value.length > LIST_EVENTS_MAX) throw invalidArgument([tooMany()]);
  return new EventsBody(elementTexts(text), { isList: true });
}

function eventsOfLines(bytes: Buffer): EventsBody {
  const text = utf8Of(bytes, { isStart: true });
  if (text === undefined) throw invalidArgument([notUtf8(bytes)]);
  const lines = linesOf(text);
  if (lines.length === 0 || lines.length > LIST_EVENTS_MAX) throw invalidArgument([tooMany()]);
  return new EventsBody(lines, { isList: true });
}

/** Without empty lines. Only JSON's white space is removed: trim would also remove byte order marks. */
function linesOf(text: string): readonly string[] {
  return text
    .split("\n")
    .map((line) => line.replace(AROUND, ""))
    .filter((line) => line !== "");
}

const AROUND = /^[ \t\r]+|[ \t\r]+$/g;
const LINE_FEED = 0x0a;

/** Names the first line that cannot be decoded. */
function notUtf8(bytes: Buffer): Violation {
  let events = 0;
  for (let start = 0; start < bytes.length; ) {
    const feed = bytes.indexOf(LINE_FEED, start);
    const end = feed < 0 ? bytes.length : feed;
    const line = utf8Of(bytes.subarray(start, end), { isStart: start === 0 });
    if (line === undefined) break;
    events += linesOf(line).length;
    start = end + 1;
  }
  return { field: "", description: `the line of event ${events + 1} is not UTF-8` };
}

function tooMany(): Violation {
  const description = `the body must have 1 to ${LIST_EVENTS_MAX} events; send more of them in several requests`;
  return { field: "", description };
}

/** The beginning of a text that names a field of the handlers. */
function nameInRequest(text: string, { isList }: { readonly isList: boolean }): string {
  return text
    .replace(/^producer_epoch\b/, "Producer-Epoch")
    .replace(
      /^(?:events(\[\d+\])\.)?(?:payload(\.)?|(event_type)\b)/,
      (all, index: string | undefined, dot: string | undefined, type: string | undefined) => {
        const place = isList ? (index ?? "") : "";
        if (type !== undefined) return place === "" ? "type" : `${place}.type`;
        if (dot !== undefined) return place === "" ? "" : `${place}.`;
        if (place !== "") return place;
        return all === text ? "" : "the event";
      },
    );
}

const eventSchema = {
  type: "object",
  description: "An AG-UI event.",
  examples: [{ type: "TEXT_MESSAGE_CONTENT", messageId: "m1", delta: "Noon." }],
} as const;

const PUSH = {
  operationId: "pushEvents",
  summary: "Push events",
  description:
    "One event, an array, or a line an event. The request is one push: stored whole or not at all, and fragments of one text are merged.",
  ...ofSession("events"),
  headers: z.object({
    "idempotency-key": z.string().optional().meta({
      description:
        "UTF-8, at most 128 bytes, for the whole request. A repetition with the same key and events is answered with the first seqs; with other events it is 409.",
    }),
    "producer-epoch": z.string().optional().meta({
      description:
        "The writer's generation. A lower one than the session has seen is 409, STALE_EPOCH.",
    }),
  }),
  consumes: [JSON_TYPE, LINES_TYPE],
  body: z.any().meta({
    description: `${LINES_TYPE}: an event a line, in UTF-8; empty lines are skipped.`,
    oneOf: [eventSchema, { type: "array", items: eventSchema, maxItems: LIST_EVENTS_MAX }],
  }),
  response: {
    200: answer(
      "The stored numbers. `Idempotent-Replayed: true`: by an earlier request.",
      z.strictObject({ first_seq: seqNumber, last_seq: seqNumber }).meta({ id: "StoredEvents" }),
    ),
    ...PROBLEMS,
  },
};
