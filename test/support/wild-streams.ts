/**
 * Streams of fragments for property tests, in every spelling of JSON: few shapes of payload, so that
 * neighbours often share one, each with its own order of keys, white space and escapes, and events that
 * differ from a shape only in text and time, or in values of their `rawEvent`. Some shapes merge with
 * nothing, and some events are no JSON.
 */
import * as fc from "fast-check";
import { CATALOGUE } from "@session-ledger/agui/catalogue";
import type { IncomingEvent } from "@session-ledger/compressor/compressor";

export interface WildEvent extends IncomingEvent {
  /** Neighbours of one shape merge; undefined: merges with nothing, broken: unknown. */
  readonly shape: string | undefined;
  /** Undefined when the payload has no plain one. */
  readonly timestampMs: bigint | undefined;
}

const FRAGMENTS = CATALOGUE.filter(({ role }) => role === "fragment").map(({ type }) => type);
const OTHERS = ["RAW", "CUSTOM", "TEXT_MESSAGE_START", "STATE_DELTA", "FOREIGN"];

const space = fc.string({ unit: fc.constantFrom(" ", "\n", "\t", "\r"), maxLength: 2 });

/** Of a string's body: what it is spelled by one or two units at a time. Some are halves of pairs. */
const spelling = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom("a", " ", "token", "{", "}", ":", "'", "\u007f") },
  { weight: 2, arbitrary: fc.constantFrom("é", "€", "😀", "\u2028", "\ufeff") },
  { weight: 2, arbitrary: fc.constantFrom(...String.raw`\" \\ \/ \b \f \n \r \t`.split(" ")) },
  {
    weight: 2,
    arbitrary: fc.constantFrom(...String.raw`\u0000 \u0061 \u00E9 \u20ac \u005c \u0022`.split(" ")),
  },
  {
    weight: 3,
    arbitrary: fc.constantFrom("\\ud83d", "\\uDE00", "\\uD83D\\ude00", "\\udBff", "\\uDc00"),
  },
  // Not as UTF-8: only a caller in JavaScript can have it.
  { weight: 1, arbitrary: fc.constantFrom("\ud83d", "\ude00") },
);

const textBody = fc.array(spelling, { maxLength: 4 }).map((parts) => parts.join(""));

const plainTime = fc.oneof(
  fc.bigInt({ min: 1_770_389_237_000n, max: 1_770_389_237_009n }),
  fc.bigInt({ min: -20n, max: 20n }),
  fc.bigInt({ min: -(2n ** 54n), max: 2n ** 54n }),
  fc.bigInt({ min: 2n ** 53n - 3n, max: 2n ** 53n + 3n }),
  fc.constantFrom(2n ** 62n, -(2n ** 62n), 2n ** 63n, 2n ** 80n, 10n ** 15n, 10n ** 15n - 1n),
);

interface Shape {
  readonly type: string;
  readonly number: number;
  readonly merges: boolean;
  readonly isTimed: boolean;
  /** Whether a `rawEvent` differs from event to event. */
  readonly hasRaw: boolean;
  readonly print: (texts: Texts) => string;
}

interface Texts {
  readonly delta: string;
  readonly timestamp: string;
  /** The values of the `rawEvent`, and its form: payloads of two forms never merge. */
  readonly values: readonly string[];
  readonly form: string;
}

/** Values of a `rawEvent`; %D is the delta. */
const rawValue = fc.oneof(
  { weight: 4, arbitrary: fc.constant('"%D"') },
  { weight: 2, arbitrary: fc.constantFrom('"same"', "null", "true", "false", "0", "-1.50e+2") },
  fc.constantFrom('"a😀b"', '"a😁b"', '"😀"', '""', '"\\ud83d"', '"\\\""', '"a%Db"', '"%D%D"'),
  fc.nat().map((at) => `"2026-11-23T10:00:00.${at}Z"`),
  fc.nat().map(String),
);
const rawForm = fc.oneof(
  { weight: 8, arbitrary: fc.constant("{}") },
  fc.constantFrom("[]", '{"b":0}'),
);

const others = fc.subarray([
  '"messageId":"m"',
  '"message_id" :"m\\u0031"',
  '"subagentRunId":null',
  '"metadata":{"a":1.0,"b":[1e5,9007199254740993,-0]}',
  '"rawEvent":{"delta":"\\ud83d","timestamp":1.0,"delta":2}',
  '"x":"\\\\\\"delta\\":\\""',
  '"é😀":"\u2028"',
]);

