/** What the load generator of push streams sends, read by the code that was generated for it. */
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import {
  PushSessionEventsRequestSchema,
  PushSessionEventsResponseSchema,
} from "../../gen/ambient/v1/event_stream_pb.ts";
import { PushSessionEventRequestSchema } from "../../gen/ambient/v1/events_pb.ts";
import { framed, messageCutter } from "../bench/grpc-messages.ts";
import { batchFrames, openFrame, sessionField, unaryBodies } from "../bench/prepared-session.ts";
import { committedSeq } from "../bench/push-lanes.ts";
import { ownStreams } from "../support/streams.ts";

const EVENTS = ownStreams().flatMap(({ events }) => events);

function messagesIn(chunks: readonly Buffer[]): readonly Buffer[] {
  const messages: Buffer[] = [];
  const cut = messageCutter((message) => messages.push(message));
  for (const chunk of chunks) cut(chunk);
  return messages;
}

test("messages decode to the same for any cuts of their bytes", () => {
  const messages = ["", "a", "bc".repeat(300), ""].map((message) => Buffer.from(message));
  const bytes = Buffer.concat(messages.map(framed));
  for (const size of [1, 3, 7, bytes.length]) {
    const chunks = Array.from({ length: Math.ceil(bytes.length / size) }, (_, at) =>
      bytes.subarray(at * size, (at + 1) * size),
    );
    expect(messagesIn(chunks)).toEqual(messages);
  }
});

test.each([1, 50])("frames of %d hold every event once, numbered from 1", (eventsPerFrame) => {
  const session = batchFrames(EVENTS, { eventsPerFrame });
  let next = 1n;
  const sent = messagesIn(session.frames.map(({ bytes }) => bytes)).flatMap((message, at) => {
    const { frame } = fromBinary(PushSessionEventsRequestSchema, message);
    if (frame.case !== "batch") throw new Error("another frame");
    expect(frame.value.firstClientSeq).toBe(next);
    next += BigInt(frame.value.events.length);
    expect(session.frames[at]?.lastSeq).toBe(Number(next) - 1);
    return frame.value.events.map(({ eventType, payload }) => ({ eventType, payload }));
  });
  expect(sent).toEqual(EVENTS);
  const payloads = EVENTS.map(({ payload }) => payload).join("");
  expect(session.payloadBytes.at(-1)).toBe(Buffer.byteLength(payloads));
  expect(session.payloadBytes).toHaveLength(EVENTS.length + 1);
});

test("a stream opens its session, and a unary push has the session id before the event", () => {
  const [open] = messagesIn([openFrame("one")]);
  expect(fromBinary(PushSessionEventsRequestSchema, open ?? Buffer.alloc(0)).frame).toMatchObject({
    case: "open",
    value: { sessionId: "one" },
  });
  const requests = unaryBodies(EVENTS).map((body) =>
    fromBinary(PushSessionEventRequestSchema, Buffer.concat([sessionField("one"), body])),
  );
  expect(requests.map(({ eventType, payload }) => ({ eventType, payload }))).toEqual(EVENTS);
  expect(new Set(requests.map(({ sessionId }) => sessionId))).toEqual(new Set(["one"]));
});

test("the number of an acknowledgement is read as the generated code reads it", () => {
  const bytesOf = (frame: Parameters<typeof create<typeof PushSessionEventsResponseSchema>>[1]) =>
    Buffer.from(
      toBinary(PushSessionEventsResponseSchema, create(PushSessionEventsResponseSchema, frame)),
    );
  for (const seq of [1, 127, 128, 300, 65_535, 2 ** 31, 2 ** 40]) {
    const value = { lastClientSeq: BigInt(seq), lastSeq: 77n };
    expect(committedSeq(bytesOf({ frame: { case: "committed", value } }))).toBe(seq);
  }
  const opened = { lastClientSeq: 5n };
  expect(committedSeq(bytesOf({ frame: { case: "opened", value: opened } }))).toBeUndefined();
  // Nothing is committed yet: a flush of nothing is answered so.
  const nothing = { lastClientSeq: 0n };
  expect(committedSeq(bytesOf({ frame: { case: "committed", value: nothing } }))).toBeUndefined();
});
