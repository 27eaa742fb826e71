/**
 * Derived messages do not depend on what else is being said at the time, on how a text was cut into
 * fragments, or on anything but the events; and no event, whatever is in it, derives what could not
 * be pushed.
 */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { CATALOGUE } from "@session-ledger/agui/catalogue";
import { type DerivedMessage, MessageDeriver } from "@session-ledger/runner/internal/derive/derive";
import { properties } from "../../../test/support/random.ts";

type Event = Readonly<Record<string, unknown>>;

const STARTED = { type: "RUN_STARTED", threadId: "t", runId: "r" };
const FINISHED = { type: "RUN_FINISHED", threadId: "t", runId: "r" };

function derive(events: readonly Event[]): readonly DerivedMessage[] {
  const deriver = new MessageDeriver();
  return events.flatMap((event) => deriver.next(JSON.stringify(event)));
}

const id = fc.constantFrom("a", "b", "c");
const subagent = fc.option(fc.constantFrom("s1", "s2"), { nil: undefined });
const fragment = fc.string({
  unit: fc.constantFrom("x", " ", "é", "😀", "{", "}", '"'),
  maxLength: 4,
});
const fragments = fc.array(fragment, { maxLength: 4 });

interface Construct {
  readonly name: string;
  readonly events: readonly Event[];
}

/** With START and END. */
const whole = fc
  .record({ isCall: fc.boolean(), id, subagentRunId: subagent, fragments })
  .map(({ isCall, fragments: deltas, ...of }): Construct => {
    const { subagentRunId } = of;
    const ids = { [isCall ? "toolCallId" : "messageId"]: of.id, subagentRunId };
    const [start, content, end] = isCall
      ? ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]
      : ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"];
    return {
      name: `${isCall} ${of.id} ${subagentRunId}`,
      events: [
        { type: start, ...ids, toolCallName: "tool" },
        ...deltas.map((delta) => ({ type: content, ...ids, delta })),
        { type: end, ...ids },
      ],
    };
  });

/** Chunks of a subagent that does nothing else, so that only the end of the run ends them. */
const chunked = fc
  .record({ isCall: fc.boolean(), id, lane: fc.nat(3), fragments, saysId: fc.array(fc.boolean()) })
  .map(({ isCall, id: own, lane, fragments: deltas, saysId }): Construct => {
    const subagentRunId = `lane${lane}`;
    const type = isCall ? "TOOL_CALL_CHUNK" : "TEXT_MESSAGE_CHUNK";
    const ids = isCall ? { toolCallId: own, toolCallName: "tool" } : { messageId: own };
    return {
      name: subagentRunId,
      events: deltas.map((delta, at) => ({
        type,
        subagentRunId,
        delta,
        ...(at === 0 || saysId[at] === true ? ids : {}),
      })),
    };
  });

const constructs = fc.uniqueArray(fc.oneof(whole, chunked), {
  selector: ({ name }) => name,
  minLength: 1,
  maxLength: 6,
});

/** Of each the events in their order; `picks` says whose is next. */
function interleaved(all: readonly Construct[], picks: readonly number[]): readonly Event[] {
  const left = all.map(({ events }) => [...events]);
  const mixed: Event[] = [];
  for (const pick of picks) {
    const waiting = left.filter((events) => events.length > 0);
    const next = waiting[pick % Math.max(1, waiting.length)]?.shift();
    if (next !== undefined) mixed.push(next);
  }
  return [...mixed, ...left.flat()];
}

function told(messages: readonly DerivedMessage[]): readonly string[] {
  return messages
    .filter(({ eventType }) => eventType !== "lifecycle")
    .map(({ eventType, payload, key }) => `${key} ${eventType} ${payload}`)
    .toSorted();
}

