/**
 * A fragment like one that was accepted before is not read again. This shows that it makes no
 * difference: wild events, many of which differ in one place only, go through one intake, and each
 * through a new, empty one. The answers are the same, and so are the rows of a compressor with and
 * without the knowledge of the intake.
 */
import { create } from "@bufbuild/protobuf";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type RawEvent, RawEventSchema } from "@session-ledger/proto/ambient/v1/event_stream_pb";
import { CATALOGUE, isCompressible } from "@session-ledger/agui/catalogue";
import type { ValidationMode } from "@session-ledger/agui/validate";
import { Compressor } from "@session-ledger/compressor/compressor";
import { expand } from "@session-ledger/compressor/expand";
import {
  type FragmentEvent,
  EventAcceptor,
  type AcceptResult,
} from "../../src/handlers/push-stream/accept-event.ts";
import { properties } from "../support/random.ts";

const FRAGMENT_TYPES = CATALOGUE.map(({ type }) => type).filter(isCompressible);

/** Values of `delta` as they are spelled, right and wrong. */
const DELTAS = [
  '""',
  '"a"',
  '" "',
  '"\\n\\u0041"',
  '"\\ud83d"',
  '"\\ude00"',
  '"😀é"',
  '"\\u0000"',
  '"a\tb"',
  '"\\x"',
  '"\\u12"',
  '"a',
  "null",
  "1",
  "{}",
  '"a","more":"b"',
  '"\ud83d"',
];
const TIMES = [
  "0",
  "1",
  "1700000000123",
  "-1",
  "-0",
  "01",
  "1.0",
  "1.5",
  "1e3",
  "null",
  '"1"',
].concat(["999999999999999", "9007199254740991", "9007199254740993", "1".repeat(40), "1e999"]);
const TYPES = [...FRAGMENT_TYPES, "TEXT_MESSAGE_START", "CUSTOM", "STATE_DELTA", "OTHER"];

/** Members of a payload, by how often they come; the text of each is put together as it is. */
const members = fc.record(
  {
    type: fc.constantFrom(...TYPES.map((type) => `"type":"${type}"`)),
    id: fc.constantFrom(
      '"messageId":"m1"',
      '"messageId":"m2"',
      '"message_id":"m1"',
      '"toolCallId":"t1"',
      '"tool_call_id":"t1","messageId":"m1"',
      '"messageId":null',
    ),
    delta: fc.constantFrom(...DELTAS.map((delta) => `"delta":${delta}`)),
    timestamp: fc.constantFrom(...TIMES.map((time) => `"timestamp":${time}`)),
    extra: fc.constantFrom(
      '"raw_event":null',
      '"rawEvent":{"delta":"x","timestamp":1}',
      '"delta":"twice"',
      '"d\\u0065lta":"hidden"',
      '"subagentRunId":"s"',
      '"toolCallName":"n"',
      '"a b":[1,{"delta":"}"}]',
      '"fragment_count":1',
    ),
  },
  { requiredKeys: ["type", "id", "delta"] },
);

const payload = fc
  .tuple(members, fc.boolean(), fc.constantFrom("", "", "", " ", "x"))
  .map(([parts, isReversed, tail]) => {
    const texts = Object.values(parts);
    return `{${(isReversed ? texts.toReversed() : texts).join(",")}}${tail}`;
  });

const event = fc
  .tuple(
    payload,
    fc.constantFrom("", "", ...TYPES, "\0"),
    fc.constantFrom(undefined, undefined, { seconds: 5n, nanos: 9 }, { seconds: 0n, nanos: -1 }),
  )
  .map(([text, eventType, time]) =>
    create(RawEventSchema, { payload: text, eventType, ...(time && { occurredAt: time }) }),
  );

/** What may differ from one event to the next: the delta, the time, now and then what is said beside. */
const change = fc.tuple(
  fc.constantFrom(...DELTAS),
  fc.constantFrom(...TIMES),
  fc.constantFrom(undefined, undefined, undefined, undefined, "OTHER", "TEXT_MESSAGE_CONTENT"),
  fc.constantFrom(undefined, undefined, undefined, undefined, { seconds: 0n, nanos: -1 }),
);

/** One event, and others that have another delta or time in the same place. */
const alike = fc.tuple(event, fc.array(change, { maxLength: 6 })).map(([first, others]) => [
  first,
  ...others.map(([delta, time, eventType = first.eventType, occurredAt]) =>
    create(RawEventSchema, {
      eventType,
      ...(occurredAt && { occurredAt }),
      payload: first.payload
        .replace(/"delta":("[^"]*"|null|1|\{\})/, () => `"delta":${delta}`)
        .replace(/"timestamp":[^,}]*/, () => `"timestamp":${time}`),
    }),
  ),
]);

