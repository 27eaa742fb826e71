/**
 * Events pushed over HTTP, so that a function, a browser or curl can be a runner.
 *
 *   one event or an array, without Client-Seq,  one push: stored whole or not at all; Idempotency-Key
 *   or lines with Idempotency-Key               makes a repetition safe, Producer-Epoch fences
 *   with Client-Seq, or any other lines         a push stream: numbered, deduplicated and fenced like
 *                                               one over gRPC
 *
 * The text of an event is its payload, byte for byte, so a body is cut into events and not printed again.
 */
import type { IncomingMessage } from "node:http";
import type { FastifyReply, FastifyRequest } from "fastify";
import { z } from "zod";
import type { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import { type EventListHandlers, LIST_EVENTS_MAX } from "../api/push-list.ts";
import { invalidArgument, ServiceError } from "../base/errors.ts";
import { elementTexts } from "../contract/checks.ts";
import type { Handlers } from "../contract/context.ts";
import {
  answer,
  JSON_TYPE,
  jsonArray,
  jsonObject,
  problemJson,
  problems,
  problemSchema,
  sendJson,
  seqNumber,
} from "./answers.ts";
import { REFUSED_SHOWN_MAX, upload, type Uploaded } from "./event-upload.ts";
import { keyOf } from "./message-routes.ts";
import { NO_QUERY, seqParameter, sessionParams } from "./parameters.ts";
import { type App, leaveBody } from "./plumbing/app.ts";
import { linesOf } from "./plumbing/lines.ts";
import { callContextOf, servedRequestOf, streamContextOf } from "./plumbing/call-context.ts";
import { checkCharset, parse, readText, receive } from "./plumbing/json-body.ts";
import {
  fieldRefusal,
  PROBLEM_TYPE,
  problemHeaders,
  statusOf,
  withNames,
} from "./plumbing/problem.ts";

export interface EventPushParts {
  readonly handlers: EventListHandlers & Pick<Handlers<typeof SessionService>, "pushSessionEvents">;
  readonly requestBytesMax: number;
  /** The time for one line of a body of lines. */
  readonly lineLimitMs: number;
}

const LINES_TYPE = "application/x-ndjson";

/** A body as this route's parsers leave it: its events, or that they come in lines. */
class Body {
  readonly events: readonly string[] | "lines";
  readonly isList: boolean;

  constructor(events: readonly string[] | "lines", { isList }: { readonly isList: boolean }) {
    this.events = events;
    this.isList = isList;
  }
}

const LINES = new Body("lines", { isList: true });

export function eventPushRoutes(app: App, parts: EventPushParts): void {
  // A plugin of its own, because no other route gets such bodies.
  void app.register((own: App, _options, done) => {
    parseEvents(own, parts.requestBytesMax);
    own.post("/sessions/:id/events", { schema: PUSH }, async (request, reply) => {
      const { body } = request;
      if (!(body instanceof Body)) throw wrongType();
      const push = { sessionId: request.params.id, body, ...headersOf(request) };
      const isStream = body.events === "lines" || push.clientSeq !== undefined;
      if (!isStream) return pushList(reply, parts, push);
      const uploaded = await uploadEvents(reply, parts, push);
      return sendUploaded(reply, uploaded, body);
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
      const { idempotencyKey, clientSeq } = headersOf(request);
      if (idempotencyKey === "" || clientSeq !== undefined) return LINES;
      return eventsOfLines(await receive(request, payload, { bytesMax }));
    },
  );
  app.addContentTypeParser("*", () => Promise.reject(wrongType()));
}

async function pushList(
  reply: FastifyReply,
  { handlers }: EventPushParts,
  { sessionId, body, idempotencyKey, producerEpoch }: Push,
): Promise<FastifyReply> {
  const payloads = body.events === "lines" ? [] : body.events;
  const list = { sessionId, payloads, idempotencyKey, producerEpoch };
  const { firstSeq, lastSeq, deduplicated } = await handlers
    .pushEventList(list, callContextOf(reply.request))
    .catch((error: unknown) => Promise.reject(named(ServiceError.from(error), body)));
  if (deduplicated) void reply.header("idempotent-replayed", "true");
  const seqs = { first_seq: firstSeq.toString(), last_seq: lastSeq.toString() };
  return sendJson(reply, jsonObject(seqs));
}

function uploadEvents(
  { request }: FastifyReply,
  { handlers, requestBytesMax, lineLimitMs }: EventPushParts,
  { sessionId, body, idempotencyKey, producerEpoch, clientSeq }: Push,
): Promise<Uploaded> {
  if (idempotencyKey !== "") throw invalidArgument([NO_KEY]);
  if (clientSeq !== undefined && producerEpoch === undefined) throw invalidArgument([NO_EPOCH]);
  const served = servedRequestOf(request);
  const begin = (caller: Parameters<typeof handlers.pushSessionEvents>[0]) => {
    const conversation = handlers.pushSessionEvents(caller);
    served.counts = () => conversation.record.counts;
    return conversation;
  };
  return upload(begin, streamContextOf(request), {
    sessionId,
    producerEpoch: producerEpoch ?? 0n,
    firstClientSeq: clientSeq ?? 1n,
    events: body.events === "lines" ? request.raw : body.events,
    lineLimitMs,
    lineBytesMax: requestBytesMax,
  });
}

function sendUploaded(reply: FastifyReply, uploaded: Uploaded, body: Body): FastifyReply {
  const { request, raw } = reply;
  const served = servedRequestOf(request);
  if (!request.raw.complete) leaveBody(request.raw, raw);
  if (uploaded.error === undefined) return sendJson(reply, uploadedJson(uploaded));
  const error = named(uploaded.error, body);
  served.refusedBy = error;
  const problem = uploadedJson({ ...uploaded, error });
  void reply.code(statusOf(error)).headers(problemHeaders(error)).type(PROBLEM_TYPE);
  return reply.send(Buffer.from(problem));
}

interface Push extends ReturnType<typeof headersOf> {
  readonly sessionId: string;
  readonly body: Body;
}

const NO_KEY = {
  field: "idempotency_key",
  description:
    "idempotency_key must not be given for a push stream: Producer-Epoch and Client-Seq make a repetition safe",
};
const NO_EPOCH = {
  field: "Producer-Epoch",
  description: "Producer-Epoch is required with Client-Seq",
};

const number = seqParameter("");

function headersOf({ headers }: FastifyRequest) {
  return {
    idempotencyKey: keyOf(headers["idempotency-key"]?.toString()),
    producerEpoch: numberIn("Producer-Epoch", headers["producer-epoch"]),
    clientSeq: numberIn("Client-Seq", headers["client-seq"]),
  };
}

function numberIn(name: string, value: unknown): bigint | undefined {
  const read = number.safeParse(value);
  if (read.success) return read.data;
  const description = `${name} ${read.error.issues[0]?.message}`;
  throw invalidArgument([{ field: name, description }]);
}

function wrongType(): ServiceError {
  const description = `Content-Type must be ${JSON_TYPE} or ${LINES_TYPE}`;
  return fieldRefusal(415, "Content-Type", description, { accept: `${JSON_TYPE}, ${LINES_TYPE}` });
}

/** Anything that is no array is one event, and refused like an event where it is none. */
function eventsOf(request: FastifyRequest, bytes: Buffer): Body | undefined {
  const value = parse(request, bytes);
  if (value === undefined) return undefined;
  const text = readText(request, bytes);
  if (!Array.isArray(value)) return new Body([text.trim()], { isList: false });
  if (value.length === 0 || value.length > LIST_EVENTS_MAX) throw invalidArgument([tooMany()]);
  return new Body(elementTexts(text), { isList: true });
}

/** The key stands for all lines, so they are one push, like an array. */
function eventsOfLines(bytes: Buffer): Body {
  const { lines, fault } = linesOf(bytes, { isStart: true });
  if (fault !== undefined)
    throw invalidArgument([
      { field: "", description: `the line of event ${lines.length + 1} is ${fault}` },
    ]);
  if (lines.length === 0 || lines.length > LIST_EVENTS_MAX) throw invalidArgument([tooMany()]);
  return new Body(lines, { isList: true });
}

function tooMany() {
  const description = `the body must have 1 to ${LIST_EVENTS_MAX} events; send more of them as lines, ${LINES_TYPE}, without Idempotency-Key`;
  return { field: "", description };
}

/** The error with the names that its fields have in the request. */
function named(error: ServiceError, { isList }: Body): ServiceError {
  return withNames(error, (text) => nameInRequest(text, { isList }));
}

/** The beginning of a text that names a field of the handlers. */
function nameInRequest(text: string, { isList }: { readonly isList: boolean }): string {
  return text
    .replace(/^batch\.first_client_seq\b/, "Client-Seq")
    .replace(/^(?:open\.)?producer_epoch\b/, "Producer-Epoch")
    .replace(/^open\.session_id\b/, "id")
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

/** The result is JSON text; with an error, a problem with the same members. */
function uploadedJson(uploaded: Uploaded): string {
  const { producerEpoch, lastClientSeq, firstSeq, lastSeq, refused, refusedCount } = uploaded;
  const isOpen = producerEpoch !== undefined;
  const members = {
    producer_epoch: isOpen ? `"${producerEpoch}"` : undefined,
    last_client_seq: isOpen ? lastClientSeq.toString() : undefined,
    first_seq: firstSeq === 0n ? undefined : firstSeq.toString(),
    last_seq: firstSeq === 0n ? undefined : lastSeq.toString(),
    refused_count: isOpen ? String(refusedCount) : undefined,
    refused: refused.length === 0 ? undefined : jsonArray(refused.map(refusedJson)),
  };
  if (uploaded.error === undefined) return jsonObject(members);
  const problem = problemJson(uploaded.error);
  const rest = jsonObject(members);
  return rest === "{}" ? problem : `${problem.slice(0, -1)},${rest.slice(1)}`;
}

function refusedJson({ clientSeq, error }: Uploaded["refused"][number]): string {
  const problem = problemJson(named(error, ONE_EVENT));
  return jsonObject({ client_seq: clientSeq.toString(), problem });
}

const ONE_EVENT = new Body("lines", { isList: false });

const uploadedMembers = {
  producer_epoch: z.string().optional().meta({
    description: "The epoch in force, as text: it may be above 2^53.",
  }),
  last_client_seq: seqNumber.optional().meta({
    description: "The last number of the epoch that is committed or refused: continue after it.",
  }),
  first_seq: seqNumber.optional().meta({ description: "Absent: nothing was stored." }),
  last_seq: seqNumber.optional(),
  refused_count: z.int().optional().meta({ description: "Events of this request." }),
  refused: z
    .array(z.strictObject({ client_seq: seqNumber, problem: problemSchema }))
    .optional()
    .meta({ description: `The first ${REFUSED_SHOWN_MAX} of them.` }),
};

const eventSchema = {
  type: "object",
  description: "An AG-UI event.",
  examples: [{ type: "TEXT_MESSAGE_CONTENT", messageId: "m1", delta: "Noon." }],
} as const;

const PUSH = {
  operationId: "pushEvents",
  summary: "Push events",
  description:
    "One event or an array of them, without `Client-Seq`, or lines with `Idempotency-Key`: one push, stored whole or not at all. With `Client-Seq`, or as other lines: a push stream, which merges fragments of one text, commits while it is read, stores each number once, and ends every other stream of the session. A problem of a push stream has the members of its answer.",
  tags: ["events"],
  params: sessionParams,
  querystring: NO_QUERY,
  headers: z.object({
    "idempotency-key": z.string().optional().meta({
      description:
        "Not with `Client-Seq`. UTF-8, at most 128 bytes. Lines with it are one push. A repetition with the same key and events is answered with the first seqs; with other events it is 409.",
    }),
    "producer-epoch": z.string().optional().meta({
      description:
        "The writer's generation. A lower one than the session has seen is 409, STALE_EPOCH. Of a push stream, 0 or absent: the highest so far plus 1.",
    }),
    "client-seq": z.string().optional().meta({
      description:
        "Makes the request a push stream: the number of its first event. The events of an epoch are 1, 2, 3 …; known numbers are skipped. Lines without it begin at 1.",
    }),
  }),
  consumes: [JSON_TYPE, LINES_TYPE],
  body: z.any().meta({
    description: `${LINES_TYPE}: an event a line, in UTF-8; empty lines are skipped.`,
    oneOf: [eventSchema, { type: "array", items: eventSchema, maxItems: LIST_EVENTS_MAX }],
  }),
  response: {
    200: answer(
      "What is stored. `Idempotent-Replayed: true`: by an earlier request.",
      z.strictObject(uploadedMembers).meta({ id: "StoredEvents" }),
    ),
    ...problems(problemSchema.extend(uploadedMembers).meta({ id: "PushProblem" })),
  },
};
