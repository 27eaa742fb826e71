/** The conversation: read as an array, or as a stream on request, and written to. */
import { isUtf8 } from "node:buffer";
import { create } from "@bufbuild/protobuf";
import { z } from "zod";
import {
  ListSessionMessagesRequestSchema,
  PushSessionMessageRequestSchema,
} from "@session-ledger/proto/ambient/v1/messages_pb";
import { checkThat, refuse } from "../contract/checks.ts";
import { MESSAGE_TYPES } from "@session-ledger/agui/message-types";
import { wantsEventStream } from "./plumbing/request-checks.ts";
import {
  answer,
  answerOrStream,
  jsonArray,
  messageItem,
  messageItemSchema,
  ofSession,
  PROBLEMS,
  senderSchema,
  sendJson,
  type RouteParts,
  eventItem,
  eventItemSchema,
} from "./answers.ts";
import type { App } from "./plumbing/app.ts";
import { callContextOf } from "./plumbing/call-context.ts";
import { vary } from "./plumbing/cors.ts";
import { followMessages, liveHeaders, liveParameters } from "./event-routes.ts";
import {
  flagParameter,
  inCamelCase,
  keyHeader,
  NO_QUERY,
  optionalCountParameter,
  sessionParams,
  textMember,
  timestampParameter,
} from "./parameters.ts";
import { GiveFeedbackRequestSchema } from "@session-ledger/proto/ambient/v1/conversation_pb";

/** The meaning of an empty event_type: a person writes from a browser. */
const DEFAULT_TYPE = "user";
const LIMIT = { fallback: 100, max: 1_000 };
const NOT_FOR_A_STREAM = "must not be given for a stream";

export function messageRoutes(app: App, parts: RouteParts): void {
  const { handlers } = parts;
  app.get("/sessions/:id/messages", { schema: LIST }, async (request, reply) => {
    const { id: sessionId } = request.params;
    const { after_seq: afterSeq, limit: pageSize, recorded } = request.query;
    vary(reply, "Accept");
    if (request.method === "GET" && wantsEventStream(request.headers.accept)) {
      // As for the events' stream: a caller that sets a limit expects an end.
      refuse([
        checkThat("limit", pageSize === undefined, NOT_FOR_A_STREAM),
        checkThat("recorded", !recorded, NOT_FOR_A_STREAM),
      ]);
      await followMessages(parts, reply, { sessionId, query: request.query });
      return reply;
    }
    const asked = { sessionId, afterSeq: afterSeq ?? 0n, pageSize: pageSize ?? LIMIT.fallback };
    const { page, recordedMicros } = await handlers.readMessageHistory(
      { page: create(ListSessionMessagesRequestSchema, asked), recorded },
      callContextOf(request),
    );
    const items = page.items.map((message, at) =>
      messageItem(message, { recordedMicros: recordedMicros[at] }),
    );
    return sendJson(reply, jsonArray(items));
  });
  app.post("/sessions/:id/messages", { schema: PUSH }, async (request, reply) => {
    const { event_type: eventType, payload, sent_at: sentAt, sender } = request.body;
    const asked = create(PushSessionMessageRequestSchema, {
      sessionId: request.params.id,
      eventType: eventType === "" ? DEFAULT_TYPE : eventType,
      payload,
      idempotencyKey: keyOf(request.headers["idempotency-key"]),
      sentAt,
      sender: sender && inCamelCase(sender),
    });
    const message = await handlers.pushSessionMessage(asked, callContextOf(request));
    // A retry gets the first answer, also 201: its caller must not handle another case.
    const isReplayed = message.deduplicated;
    return sendJson(reply, messageItem(message), { status: 201, isReplayed });
  });
}

/** Node reads headers as Latin-1; the key is UTF-8, so it equals the same key over gRPC. */
export function keyOf(header = ""): string {
  const bytes = Buffer.from(header, "latin1");
  refuse([checkThat("idempotency_key", isUtf8(bytes), "must be UTF-8")]);
  return bytes.toString();
}

const LIST = {
  operationId: "listMessages",
  summary: "Messages, in order",
  description:
    "An array of the messages after `after_seq`; an empty one is the end. With `Accept: text/event-stream` a stream that continues with new messages, `id:` the message's seq and `data:` the message, from `Last-Event-ID` or else `after_seq`.",
  tags: ["messages"],
  params: sessionParams,
  headers: liveHeaders,
  querystring: z.strictObject({
    ...liveParameters,
    limit: optionalCountParameter("The most rows of a page; not for a stream.", LIMIT),
    recorded: flagParameter("Messages come with `recorded_at`; not for a stream."),
  }),
  response: { 200: answerOrStream("The messages.", z.array(messageItemSchema)), ...PROBLEMS },
};

const PUSH = {
  operationId: "pushMessage",
  summary: "Write a message",
  ...ofSession("messages"),
  headers: keyHeader(
    "UTF-8, at most 128 bytes. A retry with the same key and content is answered with the first message; with other content it is 409.",
  ),
  body: z.strictObject(
    {
      event_type: textMember()
        .default("")
        .meta({ description: "`user` when empty.", enum: ["", ...MESSAGE_TYPES] }),
      payload: textMember().meta({ description: "Any text." }),
      sent_at: timestampParameter("When the sender sent it; kept and given back."),
      sender: senderSchema
        .optional()
        .meta({ description: "The author, as another system names it." }),
    },
    { error: "must be an object with a payload" },
  ),
  response: {
    201: answer(
      "The message as it is stored. `Idempotent-Replayed: true`: by an earlier request.",
      messageItemSchema,
    ),
    ...PROBLEMS,
  },
};

export function feedbackRoutes(app: App, { handlers }: RouteParts): void {
  app.post("/sessions/:id/messages/:message/feedback", { schema: GIVE }, async (request, reply) => {
    const { id: sessionId, message: messageId } = request.params;
    const given = { sessionId, messageId, ...inCamelCase(request.body) };
    const asked = create(GiveFeedbackRequestSchema, given);
    const event = await handlers.giveFeedback(asked, callContextOf(request));
    return sendJson(reply, eventItem(event), { status: 201, isReplayed: event.deduplicated });
  });
}

const GIVE = {
  operationId: "giveFeedback",
  summary: "Say what you think of a message",
  description:
    "The last feedback of a caller on a message counts, and is in the message's `metadata.session.feedback` in the transcript and for AG-UI clients that join. The same feedback again has the header `Idempotent-Replayed: true`.",
  tags: ["messages"],
  params: sessionParams.extend({
    message: z.string().meta({ description: "The id of a message of the transcript." }),
  }),
  querystring: NO_QUERY,
  body: z.strictObject(
    {
      kind: textMember().meta({
        description: "`thumbs_up`, `thumbs_down`, or another word.",
        pattern: "^[A-Za-z0-9_.:-]{1,64}$",
      }),
      comment: textMember().default("").meta({ description: "At most 4 KiB." }),
      trace_id: textMember().default("").meta({ description: "At most 128 bytes." }),
    },
    { error: "must be an object with a kind" },
  ),
  response: { 201: answer("The META event as it is stored.", eventItemSchema), ...PROBLEMS },
};
