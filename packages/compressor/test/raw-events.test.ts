/** Rows of fragments that carry a `rawEvent` each: the index in numbers, its borders, and bad ones. */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  checkFragments,
  decodeFragments,
  encodeFragments,
  EXPANDED_BYTES_MAX,
  type FragmentIndex,
} from "@session-ledger/compressor/fragments";
import { expand } from "@session-ledger/compressor/expand";
import type { RawEvents } from "@session-ledger/compressor/raw-events";
import { rewrittenIndex } from "@session-ledger/compressor/rewrite";
import { compressAll, expandAll } from "../../../test/support/merging.ts";
import { properties } from "../../../test/support/random.ts";

const eventType = "TEXT_MESSAGE_CONTENT";

/** An event whose `rawEvent` has this text. */
function event(delta: string, raw: string) {
  const payload = `{"messageId":"m","delta":${JSON.stringify(delta)},"rawEvent":${raw}}`;
  return { eventType, payload, createdAtMicros: 0n };
}

function rowsOf(events: readonly ReturnType<typeof event>[]) {
  const rows = compressAll(events);
  expect(expandAll(rows).map(({ payload }) => payload)).toEqual(
    events.map(({ payload }) => payload),
  );
  const found = rows.map((row) => row.fragments && checkFragments(row, row.fragments));
  expect(found.flat().filter((violation) => violation !== undefined)).toEqual([]);
  return rows;
}

function indexOf(events: readonly ReturnType<typeof event>[]): FragmentIndex | undefined {
  const rows = rowsOf(events);
  expect(rows).toHaveLength(1);
  return rows[0]?.fragments;
}

const SAME = 0;
const DELTA = 1;
const LITERAL = 2;
const step = (kind: number, count: number): number => 4 * count + kind;

describe("the index", () => {
  test("of the example in the code has these numbers", () => {
    const events = ["Hel", "lo, ", "you"].map((text, at) =>
      event(text, `{"author":"a","text":"${text}","at":${at === 2 ? 8 : 7}}`),
    );
    const index = indexOf(events);
    expect(index).toEqual({
      lengths: [],
      timestampDeltasMs: [],
      rawEvents: {
        lengths: [4, 5, 4],
        steps: [1, step(DELTA, 2), 0, step(SAME, 1), step(LITERAL, 1), 0, 0],
        texts: "8",
      },
    });
    const bytes = Buffer.from(encodeFragments(index ?? never())).toString("hex");
    expect(bytes).toBe("1a110a030405041207010900040600001a0138");
  });

  test("has no place for what never differs, keys, and nothing for each further event", () => {
    const raws = Array.from({ length: 1_000 }, (_, at) =>
      event(`${at} `, `{"id":[true,-1.0e5,null,"x\\"y"],"a b" : {"text":"${at} "}}`),
    );
    expect(indexOf(raws)?.rawEvents).toMatchObject({ steps: [4, step(DELTA, 999)], texts: "" });
  });

  test("keeps of a value what differs from the one before, and no half of a pair", () => {
    const times = ["09:59:59.123", "10:00:00.123", "10:00:00.124"];
    const faces = ["a😀b", "a😁b", "a😁"];
    const index = indexOf(times.map((time, at) => event("x", `["${time}","${faces[at]}"]`)));
    expect(index?.rawEvents).toEqual({
      lengths: [2, 2, 2],
      steps: [
        [0, step(LITERAL, 8), 1, 5, step(LITERAL, 1), 12, 1],
        [0, step(LITERAL, 2), 2, 2, step(LITERAL, 0), 4, 1],
      ].flat(),
      texts: "10:00:004😁",
    });
  });

  test("is the usual one where no rawEvent differs", () => {
    const index = indexOf([event("a", '{"x":1}'), event("b", '{"x":1}')]);
    expect(index).toEqual({ lengths: [2, 2], timestampDeltasMs: [] });
  });
});

