/**
 * The fast reader of plain batches, compared with the general decoder. Its results must be the
 * same, and it leaves other bytes to that one unchanged. Bytes are drawn as clients encode them,
 * then changed: cut, flipped, with repeated or reordered fields, and with wrong lengths.
 */
import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  BatchSchema,
  PushSessionEventsRequestSchema,
  RawEventSchema,
} from "@session-ledger/proto/ambient/v1/event_stream_pb";
import { readBatchFrame } from "../../src/rpc/batch-frame.ts";
import { properties } from "../support/random.ts";

/** The message, or undefined when the general decoder refuses the bytes. */
function decoded(bytes: Uint8Array) {
  try {
    return fromBinary(PushSessionEventsRequestSchema, bytes, { readUnknownFields: false });
  } catch {
    return undefined;
  }
}

type Draft = MessageInitShape<typeof BatchSchema>;

function frameBytes(batch: Draft): Buffer {
  const frame = { case: "batch", value: create(BatchSchema, batch) } as const;
  const request = create(PushSessionEventsRequestSchema, { frame });
  return Buffer.from(toBinary(PushSessionEventsRequestSchema, request));
}

const EVENT = {
  eventType: "TEXT_MESSAGE_CONTENT",
  payload: '{"type":"TEXT_MESSAGE_CONTENT","messageId":"1","delta":"Hello"}',
};

const texts = fc.oneof(
  fc.constantFrom(EVENT.eventType, EVENT.payload, "", "\uFEFF{}", "ä€😀", "x".repeat(200)),
  fc.string({ unit: "grapheme", maxLength: 20 }),
);
const seconds = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n });
const times = fc.record({
  seconds: fc.oneof(fc.constantFrom(0n, 1_767_225_600n, 2n ** 49n - 1n, 2n ** 49n), seconds),
  nanos: fc.oneof(
    fc.constantFrom(0, 999_999_999),
    fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }),
  ),
});
const batches: fc.Arbitrary<Draft> = fc.record({
  firstClientSeq: fc.oneof(
    fc.constantFrom(0n, 1n, 127n, 128n),
    fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
  ),
  events: fc.array(
    fc.record({ eventType: texts, payload: texts, occurredAt: times }, { requiredKeys: [] }),
    { maxLength: 5 },
  ),
});

/** The result of the fast reader, or of the general decoder when the fast one left the bytes. */
function readAnyway(bytes: Buffer) {
  return readBatchFrame(bytes) ?? decoded(bytes);
}

describe("a batch of raw events", () => {
  test("is read to the same result as by the general decoder", () => {
    fc.assert(
      fc.property(batches, (batch) => {
        const bytes = frameBytes(batch);
        expect(readAnyway(bytes)).toEqual(decoded(bytes));
      }),
      properties({ runs: 2_000 }),
    );
  });

  test("is read by the fast reader in the usual encoding", () => {
    const occurredAt = { seconds: 1_767_225_600n, nanos: 5_000 };
    for (const batch of [
      {},
      { firstClientSeq: 300n, events: [EVENT, EVENT, { payload: EVENT.payload }] },
      { firstClientSeq: 1n, events: [{ ...EVENT, occurredAt }, {}, { occurredAt: {} }] },
      { events: ["STEP_1", "STEP_2", "STEP_2"].map((eventType) => ({ ...EVENT, eventType })) },
      { firstClientSeq: 2n ** 40n, events: [{ eventType: "ä€😀", payload: "\uFEFF😀" }] },
    ]) {
      const bytes = frameBytes(batch);
      expect(readBatchFrame(bytes)).toEqual(decoded(bytes));
      expect(readBatchFrame(bytes)).toBeDefined();
    }
  });

  test("is left to the general decoder after changes, or read to the same result", () => {
    const change = fc.record({
      at: fc.nat(),
      kind: fc.constantFrom("flip", "cut", "insert", "double", "swap"),
      byte: fc.oneof(fc.constantFrom(0x08, 0x0a, 0x10, 0x12, 0x1a, 0x80, 0xff), fc.nat(255)),
      length: fc.integer({ min: 1, max: 12 }),
    });
    fc.assert(
      fc.property(batches, fc.array(change, { minLength: 1, maxLength: 3 }), (batch, changes) => {
        let bytes = frameBytes(batch);
        for (const one of changes) bytes = changed(bytes, one);
        expect(readAnyway(bytes)).toEqual(decoded(bytes));
      }),
      properties({ runs: 2_000 }),
    );
  });

  test.each([
    ["another frame", frameOfOther()],
    ["no bytes", Buffer.alloc(0)],
    ["a batch twice", Buffer.concat([frameBytes({ firstClientSeq: 1n }), frameBytes({})])],
    ["a field of a newer client", withField(Buffer.from("2a0161", "hex"))],
    ["a payload before its type", withField(Buffer.from("0a0161", "hex"))],
    ["a text that is not UTF-8", withField(Buffer.from("12020aff", "hex"))],
    ["nanoseconds above an int32", withField(Buffer.from("1a0610ffffffff0f", "hex"))],
    ["a number that a double would round", frameBytes({ firstClientSeq: 2n ** 64n - 1n })],
  ])("is left to the general decoder: %s", (_name, bytes) => {
    expect(readBatchFrame(bytes)).toBeUndefined();
  });

  test("is left to the general decoder when its bytes are not a Buffer", () => {
    expect(readBatchFrame(new Uint8Array(frameBytes({ events: [EVENT] })))).toBeUndefined();
  });
});

function frameOfOther(): Buffer {
  const request = create(PushSessionEventsRequestSchema, { frame: { case: "flush", value: {} } });
  return Buffer.from(toBinary(PushSessionEventsRequestSchema, request));
}

/** A batch of one event, followed by these bytes. */
function withField(field: Buffer): Buffer {
  const event = Buffer.concat([toBinary(RawEventSchema, create(RawEventSchema, EVENT)), field]);
  return delimited(0x12, delimited(0x12, event));
}

function delimited(tag: number, body: Buffer): Buffer {
  const length =
    body.length < 0x80 ? [body.length] : [(body.length & 0x7f) | 0x80, body.length >> 7];
  return Buffer.concat([Buffer.from([tag, ...length]), body]);
}

interface Change {
  readonly at: number;
  readonly kind: string;
  readonly byte: number;
  readonly length: number;
}

function changed(bytes: Buffer, { at: anywhere, kind, byte, length }: Change): Buffer {
  const at = anywhere % (bytes.length + 1);
  const [before, after] = [bytes.subarray(0, at), bytes.subarray(at)];
  const rest = after.subarray(length);
  switch (kind) {
    case "flip":
      return Buffer.concat([before, Buffer.from([byte]), after.subarray(1)]);
    case "cut":
      return Buffer.concat([before, rest]);
    case "insert":
      return Buffer.concat([before, Buffer.from([byte]), after]);
    case "double":
      return Buffer.concat([before, after.subarray(0, length), after]);
    default:
      return Buffer.concat([before, rest, after.subarray(0, length)]);
  }
}