const shape = (number: number): fc.Arbitrary<Shape> =>
  fc
    .record({
      type: fc.oneof(
        { weight: 4, arbitrary: fc.constantFrom(...FRAGMENTS) },
        { weight: 1, arbitrary: fc.constantFrom(...OTHERS) },
      ),
      delta: fc.oneof(
        { weight: 6, arbitrary: fc.constant("text") },
        fc.constantFrom("none", "null", "1", '["a"]', "twice"),
      ),
      timestamp: fc.oneof(
        { weight: 5, arbitrary: fc.constantFrom("plain", "none") },
        fc.constantFrom("1.0", "1e5", "-0", "null", '"5"', "twice"),
      ),
      deltaKey: fc.constantFrom('"delta"', '"delta"', '"d\\u0065lta"'),
      others,
      hasRaw: fc.boolean(),
      places: fc.array(fc.nat(), { minLength: 12, maxLength: 12 }),
      spaces: fc.tuple(space, space, space, space),
    })
    .map(({ type, delta, timestamp, deltaKey, others: all, hasRaw, places, spaces }) => {
      const [a, b, c, d] = spaces;
      const more = all.filter((member) => !hasRaw || !member.startsWith('"rawEvent"'));
      const gaps = [
        ...(hasRaw
          ? [`"rawEvent":{"text"${a}:${b}%0,"k:":{"delta":%1,${c}"r":%F},"l":[%2${d},"a",7]}`]
          : []),
        ...(delta === "text" ? [`${deltaKey}${a}:${b}"%D"`] : []),
        ...(delta === "twice" ? ['"delta":"%D"', `"d\\u0065lta":"%D"`] : []),
        ...(["text", "twice", "none"].includes(delta) ? [] : [`"delta":${delta}`]),
        ...(timestamp === "plain" ? [`"timestamp"${b}:${c}%T`] : []),
        ...(timestamp === "twice" ? ['"timestamp":%T', '"timestamp":%T'] : []),
        ...(["plain", "twice", "none"].includes(timestamp) ? [] : [`"timestamp":${timestamp}`]),
      ];
      const members = [`"shape":${number}`, ...more, ...gaps]
        .map((member, at) => ({ member, place: places[at] ?? 0 }))
        .toSorted((x, y) => x.place - y.place)
        .map(({ member }) => member);
      const text = `${a}{${c}${members.join(`${d},${a}`)}${b}}${d}`;
      const isFragment = FRAGMENTS.some((one) => one === type);
      const fits = ["text", "none"].includes(delta) && ["plain", "none"].includes(timestamp);
      return {
        type,
        number,
        merges: isFragment && fits,
        isTimed: timestamp === "plain",
        hasRaw,
        print: ({ delta: body, timestamp: time, values, form }) =>
          text
            .replace("%F", () => form)
            .replaceAll(/%[012]/g, (slot) => values[Number(slot.slice(1))] ?? "")
            .replaceAll("%D", () => body)
            .replaceAll("%T", () => time),
      };
    });

/** Damages a text most of the time: the result may still be JSON. */
const breakage = fc.record({
  at: fc.oneof(fc.nat(), fc.constant("end" as const)),
  drops: fc.nat({ max: 2 }),
  puts: fc.constantFrom("", " ", '"', "\\", "{", "}", ",", "0", "\u0001", "x", "\ud83d"),
});

/** Up to three shapes; runs of events of one of them. */
export const wildStream: fc.Arbitrary<readonly WildEvent[]> = fc
  .tuple(shape(0), shape(1), shape(2))
  .chain((shapes) =>
    fc.array(
      fc
        .record({
          which: fc.nat({ max: 2 }),
          parts: fc.array(
            fc.record({
              delta: textBody,
              timestamp: plainTime,
              time: fc.bigInt({ min: 0n, max: 9n }),
              values: fc.tuple(rawValue, rawValue, rawValue),
              form: rawForm,
            }),
            { minLength: 1, maxLength: 5 },
          ),
          broken: fc.oneof({ weight: 11, arbitrary: fc.constant(null) }, breakage),
          apart: fc.oneof({ weight: 9, arbitrary: fc.constant(undefined) }, fc.boolean()),
        })
        .map(({ which, parts, broken, apart }) =>
          parts.map(({ delta, timestamp, time, values, form }): WildEvent => {
            const { type, number, merges, isTimed, hasRaw, print } = shapes[which] ?? shapes[0];
            const payload = print({ delta, timestamp: String(timestamp), values, form });
            const event = {
              eventType: type,
              createdAtMicros: time,
              ...(apart === undefined ? {} : { merges: apart }),
              timestampMs: isTimed ? timestamp : undefined,
            };
            if (broken === null)
              return {
                ...event,
                payload,
                shape: merges && apart !== false ? `${number} ${hasRaw ? form : ""}` : undefined,
              };
            const cut = broken.at === "end" ? payload.length : broken.at % payload.length;
            const rest = payload.slice(cut + broken.drops);
            return {
              ...event,
              payload: payload.slice(0, cut) + broken.puts + rest,
              shape: "broken",
            };
          }),
        ),
      { maxLength: 8 },
    ),
  )
  .map((runs) => runs.flat());
