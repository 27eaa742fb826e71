/** PushSessionMessage: checks the form of a message, and stores it in the table of messages. */
import type { PushSessionMessageRequest } from "@session-ledger/proto/ambient/v1/messages_pb";
import type { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { checkMessageType } from "@session-ledger/agui/message-types";
import type { Redactor } from "@session-ledger/agui/redaction/redactor";
import {
  type Check,
  checkEpoch,
  checkKey,
  checkText,
  checkTextBytes,
  refuseLargePayload,
  checkSessionId,
  refuse,
} from "../contract/checks.ts";
import type { Handlers } from "../contract/context.ts";
import { senderText, toSessionMessage } from "../contract/rows-to-wire.ts";
import {
  newMessageRow,
  pushOf,
  type PushOptions,
  type PushParts,
  storePush,
  type UnattributedPush,
} from "./push.ts";
import { checkTimestamp, microsOf } from "../contract/times.ts";

/** The limit of each field of a sender. */
const SENDER_BYTES_MAX = 1_024;

export function createPushSessionMessage(
  parts: PushParts,
  { payloadBytesMax }: Pick<PushOptions, "payloadBytesMax">,
): Handlers<typeof SessionService>["pushSessionMessage"] {
  const { clock, redactor } = parts;
  return async (request, context) => {
    refuse(checksOf(request));
    refuseLargePayload(request.payload, payloadBytesMax);
    const push = pushWith(request, { redactor, nowMicros: clock.nowMicros() });
    const { rows, deduplicated } = await storePush(parts, push, context);
    const [row] = rows;
    if (row?.stream !== "messages") throw new Error("a message became an event");
    return toSessionMessage(row, deduplicated);
  };
}

function checksOf(request: PushSessionMessageRequest): readonly Check[] {
  const { sender } = request;
  return [
    checkSessionId(request.sessionId),
    checkMessageType(request.eventType),
    checkText("payload", request.payload),
    checkKey(request.idempotencyKey),
    checkEpoch(request.producerEpoch),
    request.sentAt && checkTimestamp("sent_at", request.sentAt),
    checkTextBytes("sender.id", sender?.id, SENDER_BYTES_MAX),
    checkTextBytes("sender.name", sender?.name, SENDER_BYTES_MAX),
    checkTextBytes("sender.display_name", sender?.displayName, SENDER_BYTES_MAX),
    checkTextBytes("sender.channel", sender?.channel, SENDER_BYTES_MAX),
    checkTextBytes("sender.channel_id", sender?.channelId, SENDER_BYTES_MAX),
    checkTextBytes("sender.thread_id", sender?.threadId, SENDER_BYTES_MAX),
  ];
}

function pushWith(
  request: PushSessionMessageRequest,
  { redactor, nowMicros }: { readonly redactor: Redactor | undefined; readonly nowMicros: bigint },
): UnattributedPush {
  const sender = request.sender === undefined ? undefined : senderText(request.sender);
  const row = newMessageRow({
    eventType: request.eventType,
    payload: redactor?.text(request.payload) ?? request.payload,
    createdAtMicros: nowMicros,
    sentAtMicros: request.sentAt && microsOf(request.sentAt),
    sender: sender && (redactor?.payload(sender) ?? sender),
  });
  return pushOf(request, "messages", [row], [request.sentAt, sender]);
}
