/**
 * A merged row gives back the events it was made of: the very texts, each with its number and time.
 *
 * Method: the model is a list of fragments that differ in text and time only. A row is made of it in
 * the plainest way (the texts joined, the lengths and differences written down), with the members in
 * any order, white space between them and the joined text spelled with any escapes; then expansion
 * must bring the model back, whole and from every cursor. It shares no code with the compressor: rows
 * come from other producers too. compressor.property.test.ts has the two together, and real streams.
 */
import { create, toBinary } from "@bufbuild/protobuf";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { FragmentsSchema } from "@session-ledger/proto/ambient/v1/compression_pb";
import { expand, type ExpandableRow, type RawEvent } from "@session-ledger/compressor/expand";
import { checkFragments, type FragmentIndex } from "@session-ledger/compressor/fragments";
import { properties } from "../../../test/support/random.ts";

const TYPE = "TEXT_MESSAGE_CHUNK";
const FIRST_SEQ = 41n;
const CREATED_AT = 1_700_000_000_123_456n;

const space = fc.string({ unit: fc.constantFrom(" ", "\n", "\t", "\r"), maxLength: 2 });
/** UTF-16 units, so that a fragment may end inside a pair, and so that halves may stand alone. */
const unit = fc.oneof(
  fc.constantFrom("a", " ", '"', "\\", "/", "\n", "\u0000", "é", "\u2028", "u", "{", "}"),
  fc.constantFrom("\ud83d", "\ude00", "\ud83d\ude00"),
);
const delta = fc.array(unit, { maxLength: 5 }).map((units) => units.join(""));
const timestamp = fc.oneof(
  fc.bigInt({ min: 0n, max: 2_000_000_000_000n }),
  fc.bigInt({ min: 1_700_000_000_000n, max: 1_700_000_000_009n }),
  fc.bigInt({ min: 2n ** 53n - 3n, max: 2n ** 53n + 3n }),
  fc.bigInt({ min: -(2n ** 70n), max: 2n ** 70n }), // Beyond what a number of JavaScript holds.
);

interface Model {
  readonly deltas: readonly string[] | undefined;
  readonly timestamps: readonly bigint[] | undefined;
  readonly count: number;
  /** Other members, as `"key":value`. */
  readonly others: readonly string[];
}

const model: fc.Arbitrary<Model> = fc.integer({ min: 1, max: 8 }).chain((count) =>
  fc.record({
    count: fc.constant(count),
    deltas: fc.option(fc.array(delta, { minLength: count, maxLength: count }), { nil: undefined }),
    timestamps: fc.option(fc.array(timestamp, { minLength: count, maxLength: count }), {
      nil: undefined,
    }),
    others: fc.subarray([
      `"type":"${TYPE}"`,
      '"rawEvent":{"delta":"\\\\ \\"","timestamp":1.0}',
      '"a\\u006e\\"other":[1.0e5, 9007199254740993]',
      '"backslashes":"\\\\\\\\"',
    ]),
  }),
);

/** How a payload is spelled; what it says is not touched. */
interface Spelling {
  readonly spaces: readonly string[];
  /** The places of the members, the smallest first. */
  readonly places: readonly number[];
  readonly deltaKey: string;
  readonly unitSpelling: (unit: string, at: number) => string;
}

const spelling: fc.Arbitrary<Spelling> = fc.record({
  spaces: fc.array(space, { minLength: 4, maxLength: 4 }),
  places: fc.array(fc.nat(), { minLength: 6, maxLength: 6 }),
  deltaKey: fc.constantFrom('"delta"', '"d\\u0065lta"'),
  unitSpelling: fc
    .array(fc.constantFrom("plain", "long", "LONG", "short"), { minLength: 3, maxLength: 3 })
    .map((ways) => (one: string, at: number) => spelledUnit(one, ways[at % ways.length])),
});

/** As JSON.stringify has it. */
const CANONICAL = (text: string): string => JSON.stringify(text).slice(1, -1);

function spelledUnit(one: string, way: string | undefined): string {
  const hex = one.charCodeAt(0).toString(16).padStart(4, "0");
  if (way === "long") return `\\u${hex}`;
  if (way === "LONG") return `\\u${hex.toUpperCase()}`;
  if (way === "short" && one === "/") return "\\/";
  return one; // Escaped below where it has to be.
}

