/**
 * The encoder is our own for speed only, so one thing must be shown: for every message its bytes
 * are those of protobuf-es. Messages are generated from the descriptors of all answers.
 */
import { create, type DescField, type DescMessage, ScalarType, toBinary } from "@bufbuild/protobuf";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { PushSessionEventsResponseSchema } from "@session-ledger/proto/ambient/v1/event_stream_pb";
import { SessionEventSchema } from "@session-ledger/proto/ambient/v1/events_pb";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { encoderOf, sharedEncoderOf } from "../../src/rpc/encode.ts";
import { properties } from "../support/random.ts";

const SCALARS: Partial<Record<ScalarType, fc.Arbitrary<unknown>>> = {
  [ScalarType.STRING]: fc.oneof(fc.string({ unit: "binary", maxLength: 80 }), fc.constant("")),
  [ScalarType.BYTES]: fc.uint8Array({ maxLength: 8 }), // In google.protobuf.Any.
  [ScalarType.BOOL]: fc.boolean(),
  [ScalarType.INT32]: fc.oneof(fc.integer(), fc.constant(0)),
  [ScalarType.UINT32]: fc.integer({ min: 0, max: 0xffff_ffff }),
  [ScalarType.INT64]: fc.oneof(fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n })),
  [ScalarType.UINT64]: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
  [ScalarType.SINT64]: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
};

function scalar(type: ScalarType): fc.Arbitrary<unknown> {
  const arbitrary = SCALARS[type];
  if (arbitrary === undefined) throw new Error(`no arbitrary for ${ScalarType[type]}`);
  return arbitrary;
}

function valueOf(field: DescField): fc.Arbitrary<unknown> {
  switch (field.fieldKind) {
    case "scalar":
      return scalar(field.scalar);
    case "enum":
      return fc.constantFrom(...field.enum.values.map((value) => value.number));
    case "message":
      return messageOf(field.message);
    case "list":
      return fc.array(
        field.listKind === "message"
          ? messageOf(field.message)
          : scalar(field.listKind === "enum" ? ScalarType.INT32 : field.scalar),
        { maxLength: 4 },
      );
    case "map":
      throw new Error("the contract has no maps");
  }
}

/** Any field may be absent; a oneof has at most one field. */
function messageOf(desc: DescMessage): fc.Arbitrary<Record<string, unknown>> {
  const members = desc.members.map((member): [string, fc.Arbitrary<unknown>] =>
    member.kind === "oneof"
      ? [
          member.localName,
          fc.oneof(
            ...member.fields.map((field) =>
              valueOf(field).map((value) => ({ case: field.localName, value })),
            ),
          ),
        ]
      : [member.localName, valueOf(member)],
  );
  return fc.record(Object.fromEntries(members), { requiredKeys: [] });
}

const ANSWERS = new Set(SessionService.methods.map((method) => method.output));

function sampleEvent(payload: string) {
  return create(SessionEventSchema, { id: "e1", sessionId: "s1", seq: 42n, payload });
}

describe("an encoded answer", () => {
  test.each([...ANSWERS].map((desc) => [desc.typeName, desc] as const))(
    "has the bytes of protobuf-es: %s",
    (_, desc) => {
      const encode = encoderOf(desc);
      fc.assert(
        fc.property(messageOf(desc), (init) => {
          const message = create(desc, init);
          expect(encode(message).toString("hex")).toBe(
            Buffer.from(toBinary(desc, message)).toString("hex"),
          );
        }),
        properties({ runs: 200 }),
      );
    },
  );

  test("contains nothing of a previous message that could not be encoded", () => {
    const encode = encoderOf(SessionEventSchema);
    const broken = { ...sampleEvent("left behind?"), eventCount: 1.5 };
    expect(() => encode(broken)).toThrow("1.5");
    const after = sampleEvent("{}");
    expect(encode(after)).toEqual(Buffer.from(toBinary(SessionEventSchema, after)));
  });

  test("is correct when it is large, and so is a small one after it", () => {
    const encode = encoderOf(SessionEventSchema);
    for (const event of [sampleEvent("é".repeat(1_000_000)), sampleEvent("{}")]) {
      expect(encode(event).equals(toBinary(SessionEventSchema, event))).toBe(true);
    }
  });

  test("is not changed by later ones", () => {
    const encode = encoderOf(SessionEventSchema);
    const first = encode(sampleEvent("first"));
    const copy = Buffer.from(first);
    encode(sampleEvent("other"));
    expect(first).toEqual(copy);
  });
});

describe("an answer for many streams", () => {
  test("is encoded once for one object", () => {
    const encode = sharedEncoderOf(SessionEventSchema);
    const event = sampleEvent("{}");
    expect(encode(event)).toBe(encode(event));
  });

  test("is encoded for each of two equal objects", () => {
    const encode = sharedEncoderOf(SessionEventSchema);
    expect(encode(sampleEvent("a"))).not.toBe(encode(sampleEvent("a")));
  });

  test("is encoded again, with equal bytes, after it has left the ring", () => {
    const encode = sharedEncoderOf(SessionEventSchema);
    const events = Array.from({ length: 200 }, (_, index) => sampleEvent(`${index}`));
    const first = events.map((event) => encode(event));
    const second = events.map((event) => encode(event));
    expect(second).toEqual(first);
  });

  test("is encoded by protobuf-es when it has a oneof", () => {
    const encode = sharedEncoderOf(PushSessionEventsResponseSchema);
    const message = create(PushSessionEventsResponseSchema, {
      frame: { case: "committed", value: { lastClientSeq: 3n, lastSeq: 9n } },
    });
    expect(encode(message)).toEqual(
      Buffer.from(toBinary(PushSessionEventsResponseSchema, message)),
    );
  });
});
