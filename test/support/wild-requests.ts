/** Pushes that no runner sends, as arbitraries of fast-check. */
import { create, toBinary } from "@bufbuild/protobuf";
import * as fc from "fast-check";
import { PushSessionEventRequestSchema } from "@session-ledger/proto/ambient/v1/events_pb";
import { PushSessionMessageRequestSchema } from "@session-ledger/proto/ambient/v1/messages_pb";
import { CATALOGUE } from "@session-ledger/agui/catalogue";
import { GOOD, type PushFields, STREAMS, type Stream } from "./pushing.ts";

/** A few sessions, so that requests meet each other's rows, keys and epochs. */
export const SESSIONS = ["fuzz-0", "fuzz-1", "fuzz-2"];

const sessionId = fc.constantFrom(...SESSIONS);
const anyStream = fc.constantFrom(...STREAMS);

export function encodePush(stream: Stream, fields: PushFields): Uint8Array {
  const request = { ...GOOD[stream], ...fields };
  return stream === "messages"
    ? toBinary(PushSessionMessageRequestSchema, create(PushSessionMessageRequestSchema, request))
    : toBinary(PushSessionEventRequestSchema, create(PushSessionEventRequestSchema, request));
}

/** Mostly valid: a request with many faults tests only its first check. */
function mostly<T, U>(right: fc.Arbitrary<T>, wrong: fc.Arbitrary<U>): fc.Arbitrary<T | U> {
  return fc.oneof({ weight: 31, arbitrary: right }, { weight: 1, arbitrary: wrong });
}

const anyText = fc.oneof(fc.string(), fc.string({ unit: "binary" }), fc.constant("\0"));
const anyJson = fc.jsonValue();
const text = mostly(fc.string({ unit: "grapheme" }), anyJson);
const eventType = fc.constantFrom(...CATALOGUE.map(({ type }) => type));

/** Fields of most event types at once; fields that a type does not have are kept. */
const agui = fc
  .record(
    {
      messageId: text,
      toolCallId: text,
      toolCallName: text,
      threadId: text,
      runId: mostly(anyText, anyJson),
      stepName: text,
      delta: mostly(anyText, anyJson),
      name: text,
      subagentRunId: text,
      message: text,
      title: text,
      metaType: text,
      role: fc.constantFrom("assistant", "reasoning"),
    },
    { noNullPrototype: true },
  )
  .chain((known) =>
    fc
      .record(
        {
          type: mostly(fc.constant(undefined), anyJson),
          message_id: mostly(fc.constantFrom(known.messageId, null), anyJson),
          timestamp: mostly(fc.double(), anyJson),
          metadata: fc.dictionary(anyText, anyJson),
          messages: anyJson,
          fragment_count: mostly(fc.nat(5), anyJson),
          accumulated_content: text,
          end_event: mostly(fc.constant(known), anyJson),
          ["__proto__"]: anyJson,
        },
        { requiredKeys: [], noNullPrototype: true },
      )
      .map((rest) => ({ ...known, ...rest })),
  );
const payload = fc.oneof(
  { weight: 16, arbitrary: agui.map((value) => JSON.stringify(value)) },
  { weight: 1, arbitrary: fc.json() },
  { weight: 1, arbitrary: anyText },
  {
    weight: 1, // Text that is almost JSON.
    arbitrary: fc.tuple(agui, fc.string()).map(([value, rest]) => JSON.stringify(value) + rest),
  },
);
const anyTime = fc.record({
  seconds: fc.bigInt(-(2n ** 63n), 2n ** 63n - 1n),
  nanos: fc.integer(),
});
const moment = fc.record({
  seconds: fc.bigInt(-62_135_596_800n, 253_402_300_799n),
  nanos: fc.integer({ min: 0, max: 999_999_999 }),
});
const fields: fc.Arbitrary<PushFields> = fc
  .record({
    eventType: mostly(eventType, anyText),
    payload,
    rest: fc.record(
      {
        idempotencyKey: mostly(fc.uuid(), fc.constantFrom("k1", "k2")),
        producerEpoch: mostly(fc.constant(1n), fc.bigInt(0n, 2n ** 64n - 1n)),
        eventCount: mostly(fc.constantFrom(0, 1), fc.integer()),
        completedAt: mostly(fc.constant({ seconds: 253_402_300_799n, nanos: 0 }), anyTime),
        createdAt: mostly(moment, anyTime),
        sentAt: mostly(moment, anyTime),
        sender: fc.record({ id: mostly(fc.string(), anyText), displayName: fc.string() }),
      },
      { requiredKeys: [] },
    ),
    fragments: mostly(
      fc.constant({}),
      fc.record({
        fragments: fc.record({
          lengths: fc.array(fc.oneof(fc.nat(4), fc.nat()), { maxLength: 6 }),
          timestampDeltasMs: fc.array(fc.bigInt(-(2n ** 63n), 2n ** 63n - 1n), { maxLength: 5 }),
        }),
      }),
    ),
  })
  .map(({ rest, fragments, ...said }) => ({ ...said, ...rest, ...fragments }));

/** A push with mostly one fault. A message takes any payload; only its type must be valid. */
export const wildRequest = fc
  .record({
    stream: anyStream,
    sessionId,
    fields,
    messageType: fc.constantFrom("user", "assistant", "error"),
  })
  .map(({ messageType, ...one }) =>
    one.stream === "messages" && one.fields.eventType !== ""
      ? { ...one, fields: { ...one.fields, eventType: messageType } }
      : one,
  );

/** A valid request with some bytes changed, cut, doubled or inserted. */
export const damagedRequest = fc
  .record({
    valid: wildRequest,
    cuts: fc.array(
      fc.record({ at: fc.nat(), length: fc.nat(6), bytes: fc.uint8Array({ maxLength: 4 }) }),
      {
        minLength: 1,
        maxLength: 4,
      },
    ),
  })
  .map(({ valid, cuts }) => {
    const encoded = encodePush(valid.stream, { ...valid.fields, sessionId: valid.sessionId });
    const bytes = cuts.reduce((before, { at, length, bytes: inserted }) => {
      const start = at % (before.length + 1);
      return Buffer.concat([before.subarray(0, start), inserted, before.subarray(start + length)]);
    }, Buffer.from(encoded));
    return { stream: valid.stream, bytes };
  });
