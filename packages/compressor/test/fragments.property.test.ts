/**
 * The fragment index as bytes: what protobuf makes of the message `Fragments`, and nothing else is read.
 *
 * Method: any numbers that the message can hold, beside protobuf-es; and bytes that are anything, or an
 * index that was damaged.
 */
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { FragmentsSchema } from "@session-ledger/proto/ambient/v1/compression_pb";
import {
  decodeFragments,
  encodeFragments,
  type FragmentIndex,
  readFragments,
} from "@session-ledger/compressor/fragments";
import { properties } from "../../../test/support/random.ts";

const length = fc.oneof(
  fc.nat({ max: 9 }),
  fc.constantFrom(127, 128, 16_383, 16_384, 2 ** 21, 2 ** 28 - 1, 2 ** 28, 2 ** 31, 2 ** 32 - 1),
  fc.integer({ min: 0, max: 2 ** 32 - 1 }),
);
const EDGES = [6n, 7n, 13n, 27n, 28n, 29n, 30n, 31n, 32n, 53n, 62n].map((bits) => 2n ** bits);
const deltaMs = fc.oneof(
  fc.bigInt({ min: -9n, max: 9n }),
  fc.constantFrom(...EDGES.flatMap((edge) => [edge - 1n, edge, -edge, -edge - 1n])),
  fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
);
const texts = fc.oneof(fc.string({ unit: "grapheme" }), fc.constant("\ufeff"));
const index: fc.Arbitrary<FragmentIndex> = fc.record(
  {
    lengths: fc.array(length),
    timestampDeltasMs: fc.array(deltaMs),
    rawEvents: fc.record({ lengths: fc.array(length), steps: fc.array(length), texts }),
  },
  { requiredKeys: ["lengths", "timestampDeltasMs"] },
);

function byProtobuf({ lengths, timestampDeltasMs, rawEvents }: FragmentIndex): Uint8Array {
  const message = create(FragmentsSchema, {
    lengths: [...lengths],
    timestampDeltasMs: [...timestampDeltasMs],
    ...(rawEvents && {
      rawEvents: { ...rawEvents, lengths: [...rawEvents.lengths], steps: [...rawEvents.steps] },
    }),
  });
  return toBinary(FragmentsSchema, message);
}

test("an index is encoded as protobuf encodes it, and decodes to the same", () => {
  fc.assert(
    fc.property(index, (given) => {
      const bytes = encodeFragments(given);
      expect(bytes).toEqual(byProtobuf(given));
      expect(decodeFragments(bytes)).toEqual(given);
    }),
    properties({ runs: 1_000 }),
  );
});

/** What protobuf reads of bytes, when it does. */
function readByProtobuf(bytes: Uint8Array): FragmentIndex | undefined {
  try {
    const message = fromBinary(FragmentsSchema, bytes);
    const { lengths, timestampDeltasMs, rawEvents: raw } = message;
    if (raw === undefined) return { lengths, timestampDeltasMs };
    const rawEvents = { lengths: raw.lengths, steps: raw.steps, texts: raw.texts };
    return { lengths, timestampDeltasMs, rawEvents };
  } catch {
    return undefined;
  }
}

/** Undefined when it is refused with an error that names the index. */
function decoded(bytes: Uint8Array): FragmentIndex | undefined {
  try {
    return decodeFragments(bytes);
  } catch (error) {
    if (error instanceof RangeError && error.message.includes("fragment index")) return undefined;
    throw error;
  }
}

const broken = fc
  .tuple(index, fc.nat(), fc.uint8Array({ maxLength: 3 }), fc.nat({ max: 3 }))
  .map(([given, where, puts, drops]) => {
    const bytes = byProtobuf(given);
    const at = where % (bytes.length + 1);
    return Uint8Array.from([...bytes.slice(0, at), ...puts, ...bytes.slice(at + drops)]);
  });

test("other bytes are refused, or read as protobuf reads them", () => {
  fc.assert(
    fc.property(fc.oneof(broken, fc.uint8Array({ maxLength: 12 })), (bytes) => {
      const read = decoded(bytes);
      fc.pre(read !== undefined);
      expect(readByProtobuf(bytes)).toEqual(read);
    }),
    { ...properties({ runs: 1_000 }), maxSkipsPerRun: 1_000 },
  );
});

test.each<[string, readonly number[], string]>([
  ["a list that is cut short", [0x0a, 3, 1, 1], "cut short"],
  ["a number that is cut short", [0x0a, 1, 0x80], "cut short"],
  ["no list after the field", [0x0a], "cut short"],
  ["a field of another message", [0x22, 0], "not its own"],
  ["raw events that are cut short", [0x1a, 2, 0x0a], "cut short"],
  ["raw events twice", [0x1a, 0, 0x1a, 0], "not its own"],
  ["a field of another message in raw events", [0x1a, 2, 0x22, 0], "not its own"],
  ["a text twice", [0x1a, 6, 0x1a, 1, 0x61, 0x1a, 1, 0x62], "not its own"],
  ["a text that is cut in a character", [0x1a, 4, 0x1a, 2, 0xc3, 0x28], "not UTF-8"],
  ["a number that is not in a list", [0x08, 0], "not its own"],
  ["a list twice", [0x0a, 1, 1, 0x0a, 1, 1], "not its own"],
  ["a length of 33 bits", [0x0a, 5, 0xff, 0xff, 0xff, 0xff, 0x1f], "larger than 32 bits"],
  ["a time of 65 bits", [0x12, 10, ...Array<number>(9).fill(0xff), 2], "larger than 64 bits"],
  ["a number without an end", [0x12, 12, ...Array<number>(12).fill(0xff)], "larger than 64 bits"],
])("%s is refused", (_, bytes, message) => {
  expect(() => decodeFragments(Uint8Array.from(bytes))).toThrow(RangeError);
  expect(() => decodeFragments(Uint8Array.from(bytes))).toThrow(message);
});

test("a list that is cut short is found before it is read", () => {
  expect(() => readFragments(Uint8Array.from([0x0a, 3, 1, 1]))).toThrow("cut short");
});

test.each<FragmentIndex>([
  { lengths: [-1], timestampDeltasMs: [] },
  { lengths: [1.5], timestampDeltasMs: [] },
  { lengths: [2 ** 32], timestampDeltasMs: [] },
  { lengths: [Number.NaN], timestampDeltasMs: [] },
  { lengths: [], timestampDeltasMs: [2n ** 63n] },
  { lengths: [], timestampDeltasMs: [-(2n ** 63n) - 1n] },
  { lengths: [], timestampDeltasMs: [], rawEvents: { lengths: [], steps: [-1], texts: "" } },
])("%o has no encoding", (given) => {
  expect(() => encodeFragments(given)).toThrow(RangeError);
});