/** A string as JSON, unit by unit; what cannot stand as it is, is spelled as JSON.stringify does. */
function spelledText(text: string, unitSpelling: Spelling["unitSpelling"]): string {
  const units = text.split("").map((one, at) => {
    const spelled = unitSpelling(one, at);
    if (spelled !== one || /[\ud800-\udfff]/.test(one)) return spelled;
    return CANONICAL(one);
  });
  return units
    .join("")
    .replaceAll(/\p{Surrogate}/gu, (half) => `\\u${half.charCodeAt(0).toString(16)}`);
}

function payloadOf(
  { others, deltas, timestamps }: Model,
  text: string,
  time: bigint | undefined,
  { spaces, places, deltaKey }: Spelling,
): string {
  const [a, b, c, d] = spaces;
  const members = [
    ...others,
    ...(deltas === undefined ? [] : [`${deltaKey}${a}:${b}"${text}"`]),
    ...(timestamps === undefined ? [] : [`"timestamp"${b}:${c}${time}`]),
  ];
  const ordered = members
    .map((member, at) => ({ member, place: places[at] ?? 0 }))
    .toSorted((x, y) => x.place - y.place);
  return `{${c}${ordered.map(({ member }) => member).join(`${d},${a}`)}${b}}`;
}

function indexOf({ count, deltas, timestamps }: Model): FragmentIndex {
  return {
    lengths: Array.from({ length: count }, (_, at) => (deltas ? (deltas[at] ?? "").length + 1 : 0)),
    timestampDeltasMs: (timestamps ?? [])
      .slice(1)
      .map((time, at) => time - (timestamps?.[at] ?? 0n)),
  };
}

function rowOf(
  fragments: FragmentIndex | Uint8Array | undefined,
  fields: { readonly payload: string; readonly eventCount: number; readonly eventType?: string },
): ExpandableRow {
  const { eventType = TYPE, ...rest } = fields;
  return { seq: FIRST_SEQ, eventType, createdAtMicros: CREATED_AT, fragments, ...rest };
}

const YEAR_1 = -62_135_596_800_000_000n;
const YEAR_9999_END = 253_402_300_799_999_999n;

function within(micros: bigint): bigint {
  if (micros < YEAR_1) return YEAR_1;
  return micros > YEAR_9999_END ? YEAR_9999_END : micros;
}

function expectedOf(given: Model, spelled: Spelling, textOf: (at: number) => string): RawEvent[] {
  return Array.from({ length: given.count }, (_, at) => {
    const time = given.timestamps?.[at] ?? 0n;
    return {
      seq: FIRST_SEQ + BigInt(at),
      eventType: TYPE,
      payload: payloadOf(given, textOf(at), given.timestamps?.[at], spelled),
      createdAtMicros: within(CREATED_AT + (time - (given.timestamps?.[0] ?? 0n)) * 1_000n),
    };
  });
}

function fitsContract({ timestampDeltasMs }: FragmentIndex): boolean {
  return timestampDeltasMs.every((ms) => BigInt.asIntN(64, ms) === ms);
}

