/**
 * Sends the conversation message by message. The next one is pushed when the one before it is
 * committed or finally refused, because concurrent calls arrive in any order. Each message has a
 * key, so a message whose answer was lost is pushed again without a duplicate.
 */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { PushSessionMessageRequestSchema } from "../../../gen/ambient/v1/messages_pb.ts";
import { type Book, reasonOf } from "./book.ts";
import { ledger } from "../client.ts";
import type { Lane, MessageRecord } from "../spool/spool.ts";
import { timestampOf } from "../rows.ts";
import type { Connection } from "./connection.ts";
import { Pusher } from "./push.ts";

export interface MessageSenderOptions {
  readonly sessionId: string;
  readonly callTimeoutMs: number;
}

/** Resolves when the writer has ended. */
export async function sendMessages(
  book: Book,
  connection: Connection,
  options: MessageSenderOptions,
): Promise<void> {
  const pusher = new Pusher(book, connection, "messages");
  while (!book.hasEnded) {
    const { lane } = book;
    const record = lane.messages.at(lane.messages.frontNumber);
    // A message without an epoch could not be fenced; the stream of events learns the epoch.
    const isReady = book.isUnary || lane.epoch !== undefined;
    if (record === undefined || !isReady) {
      await book.messageBell.wait();
      continue;
    }
    await sendMessage(record, { book, pusher, lane, options });
  }
}

interface Sending {
  readonly book: Book;
  readonly pusher: Pusher;
  readonly lane: Lane;
  readonly options: MessageSenderOptions;
}

async function sendMessage(
  record: MessageRecord,
  { book, pusher, lane, options }: Sending,
): Promise<void> {
  const { sessionId, callTimeoutMs: deadlineMs } = options;
  const request = requestOf(record, { sessionId, lane });
  const pushed = await pusher.push((client) =>
    client.call(ledger.pushSessionMessage, request, { deadlineMs, signal: book.ending.signal }),
  );
  switch (pushed.kind) {
    case "committed":
      return book.settleMessage(lane, "committed");
    case "refused":
      book.settleMessage(lane, "refused");
      return book.tell({
        kind: "refused",
        stream: "messages",
        count: 1,
        ...reasonOf(pushed.failure),
      });
    case "fenced":
      return lane.isLeft ? book.lose(lane, pushed.failure) : book.endWith("fenced", pushed.failure);
    case "ended":
      return book.endWith("ended", pushed.failure);
    case "stopped":
  }
}

function requestOf(
  { eventType, payload, key, sentAtMicros, sender }: MessageRecord,
  { sessionId, lane }: { readonly sessionId: string; readonly lane: Lane },
): MessageInitShape<typeof PushSessionMessageRequestSchema> {
  return {
    sessionId,
    eventType,
    payload,
    idempotencyKey: key,
    ...(lane.epoch === undefined ? {} : { producerEpoch: lane.epoch }),
    ...(sentAtMicros === undefined ? {} : { sentAt: timestampOf(sentAtMicros) }),
    ...(sender === undefined ? {} : { sender }),
  };
}
