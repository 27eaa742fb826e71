/**
 * The exact bytes that existing runners send and read. Three codecs handle each vector: the
 * generated one, the server's (its encoder is our own), and the hand-written one of the old client
 * in the end-to-end tests, so that those tests are valid for real runners.
 */
import { create, type DescMessage, fromBinary, type Message, toBinary } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import {
  PushSessionEventRequestSchema,
  SessionEventSchema,
  WatchSessionEventsRequestSchema,
} from "@session-ledger/proto/ambient/v1/events_pb";
import {
  PushSessionMessageRequestSchema,
  SessionMessageSchema,
  WatchSessionMessagesRequestSchema,
} from "@session-ledger/proto/ambient/v1/messages_pb";
import { decoderOf, encoderOf } from "../../src/rpc/codec.ts";
import {
  decodeEvent,
  decodeMessage,
  encodeEvent,
  encodePushEvent,
  encodePushMessage,
  encodeWatch,
} from "../support/upstream-codec.ts";

const TIME = { seconds: 1_700_000_000n, nanos: 500_000 };

interface Vector {
  readonly name: string;
  readonly hex: string;
  readonly schema: DescMessage;
  readonly message: Message;
  readonly byHand: Buffer;
}

const pushMessage = { sessionId: "s1", eventType: "user", payload: "hi" };
const watch = { sessionId: "s1", afterSeq: 5n };
const pushEvent = {
  sessionId: "s1",
  eventType: "RUN_STARTED",
  payload: "{}",
  completedAt: TIME,
  eventCount: 5,
};
const event = {
  id: "e1",
  sessionId: "s1",
  seq: 42n,
  eventType: "RUN_STARTED",
  payload: "{}",
  createdAt: TIME,
  completedAt: undefined,
  eventCount: 7,
};

const EVENT_HEX =
  "0a02653112027331182a220b52554e5f535441525445442a027b7d320a0880e2cfaa0610a0c21e4007";

const VECTORS: readonly Vector[] = [
  {
    name: "PushSessionMessageRequest",
    hex: "0a0273311204757365721a026869",
    schema: PushSessionMessageRequestSchema,
    message: create(PushSessionMessageRequestSchema, pushMessage),
    byHand: encodePushMessage(pushMessage),
  },
  {
    name: "WatchSessionMessagesRequest",
    hex: "0a0273311005",
    schema: WatchSessionMessagesRequestSchema,
    message: create(WatchSessionMessagesRequestSchema, watch),
    byHand: encodeWatch(watch),
  },
  {
    name: "WatchSessionEventsRequest",
    hex: "0a0273311005",
    schema: WatchSessionEventsRequestSchema,
    message: create(WatchSessionEventsRequestSchema, watch),
    byHand: encodeWatch(watch),
  },
  {
    name: "PushSessionEventRequest",
    hex: "0a027331120b52554e5f535441525445441a027b7d220a0880e2cfaa0610a0c21e2805",
    schema: PushSessionEventRequestSchema,
    message: create(PushSessionEventRequestSchema, pushEvent),
    byHand: encodePushEvent(pushEvent),
  },
  {
    name: "SessionEvent",
    hex: EVENT_HEX,
    schema: SessionEventSchema,
    message: create(SessionEventSchema, event),
    byHand: encodeEvent(event),
  },
];

describe.each(VECTORS)("$name", ({ hex, schema, message, byHand }) => {
  test("encodes to the exact bytes", () => {
    expect(Buffer.from(toBinary(schema, message)).toString("hex")).toBe(hex);
    expect(encoderOf(schema)(message).toString("hex")).toBe(hex);
    expect(byHand.toString("hex")).toBe(hex);
  });

  test("decodes to the exact fields", () => {
    const bytes = Buffer.from(hex, "hex");
    expect(fromBinary(schema, bytes)).toEqual(message);
    expect(decoderOf(schema)(bytes)).toEqual(message);
  });
});

describe("the old client", () => {
  test("reads an event, with negative numbers and defaults", () => {
    expect(decodeEvent(Buffer.from(EVENT_HEX, "hex"))).toEqual(event);
    const before1970 = {
      ...event,
      seq: 0n,
      payload: "",
      createdAt: { seconds: -1n, nanos: 999_999_000 },
      completedAt: { seconds: 0n, nanos: 0 },
      eventCount: 0,
    };
    const bytes = toBinary(SessionEventSchema, create(SessionEventSchema, before1970));
    expect(encodeEvent(before1970).toString("hex")).toBe(Buffer.from(bytes).toString("hex"));
    expect(decodeEvent(Buffer.from(bytes))).toEqual(before1970);
  });

  test("skips unknown fields from number 100", () => {
    const message = create(SessionMessageSchema, {
      ...pushMessage,
      id: "m1",
      seq: 1n,
      createdAt: TIME,
      sentAt: TIME,
      sender: { name: "n", isBot: true },
      deduplicated: true,
    });
    expect(decodeMessage(Buffer.from(toBinary(SessionMessageSchema, message)))).toEqual({
      ...pushMessage,
      id: "m1",
      seq: 1n,
      createdAt: TIME,
    });
  });
});