describe("a row of any fragments", () => {
  test("returns the exact payloads if the text is spelled as JSON.stringify spells it", () => {
    fc.assert(
      fc.property(model, spelling, (given, spelled) => {
        const index = indexOf(given);
        fc.pre(fitsContract(index));
        const joined = CANONICAL((given.deltas ?? []).join(""));
        const payload = payloadOf(given, joined, given.timestamps?.[0], spelled);
        const merged = { eventType: TYPE, payload, eventCount: given.count };
        expect(checkFragments(merged, index)).toEqual([]);
        const expected = expectedOf(given, spelled, (at) => CANONICAL(given.deltas?.[at] ?? ""));
        expect([...expand(rowOf(index, merged))]).toEqual(expected);
      }),
      properties({ runs: 2_000 }),
    );
  });

  test("returns equal payloads, with each unit in the spelling of the row", () => {
    fc.assert(
      fc.property(model, spelling, (given, spelled) => {
        const index = indexOf(given);
        fc.pre(fitsContract(index));
        const deltas = given.deltas ?? [];
        const joined = spelledText(deltas.join(""), spelled.unitSpelling);
        const payload = payloadOf(given, joined, given.timestamps?.[0], spelled);
        const events = [...expand(rowOf(index, { payload, eventCount: given.count }))];
        const unitsBefore = (at: number) => deltas.slice(0, at).join("").length;
        const expected = expectedOf(given, spelled, (at) =>
          spelledText(deltas[at] ?? "", (one, unitAt) =>
            spelled.unitSpelling(one, unitAt + unitsBefore(at)),
          ),
        );
        expect(events).toEqual(expected);
        const read = events.map((event) => JSON.parse(event.payload).delta);
        expect(read).toEqual(Array.from({ length: given.count }, (_, at) => deltas[at]));
        expect(events.every((event) => event.payload.isWellFormed())).toBe(true);
      }),
      properties({ runs: 2_000 }),
    );
  });

  test("expands the same from its stored index, and after every cursor to the rest", () => {
    fc.assert(
      fc.property(model, spelling, (given, spelled) => {
        const index = indexOf(given);
        fc.pre(fitsContract(index));
        const joined = spelledText((given.deltas ?? []).join(""), spelled.unitSpelling);
        const payload = payloadOf(given, joined, given.timestamps?.[0], spelled);
        const fields = { payload, eventCount: given.count };
        const all = [...expand(rowOf(index, fields))];
        const stored = toBinary(
          FragmentsSchema,
          create(FragmentsSchema, {
            lengths: [...index.lengths],
            timestampDeltasMs: [...index.timestampDeltasMs],
          }),
        );
        expect([...expand(rowOf(stored, fields))]).toEqual(all);
        for (let after = FIRST_SEQ - 2n; after <= FIRST_SEQ + BigInt(given.count); after += 1n) {
          const rest = [...expand(rowOf(stored, fields), after)];
          expect(rest).toEqual(all.filter(({ seq }) => seq > after));
        }
      }),
      properties({ runs: 500 }),
    );
  });
});

describe("a row without an index", () => {
  test.each([1, 2, 1_000_000])("with %i events comes whole, under its own number", (eventCount) => {
    const payload = '{"delta":"abc","timestamp":1}';
    const row = rowOf(undefined, { payload, eventCount });
    const whole = { seq: FIRST_SEQ, eventType: TYPE, payload, createdAtMicros: CREATED_AT };
    expect([...expand(row)]).toEqual([whole]);
    expect([...expand(row, FIRST_SEQ - 1n)]).toEqual([whole]);
    expect([...expand(row, FIRST_SEQ)]).toEqual([]);
    expect([...expand(row, FIRST_SEQ + 1n)]).toEqual([]);
  });
});

test("and with a single event comes as it is stored, in any spelling", () => {
  const payload = '{"delta":"\\u0061\\/","timestamp":1}';
  const row = rowOf({ lengths: [3], timestampDeltasMs: [] }, { payload, eventCount: 1 });
  expect([...expand(row)].map((event) => event.payload)).toEqual([payload]);
});

test("payloads without recorded timestamps all have the timestamp of the row", () => {
  const fields = { payload: '{"delta":"ab","timestamp":7}', eventCount: 2 };
  const events = [...expand(rowOf({ lengths: [2, 2], timestampDeltasMs: [] }, fields))];
  expect(events.map(({ payload, createdAtMicros }) => ({ payload, createdAtMicros }))).toEqual([
    { payload: '{"delta":"a","timestamp":7}', createdAtMicros: CREATED_AT },
    { payload: '{"delta":"b","timestamp":7}', createdAtMicros: CREATED_AT },
  ]);
});

test("a row of a million events is walked and left without being held in memory", () => {
  const count = 1_000_000;
  const stored = toBinary(
    FragmentsSchema,
    create(FragmentsSchema, { lengths: Array<number>(count).fill(2) }),
  );
  const row = rowOf(stored, { payload: `{"delta":"${"x".repeat(count)}"}`, eventCount: count });
  const [next] = expand(row, FIRST_SEQ + BigInt(count) - 2n);
  expect(next).toMatchObject({ seq: FIRST_SEQ + BigInt(count) - 1n, payload: '{"delta":"x"}' });
  for (const event of expand(row)) {
    expect(event.payload).toBe('{"delta":"x"}');
    break;
  }
});
