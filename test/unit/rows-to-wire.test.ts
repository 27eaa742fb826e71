/**
 * The literals of rows-to-wire encode to the same bytes as messages made by `create()`, for every
 * possible row; and a stored row comes back field by field.
 */
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { FragmentsSchema, SessionEventSchema } from "../../gen/ambient/v1/events_pb.ts";
import { SenderSchema, SessionMessageSchema } from "../../gen/ambient/v1/messages_pb.ts";
import {
  senderOf,
  senderText,
  toSessionEvent,
  toSessionMessage,
} from "../../src/contract/rows-to-wire.ts";
import { timestampOf } from "../../src/contract/times.ts";
import type { EventRow, MessageRow } from "../../src/store/rows.ts";
import { properties } from "../support/properties.ts";

const RUNS = properties({ runs: 500 });

const micros = fc.bigInt({ min: -62_135_596_800_000_000n, max: 253_402_300_799_999_999n });
const text = fc.string({ unit: "grapheme", maxLength: 20 });
const sender = fc
  .record({
    id: text,
    name: text,
    displayName: text,
    isBot: fc.boolean(),
    channel: text,
    channelId: text,
    threadId: text,
  })
  .map((init) => create(SenderSchema, init));
const fragments = fc
  .record({
    lengths: fc.array(fc.nat()),
    timestampDeltasMs: fc.array(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n })),
  })
  .map((init) => create(FragmentsSchema, init));
const base = {
  sessionId: text,
  seq: fc.bigInt({ min: 1n, max: 2n ** 63n - 1n }),
  id: fc.uuid(),
  eventType: text,
  payload: text,
  createdAtMicros: micros,
};
const messageRow: fc.Arbitrary<MessageRow> = fc.record({
  ...base,
  stream: fc.constant("messages"),
  sentAtMicros: fc.option(micros, { nil: undefined }),
  sender: fc.option(sender.map(senderText), { nil: undefined }),
});
const eventRow: fc.Arbitrary<EventRow> = fc.record({
  ...base,
  stream: fc.constant("events"),
  completedAtMicros: fc.option(micros, { nil: undefined }),
  eventCount: fc.integer({ min: 1, max: 1_000_000 }),
  runId: text,
  fragments: fc.option(
    fragments.map((message) => toBinary(FragmentsSchema, message)),
    { nil: undefined },
  ),
  conformant: fc.boolean(),
});

describe("rows to wire", () => {
  test("encode a message row like the message of create()", () => {
    fc.assert(
      fc.property(messageRow, fc.boolean(), (row, deduplicated) => {
        const expected = create(SessionMessageSchema, {
          id: row.id,
          sessionId: row.sessionId,
          seq: row.seq,
          eventType: row.eventType,
          payload: row.payload,
          createdAt: timestampOf(row.createdAtMicros),
          ...(row.sentAtMicros === undefined ? {} : { sentAt: timestampOf(row.sentAtMicros) }),
          ...(row.sender === undefined ? {} : { sender: senderOf(row.sender) }),
          deduplicated,
        });
        const bytes = toBinary(SessionMessageSchema, toSessionMessage(row, deduplicated));
        expect(bytes).toEqual(toBinary(SessionMessageSchema, expected));
        expect(fromBinary(SessionMessageSchema, bytes)).toEqual(expected);
      }),
      RUNS,
    );
  });

  test("encode an event row like the message of create()", () => {
    fc.assert(
      fc.property(eventRow, fc.boolean(), (row, deduplicated) => {
        const expected = create(SessionEventSchema, {
          id: row.id,
          sessionId: row.sessionId,
          seq: row.seq,
          eventType: row.eventType,
          payload: row.payload,
          createdAt: timestampOf(row.createdAtMicros),
          ...(row.completedAtMicros === undefined
            ? {}
            : { completedAt: timestampOf(row.completedAtMicros) }),
          eventCount: row.eventCount,
          ...(row.fragments === undefined
            ? {}
            : { fragments: fromBinary(FragmentsSchema, row.fragments) }),
          runId: row.runId,
          deduplicated,
        });
        const bytes = toBinary(SessionEventSchema, toSessionEvent(row, deduplicated));
        expect(bytes).toEqual(toBinary(SessionEventSchema, expected));
        expect(fromBinary(SessionEventSchema, bytes)).toEqual(expected);
      }),
      RUNS,
    );
  });

  test("encode a SessionEvent to the byte vector of the contract", () => {
    const row: EventRow = {
      stream: "events",
      sessionId: "s1",
      seq: 42n,
      id: "e1",
      eventType: "RUN_STARTED",
      payload: "{}",
      createdAtMicros: 1_700_000_000_000_500n,
      completedAtMicros: undefined,
      eventCount: 7,
      runId: "",
      fragments: undefined,
      conformant: true,
    };
    expect(Buffer.from(toBinary(SessionEventSchema, toSessionEvent(row))).toString("hex")).toBe(
      "0a02653112027331182a220b52554e5f535441525445442a027b7d320a0880e2cfaa0610a0c21e4007",
    );
  });

  test("keep a sender as it was, also an empty one", () => {
    fc.assert(
      fc.property(sender, (message) => {
        expect(senderOf(senderText(message))).toEqual(message);
      }),
      RUNS,
    );
    expect(senderOf("{}")).toEqual(create(SenderSchema));
  });
});