const NOW = 1_700_000_000_000_000n;

/** Without the frames, which are for the compressor, and as plain data. */
function answerOf(taken: AcceptResult): unknown {
  if (taken.kind === "fragment") return { kind: taken.kind, event: taken.event };
  if (taken.kind === "rows") return taken;
  const { code, reason, message, violations } = taken.error;
  return { kind: taken.kind, code, reason, message, violations };
}

describe.each<ValidationMode>(["strict", "lenient"])("%s", (validation) => {
  const options = { validation, payloadBytesMax: 400, merges: true, redactor: undefined };

  test("the cache of a stream changes no answer and loses nothing of a row", () => {
    let repeated = 0;
    fc.assert(
      fc.property(fc.array(alike, { maxLength: 6 }), (groups) => {
        const events: readonly RawEvent[] = groups.flat();
        const intake = new EventAcceptor(options);
        const told = new Compressor<FragmentEvent>();
        const untold = new Compressor<FragmentEvent>();
        const rows = [];
        const others = [];
        const payloads: string[] = [];
        for (const one of events) {
          const taken = intake.accept(one, NOW);
          expect(answerOf(taken)).toEqual(answerOf(new EventAcceptor(options).accept(one, NOW)));
          if (taken.kind !== "fragment") continue;
          if (taken.framed !== undefined) repeated += 1;
          payloads.push(taken.event.payload);
          rows.push(...told.push(taken.event, 0, taken.framed));
          others.push(...untold.push(taken.event, 0));
        }
        rows.push(told.flush());
        others.push(untold.flush());
        const expanded = rows.flatMap((row) =>
          row === undefined
            ? []
            : [...expand({ ...row, seq: 1n })].map(({ payload: text }) => text),
        );
        expect(expanded.map((text): unknown => JSON.parse(text))).toEqual(
          payloads.map((text): unknown => JSON.parse(text)),
        );
        expect(rows).toEqual(others);
      }),
      properties({ runs: 1_000 }),
    );
    expect(repeated).toBeGreaterThan(0);
  });
});

describe("every type of fragment", () => {
  const limits = { payloadBytesMax: 1_000, merges: true, redactor: undefined };
  const options = { ...limits, validation: "strict" } as const;
  const fields = '"messageId":"m","toolCallId":"t","toolCallName":"n","role":"assistant"';

  test.each(FRAGMENT_TYPES)("%s takes any text and any whole time, alone", (type) => {
    for (const delta of ['""', '" "', '"a"', '"\\ud83d"', '"\\u0000"']) {
      for (const time of ["0", "-1", "999999999999999", "9007199254740993", "9".repeat(32)]) {
        const text = `{"type":"${type}",${fields},"delta":${delta},"timestamp":${time}}`;
        const one = create(RawEventSchema, { payload: text });
        const taken = new EventAcceptor(options).accept(one, NOW);
        expect(taken).toMatchObject({ kind: "fragment", event: { payload: text } });
      }
    }
  });

  // Four frames of a megabyte each stayed in memory for as long as a stream was open.
  test("a large event is accepted unchanged, and its frame is not kept", () => {
    const large = new EventAcceptor({ ...options, payloadBytesMax: 1_048_576 });
    const text = (pad: number): string =>
      `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"a","pad":"${"p".repeat(pad)}"}`;
    const framedOf = (json: string): unknown => {
      const taken = large.accept(create(RawEventSchema, { payload: json }), NOW);
      expect(taken).toMatchObject({ kind: "fragment", event: { payload: json } });
      return taken.kind === "fragment" ? taken.framed : undefined;
    };
    expect(framedOf(text(16_384))).toBeUndefined();
    expect(framedOf(text(16_000))).toBeDefined();
  });

  test("an event that no version accepts is a separate row, and so is the grouped form", () => {
    const lenient = new EventAcceptor({ ...options, validation: "lenient" });
    const odd = create(RawEventSchema, { payload: '{"type":"TEXT_MESSAGE_CONTENT","delta":"a"}' });
    const rows = [{ conformant: false, payload: odd.payload }];
    expect(lenient.accept(odd, NOW)).toMatchObject({ kind: "rows", rows });
    expect(lenient.accept(odd, NOW)).toMatchObject({ kind: "rows", rows });
    const group = '{"messageId":"m","fragment_count":2,"accumulated_content":"ab"}';
    const grouped = create(RawEventSchema, { eventType: "TEXT_MESSAGE_START", payload: group });
    const parts = [{ eventType: "TEXT_MESSAGE_START" }, { eventCount: 2 }];
    expect(lenient.accept(grouped, NOW)).toMatchObject({ kind: "rows", rows: parts });
  });
});
