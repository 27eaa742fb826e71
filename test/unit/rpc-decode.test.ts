import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  BatchSchema,
  PushSessionEventsRequestSchema,
} from "@session-ledger/proto/ambient/v1/event_stream_pb";
import { PushSessionEventRequestSchema } from "@session-ledger/proto/ambient/v1/events_pb";
import { PushSessionMessageRequestSchema } from "@session-ledger/proto/ambient/v1/messages_pb";
import { ServiceError } from "@session-ledger/base/errors";
import { decoderOf } from "../../src/rpc/codec.ts";
import { properties } from "../support/random.ts";

const decode = decoderOf(PushSessionEventRequestSchema);

function outcomeOf(bytes: Uint8Array): string {
  try {
    decode(bytes);
    return "decoded";
  } catch (error) {
    return error instanceof ServiceError ? error.code : `a defect: ${String(error)}`;
  }
}

function refusalOf(bytes: Uint8Array): ServiceError {
  try {
    decode(bytes);
  } catch (error) {
    if (error instanceof ServiceError) return error;
    throw error;
  }
  throw new Error("it was decoded");
}

describe("a decoded request", () => {
  test("has the fields of the byte vectors of existing runners", () => {
    const message = decoderOf(PushSessionMessageRequestSchema);
    expect(message(Buffer.from("0a0273311204757365721a026869", "hex"))).toMatchObject({
      sessionId: "s1",
      eventType: "user",
      payload: "hi",
    });
    const vector = "0a027331120b52554e5f535441525445441a027b7d220a0880e2cfaa0610a0c21e2805";
    expect(decode(Buffer.from(vector, "hex"))).toMatchObject({
      sessionId: "s1",
      eventType: "RUN_STARTED",
      payload: "{}",
      completedAt: { seconds: 1_700_000_000n, nanos: 500_000 },
      eventCount: 5,
    });
  });

  test("has default values for empty bytes", () => {
    expect(decode(Buffer.alloc(0))).toMatchObject({ sessionId: "", payload: "", eventCount: 0 });
  });

  // Two million empty events in a frame of 4 MiB took 0.7 s and 260 MiB before they were refused.
  test("is refused when it has too many parts", () => {
    const decodeFrame = decoderOf(PushSessionEventsRequestSchema);
    const events = (count: number): Buffer => {
      const body = Buffer.from("1200".repeat(count), "hex");
      const writer = new BinaryWriter().tag(2, WireType.LengthDelimited).bytes(body);
      return Buffer.from(writer.finish());
    };
    const { frame } = decodeFrame(events(131_072));
    expect(frame.case === "batch" && frame.value.events.length).toBe(131_072);
    for (const bytes of [events(131_073), Buffer.from("12021200".repeat(131_073), "hex")]) {
      expect(() => decodeFrame(bytes)).toThrow(/has more than 131072 parts/);
    }
  });

  /** Each hides events from a count that goes by stated lengths alone. */
  test.each([
    ["an event's text continues after the event", 2, "12040a8180401200"],
    ["the events are in a field of another type", 2, "101200"],
    ["the events follow a field that is longer than its frame", 1, "0a8180401200"],
  ])("is refused when %s", (_, field, prefix) => {
    const hidden = Buffer.concat([
      Buffer.from(prefix, "hex"),
      Buffer.from("1200".repeat(1_000_000), "hex"),
    ]);
    const writer = new BinaryWriter().tag(field, WireType.LengthDelimited).bytes(hidden);
    expect(() => decoderOf(PushSessionEventsRequestSchema)(writer.finish())).toThrow(ServiceError);
  });

  test("is read when it is large and not in the plain encoding", () => {
    const events = [{ payload: "x".repeat(300_000) }, { payload: "\uFFFD", eventType: "A" }];
    const batch = toBinary(BatchSchema, create(BatchSchema, { firstClientSeq: 7n, events }));
    const frame = new BinaryWriter()
      .tag(2, WireType.LengthDelimited)
      .bytes(Buffer.concat([batch, Buffer.from("fa3e0568656c6c6f", "hex")]))
      .finish();
    expect(decoderOf(PushSessionEventsRequestSchema)(frame)).toEqual(
      fromBinary(PushSessionEventsRequestSchema, frame, { readUnknownFields: false }),
    );
  });

  test("has no unknown fields", () => {
    const unknown = Buffer.from("fa3e0568656c6c6f", "hex"); // Field 1007, "hello".
    const request = decode(Buffer.concat([Buffer.from("0a027331", "hex"), unknown]));
    expect(request.sessionId).toBe("s1");
    expect(request.$unknown).toBeUndefined();
  });

  test.each([
    ["a length over the end", "0a0a7331"],
    ["a tag that is cut off", "0a02733112"],
    ["field number 0", "0001"],
    ["a wire type that does not exist", "0f01"],
    ["a varint without an end", "28ffffffffffffffffffff01"],
    ["invalid UTF-8 in a short string", "0a02c328"],
    ["invalid UTF-8 in a long string", `1a28${"61".repeat(38)}c328`],
    ["half a surrogate pair in UTF-8", "1a03eda080"],
    ["a nested message over the end of all", "22050801"],
    ["a string field with a varint", "0801"],
    ["a varint field with a string", "2a0161"],
    ["a varint field with four bytes", "2d00000000"],
    ["a nested message with a length of 4 GiB", "22ffffffff0f"],
    ["a list of varints with eight bytes", "ba06090900000000000000ff"],
    ["text", Buffer.from('{"session_id":"s1"}').toString("hex")],
  ])("is INVALID_ARGUMENT with a violation for %s", (_, hex) => {
    const error = refusalOf(Buffer.from(hex, "hex"));
    expect(error).toMatchObject({ code: "invalid_argument", reason: "INVALID_REQUEST" });
    expect(error.violations).toHaveLength(1);
    expect(error.message).toContain("ambient.v1.PushSessionEventRequest");
  });

  test("is a message or INVALID_ARGUMENT for any bytes", () => {
    const whole = toBinary(
      PushSessionEventRequestSchema,
      create(PushSessionEventRequestSchema, {
        sessionId: "s1",
        eventType: "TEXT_MESSAGE_CONTENT",
        payload: '{"delta":"é"}',
        eventCount: 2,
        fragments: { lengths: [1, 2], timestampDeltasMs: [5n] },
      }),
    );
    const mutated = fc
      .tuple(fc.nat(whole.length - 1), fc.uint8Array({ maxLength: 4 }), fc.nat(whole.length))
      .map(([at, bytes, end]) => {
        const copy = Uint8Array.from(whole);
        copy.set(bytes.subarray(0, whole.length - at), at);
        return copy.subarray(0, end);
      });
    fc.assert(
      fc.property(fc.oneof(fc.uint8Array({ maxLength: 64 }), mutated), (bytes) => {
        expect(["decoded", "invalid_argument"]).toContain(outcomeOf(bytes));
      }),
      properties({ runs: 2_000 }),
    );
  });
});