test.each([
  ["another key", '{"a":1}', '{"b":1}'],
  ["another order", '{"a":1,"b":1}', '{"b":1,"a":1}'],
  ["another white space", '{"a":1}', '{"a": 1}'],
  ["an object in place of a value", '{"a":null}', '{"a":{}}'],
  ["a longer list", "[1]", "[1,2]"],
  ["a separate string", '"a"', '"b"'],
  ["more places than a row has", list(33, 0), list(33, 1)],
  ["a payload that is too large to compare", list(1, 0), `["${"a".repeat(65_536)}"]`],
])("%s in a rawEvent begins a row", (_, one, other) => {
  expect(rowsOf([event("a", one), event("b", other)])).toHaveLength(2);
});

test("32 places that differ are merged", () => {
  expect(rowsOf([event("a", list(32, 0)), event("b", list(32, 1))])).toHaveLength(1);
});

function list(count: number, value: number): string {
  return JSON.stringify(Array<number>(count).fill(value));
}

test("a row ends when its index has 64 KiB of steps and literals", () => {
  const events = Array.from({ length: 400 }, (_, at) =>
    event("a", `["${String.fromCodePoint(0x4e00 + at).repeat(1_000)}"]`),
  );
  // 3,000 bytes a literal, and 9 of its step.
  expect(rowsOf(events).map(({ eventCount }) => eventCount)).toEqual([
    ...Array<number>(17).fill(23),
    9,
  ]);
});

test("a row ends before its events are 64 MiB", () => {
  const raw = (at: number) => `["${"é".repeat(60_000)}",${at}]`;
  const events = Array.from({ length: 600 }, (_, at) => event("", raw(at % 10)));
  const counts = rowsOf(events).map(({ eventCount }) => eventCount);
  expect(Math.max(...counts) * 3 * 60_000).toBeLessThan(EXPANDED_BYTES_MAX);
  expect(counts.length).toBe(2);
});

test("a reader that knows no raw events expands nothing, and a service refuses the row by name", () => {
  const row = rowsOf([event("a", "[1]"), event("b", "[2]")])[0] ?? never();
  const { lengths, timestampDeltasMs } = row.fragments ?? never();
  const known = { lengths, timestampDeltasMs };
  expect(() => [...expand({ ...row, seq: 1n, fragments: known })]).toThrow(RangeError);
  expect(checkFragments(row, known).map(({ description }) => description)).toEqual([
    "fragments.lengths must be 2 numbers, as event_count is, but is 0",
  ]);
});

