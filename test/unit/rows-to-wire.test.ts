/**
 * The literals of rows-to-wire encode to the same bytes as messages made by `create()`, for every
 * possible row; and a stored row comes back field by field.
 */
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { FragmentsSchema } from "@session-ledger/proto/ambient/v1/compression_pb";
import {
  ListSessionEventsResponseSchema,
  SessionEventSchema,
} from "@session-ledger/proto/ambient/v1/events_pb";
import { SenderSchema, SessionMessageSchema } from "@session-ledger/proto/ambient/v1/messages_pb";
import {
  senderOf,
  senderText,
  toSessionEvent,
  toSessionMessage,
  WrittenEvents,
  WrittenSessionEvent,
} from "../../src/contract/rows-to-wire.ts";
import { timestampOf } from "../../src/contract/times.ts";
import { answerEncoderOf, encoderOf } from "../../src/rpc/codec.ts";
import type { EventRow, MessageRow } from "../../src/store/rows.ts";
import { properties } from "../support/random.ts";

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

/** The columns of the row as PostgreSQL sends them. */
function columnsOf(row: EventRow): readonly (Buffer | null)[] {
  const seconds = (time: bigint): string => {
    const digits = (time < 0n ? -time : time).toString().padStart(7, "0");
    return `${time < 0n ? "-" : ""}${digits.slice(0, -6)}.${digits.slice(-6)}`;
  };
  const { completedAtMicros: completed, fragments: index, runId } = row;
  const columns = [
    row.seq.toString(),
    row.id,
    row.eventType,
    row.payload,
    seconds(row.createdAtMicros),
    completed === undefined ? null : seconds(completed),
    row.eventCount.toString(),
    runId === "" ? null : runId,
    index === undefined ? null : `\\x${Buffer.from(index).toString("hex")}`,
    row.conformant ? "t" : "f",
  ];
  return columns.map((column) => (column === null ? null : Buffer.from(column)));
}

const boundary = fc.constantFrom(0n, 1n, -1n, 999_999n, -999_999n, -1_000_000n, -1_500_000n);
/** Payloads of the sizes at which a length takes one byte more, and texts of every width. */
const sized = fc.oneof(
  text,
  fc.integer({ min: 0, max: 300 }).map((length) => "x".repeat(length)),
  fc.integer({ min: 15_900, max: 16_400 }).map((length) => "é".repeat(length / 2)),
);
const storedRow = fc.oneof(
  eventRow,
  fc.record({
    ...base,
    stream: fc.constant("events" as const),
    payload: sized,
    createdAtMicros: fc.oneof(micros, boundary),
    completedAtMicros: fc.option(fc.oneof(micros, boundary), { nil: undefined }),
    eventCount: fc.constantFrom(1, 127, 128, 1_000_000),
    runId: text,
    fragments: fc.constantFrom(undefined, new Uint8Array()),
    conformant: fc.boolean(),
  }),
);

describe("an event row that is read in its wire form", () => {
  test("has the bytes and the fields of the message made of its decoded row", () => {
    fc.assert(
      fc.property(fc.array(storedRow, { minLength: 1, maxLength: 40 }), (rows) => {
        const { eventOf } = new WrittenEvents();
        const written = rows.map((row) => eventOf(row.sessionId, columnsOf(row)));
        for (const [index, row] of rows.entries()) {
          const one = written[index];
          if (one === undefined) throw new Error("a row is missing");
          const decoded = toSessionEvent(row);
          const expected = toBinary(SessionEventSchema, decoded);
          const bytes = one.chunk.bytes.subarray(one.at.from, one.at.end);
          expect(bytes.toString("hex")).toBe(Buffer.from(expected).toString("hex"));
          const { eventType, runId, conformant } = row;
          expect(one).toMatchObject({ eventType, runId, conformant });
          expect(one.at.payloadBytes).toBe(Buffer.byteLength(row.payload));
          const message = new WrittenSessionEvent(one);
          expect(create(SessionEventSchema, { ...fieldsOf(message) })).toEqual(
            create(SessionEventSchema, decoded),
          );
        }
      }),
      RUNS,
    );
  });

  test("has the same bytes in a page, which has the buffers of its rows until it is sent", () => {
    fc.assert(
      fc.property(fc.array(storedRow, { maxLength: 40 }), fc.boolean(), (rows, hasMore) => {
        const page = { nextAfterSeq: 7n, nextBeforeSeq: 1n, hasMore };
        const encode = answerEncoderOf(ListSessionEventsResponseSchema);
        const { eventOf } = new WrittenEvents();
        const written = rows.map((row) => eventOf(row.sessionId, columnsOf(row)));
        const sent = encode(
          Object.assign(create(ListSessionEventsResponseSchema, page), {
            items: written.map((row) => toSessionEvent(row)),
          }),
        );
        const expected = toBinary(
          ListSessionEventsResponseSchema,
          create(ListSessionEventsResponseSchema, {
            ...page,
            items: rows.map((row) => toSessionEvent(row)),
          }),
        );
        expect(Buffer.concat(sent.parts).toString("hex")).toBe(
          Buffer.from(expected).toString("hex"),
        );
        sent.onFlushed();
        for (const row of written) expect(() => row.eventType).toThrow("after its release");
      }),
      RUNS,
    );
  });

  /** HTTP reads the fields one by one: they are getters. */
  function fieldsOf(message: WrittenSessionEvent) {
    return {
      id: message.id,
      sessionId: message.sessionId,
      seq: message.seq,
      eventType: message.eventType,
      payload: message.payload,
      createdAt: message.createdAt,
      completedAt: message.completedAt,
      eventCount: message.eventCount,
      fragments: message.fragments,
      nonconformant: message.nonconformant,
      deduplicated: message.deduplicated,
      runId: message.runId,
      watchState: message.watchState,
    };
  }
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

  test("encode an event row like the message of create(), also after one that cannot be encoded", () => {
    const encodeEvent = encoderOf(SessionEventSchema);
    fc.assert(
      fc.property(storedRow, fc.boolean(), (row, deduplicated) => {
        const broken = { ...toSessionEvent(row), eventCount: 0.5 };
        expect(() => encodeEvent(broken)).toThrow("invalid int32");
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
          nonconformant: !row.conformant,
          runId: row.runId,
          deduplicated,
        });
        const event = toSessionEvent(row, deduplicated);
        const bytes = toBinary(SessionEventSchema, event);
        expect(Buffer.compare(encodeEvent(event), bytes)).toBe(0);
        expect(bytes).toEqual(toBinary(SessionEventSchema, expected));
        expect(fromBinary(SessionEventSchema, bytes)).toEqual(expected);
      }),
      RUNS,
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
