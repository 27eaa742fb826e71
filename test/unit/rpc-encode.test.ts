import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { SessionEventSchema } from "@session-ledger/proto/ambient/v1/events_pb";
import { sharedEncoderOf } from "../../src/rpc/codec.ts";

function sampleEvent(payload: string) {
  return create(SessionEventSchema, { id: "e1", sessionId: "s1", seq: 42n, payload });
}

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
});