describe("a pushed index", () => {
  const payload = event("ab", '{"k":"v","n":[1,"ab"]}').payload;
  const row = { eventType, payload, eventCount: 2 };
  const raw = (steps: readonly number[], texts = ""): FragmentIndex => ({
    lengths: [],
    timestampDeltasMs: [],
    rawEvents: { lengths: [2, 2], steps, texts },
  });

  test("that fits is accepted", () => {
    const steps = [0, step(LITERAL, 4), 0, 0, 0, step(SAME, 1), 0, step(DELTA, 1)];
    const index = raw(steps, '"\\n"');
    expect(checkFragments(row, index)).toEqual([]);
    const [, second] = expand({ ...row, seq: 1n, createdAtMicros: 0n, fragments: index });
    expect(second?.payload).toBe(event("b", '{"k":"\\n","n":[1,"b"]}').payload);
  });

  test.each<[string, FragmentIndex, string]>([
    ["with both lengths", { ...raw([]), lengths: [2, 2] }, "fragments.lengths must be empty"],
    ["with a wrong length", raw2({ lengths: [2, 3] }), "fragments.raw_events.lengths must be 2"],
    ["without steps for a place", raw([0]), "cut short"],
    ["with too few steps", raw([0, step(SAME, 0)]), "an unknown step"],
    ["with too many steps", raw([0, step(SAME, 2)]), "an unknown step"],
    ["with a kind that nobody knows", raw([0, 7]), "an unknown step"],
    ["with a missing place", raw([3, step(SAME, 1)]), "a missing place"],
    ["with 33 places", raw(Array<number>(66).fill(4)), "a missing place"],
    ["with texts that no step takes", raw([0, step(SAME, 1)], "x"), "texts of another length"],
    ["with too few texts", raw([0, step(LITERAL, 2), 1, 1], "x"), "texts of another length"],
    ["with more than the value before", raw([0, step(LITERAL, 0), 3, 1]), "more of a value"],
    ["with a value that is no JSON", raw([0, step(LITERAL, 0), 1, 0]), "no string, number"],
    ["with an object", raw([0, step(LITERAL, 2), 0, 0], "{}"), "no string, number"],
    ["with two values", raw([0, step(LITERAL, 3), 0, 0], "1,2"), "no string, number"],
    ["with a control character", raw([0, step(LITERAL, 1), 1, 1], "\n"), "no string, number"],
    ["with texts above 256 KiB", raw([], "x".repeat(262_145)), "raw_events.texts must be at most"],
  ])("%s is refused by name", (_, index, expected) => {
    const found = checkFragments(row, index);
    expect(found).toHaveLength(1);
    expect(found[0]?.field).toMatch(/^fragments\./);
    expect(found[0]?.description).toContain(expected);
  });

  function raw2(change: Partial<RawEvents>): FragmentIndex {
    const rawEvents = { lengths: [2, 2], steps: [], texts: "", ...change };
    return { lengths: [], timestampDeltasMs: [], rawEvents };
  }

  test("for more than 64 MiB is refused", () => {
    const eventCount = 10_000;
    const long = `"${"a".repeat(10_000)}"`;
    const steps = [0, step(LITERAL, long.length), 0, 0, step(SAME, eventCount - 2)];
    const lengths = Array<number>(eventCount).fill(1);
    const merged = { eventType, payload: event("", "[1]").payload, eventCount };
    const index = {
      lengths: [],
      timestampDeltasMs: [],
      rawEvents: { lengths, steps, texts: long },
    };
    expect(checkFragments(merged, index)).toEqual([
      { field: "payload", description: "payload must be at most 67108864 bytes when expanded" },
    ]);
  });

  test("of any numbers and texts is refused, or its events are JSON", () => {
    const some = fc.record({
      eventCount: fc.integer({ min: 1, max: 5 }),
      steps: fc.array(fc.oneof(fc.nat(3), fc.nat(24), fc.nat(2 ** 32 - 1)), { maxLength: 12 }),
      texts: fc.oneof(fc.constantFrom("", '"', '""', "12", "x"), fc.string({ maxLength: 3 })),
    });
    fc.assert(
      fc.property(some, ({ eventCount, steps, texts }) => {
        const lengths = Array.from({ length: eventCount }, (_, at) => (at === 0 ? 3 : 1));
        const rawEvents = { lengths, steps, texts };
        const fragments = { lengths: [], timestampDeltasMs: [], rawEvents };
        const stored = decodeFragments(encodeFragments(fragments));
        expect(stored).toEqual(fragments);
        const merged = { eventType, payload, eventCount };
        const isFit = checkFragments(merged, fragments).length === 0;
        fc.pre(isFit);
        const all = [...expand({ ...merged, seq: 1n, createdAtMicros: 0n, fragments })];
        expect(all).toHaveLength(eventCount);
        for (const one of all) expect(JSON.parse(one.payload)).toHaveProperty("rawEvent.n");
      }),
      { ...properties({ runs: 2_000 }), maxSkipsPerRun: 1_000 },
    );
  });
});

describe("an index after a change of its rawEvents", () => {
  const events = ["ab", "c"].map((text) => event(text, `{"key":"sk-${text}","text":"${text}"}`));
  const [row] = compressAll(events);
  const fragments = row?.fragments ?? never();
  const change = (rewrite: (text: string) => string) => {
    const before = { ...(row ?? never()), seq: 1n, fragments };
    const payload = rewrite(before.payload);
    const index = rewrittenIndex(before, payload, rewrite);
    return index && [...expand({ ...before, payload, fragments: index })].map((one) => one.payload);
  };

  test("gives the changed events", () => {
    const hide = (text: string) => text.replaceAll(/sk-\w+/g, (found) => "*".repeat(found.length));
    expect(change(hide)).toEqual(events.map(({ payload }) => hide(payload)));
  });

  test("is none when they no longer have one form", () => {
    expect(change((text) => text.replace('"sk-c"', "[]"))).toBeUndefined();
  });
});

function never(): never {
  throw new Error("there is none");
}