test("texts of several messages at once do not mix", () => {
  fc.assert(
    fc.property(constructs, fc.array(fc.nat(5), { maxLength: 40 }), (all, picks) => {
      const mixed = derive([STARTED, ...interleaved(all, picks), FINISHED]);
      const alone = all.flatMap(({ events }) => derive([STARTED, ...events, FINISHED]));
      expect(told(mixed)).toEqual(told(alone));
    }),
    properties({ runs: 2_000 }),
  );
});

test("a text is the same for any division into fragments", () => {
  const unit = fc.constantFrom("x", " ", "\0", "\n", "é", "😀", "\ud83d", "\ude00", "{", '"');
  fc.assert(
    fc.property(
      fc.string({ unit, maxLength: 40 }),
      fc.array(fc.nat(40), { maxLength: 6 }),
      fc.boolean(),
      (text, cuts, isCall) => {
        const ids = isCall ? { toolCallId: "c" } : { messageId: "m" };
        const [content, end] = isCall
          ? ["TOOL_CALL_ARGS", "TOOL_CALL_END"]
          : ["TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"];
        const places = [0, ...cuts.toSorted((a, b) => a - b), text.length];
        const pieces = places.map((place, at) => text.slice(place, places[at + 1] ?? place));
        const fragmentsOf = (deltas: readonly string[]): readonly Event[] =>
          deltas.map((delta) => ({ type: content, ...ids, delta }));
        const derived = derive([...fragmentsOf(pieces), { type: end, ...ids }]);
        expect(derived).toEqual(derive([...fragmentsOf([text]), { type: end, ...ids }]));
      },
    ),
    properties({ runs: 1_000 }),
  );
});

const BYTES_MAX = 600;
const TYPES = ["assistant", "error", "lifecycle", "system", "tool_result", "tool_use"];
const anyText = fc.oneof(
  fc.constantFrom("m", "c", "s1", "error", "\0", "\ud83d", "{}", '{"a":1}', "x".repeat(700)),
  fc.string({ unit: "binary", maxLength: 12 }),
);
const anyValue = fc.oneof(anyText, fc.jsonValue({ maxDepth: 2 }), fc.constantFrom(null, 0, [], {}));
const FIELDS = [
  ["messageId", "message_id", "toolCallId", "tool_call_id", "toolCallName", "runId", "role"],
  ["subagentRunId", "delta", "content", "result", "name", "value", "message", "error", "code"],
  ["accumulated_content", "fragment_count", "end_event"],
].flat();
const anyEvent = fc
  .tuple(
    fc.oneof(fc.constantFrom(...CATALOGUE.map(({ type }) => type)), anyValue),
    fc.dictionary(fc.constantFrom(...FIELDS), anyValue, { maxKeys: 6 }),
  )
  .map(([type, fields]) => JSON.stringify({ type, ...fields }));

test("nothing throws, derived messages can be pushed, and a replay derives them again", () => {
  fc.assert(
    fc.property(
      fc.array(fc.oneof({ weight: 9, arbitrary: anyEvent }, fc.string()), { maxLength: 30 }),
      (payloads) => {
        const options = { payloadBytesMax: BYTES_MAX };
        const deriver = new MessageDeriver(options);
        const derived = payloads.flatMap((payload) => deriver.next(payload));
        for (const { eventType, payload, key } of derived) {
          expect(TYPES).toContain(eventType);
          expect(Buffer.byteLength(payload)).toBeLessThanOrEqual(BYTES_MAX);
          expect(Buffer.byteLength(key)).toBeLessThanOrEqual(128);
          for (const text of [payload, key]) {
            expect(text.isWellFormed()).toBe(true);
            expect(text).not.toContain("\0");
          }
          const isText = eventType === "assistant";
          expect(() => (isText ? undefined : JSON.parse(payload))).not.toThrow();
        }
        const replayed = new MessageDeriver(options);
        expect(payloads.flatMap((payload) => replayed.next(payload))).toEqual(derived);
      },
    ),
    properties({ runs: 2_000 }),
  );
});
