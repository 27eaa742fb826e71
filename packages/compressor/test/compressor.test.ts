/**
 * The form of a row, and the limits that close a group although the next event could join it, each at its
 * border. `countsOf` checks that the rows give their events back. Which events merge is in
 * packages/compressor/test/compressor.property.test.ts.
 */
import { describe, expect, test } from "vitest";
import { EVENT_COUNT_MAX } from "@session-ledger/agui/catalogue";
import { Compressor, COMPRESSOR_LIMITS } from "@session-ledger/compressor/compressor";
import { checkFragments, EXPANDED_BYTES_MAX } from "@session-ledger/compressor/fragments";
import { compressAll, countsOf, eventOf, said } from "../../../test/support/merging.ts";

describe("a row", () => {
  test("has the first event with the deltas of all, and the index that splits them again", () => {
    const first = eventOf(said("m", "Hello", { timestamp: 17 }), 5n);
    const last = eventOf(said("m", ", 😀", { timestamp: 20 }), 9n);
    expect(compressAll([first, last])).toEqual([
      {
        eventType: "TEXT_MESSAGE_CONTENT",
        payload: JSON.stringify(said("m", "Hello, 😀", { timestamp: 17 })),
        eventCount: 2,
        createdAtMicros: 5n,
        completedAtMicros: 9n,
        fragments: { lengths: [6, 5], timestampDeltasMs: [3n] },
        first,
        last,
      },
    ]);
  });

  test("of a single event is that event, with its creation as its completion", () => {
    const alone = eventOf(said("m", "Hello"));
    expect(compressAll([alone])).toEqual([
      {
        ...alone,
        eventCount: 1,
        completedAtMicros: undefined,
        fragments: undefined,
        first: alone,
        last: alone,
      },
    ]);
  });

  test("completes at the latest of its times, also when a clock steps back", () => {
    const times = [7n, 9n, 3n].map((micros) => eventOf(said("m", "a"), micros));
    expect(compressAll(times)).toMatchObject([{ createdAtMicros: 7n, completedAtMicros: 9n }]);
    const back = [7n, 3n].map((micros) => eventOf(said("m", "a"), micros));
    expect(compressAll(back)).toMatchObject([{ createdAtMicros: 7n, completedAtMicros: 7n }]);
  });
});

test("a text that is nested without end is stored unchanged in its own row", () => {
  const payload = "[".repeat(1_000_000);
  const broken = { eventType: "TEXT_MESSAGE_CONTENT", payload, createdAtMicros: 0n };
  const whole = eventOf(said("m", "a"));
  const rows = compressAll([whole, broken, whole]);
  expect(rows.map((row) => row.payload)).toEqual([whole.payload, payload, whole.payload]);
});

describe("the limit of text", () => {
  const { textBytesMax } = COMPRESSOR_LIMITS;

  test("is exactly 10 KiB", () => {
    expect(textBytesMax).toBe(10_240);
    const long = said("m", "x".repeat(textBytesMax - 1));
    expect(countsOf([long, said("m", "y")])).toEqual([2]);
    expect(countsOf([long, said("m", "y"), said("m", "")])).toEqual([3]);
    // A fragment that would pass the limit starts the next group.
    expect(countsOf([long, said("m", "yy"), said("m", "y")])).toEqual([1, 2]);
    expect(countsOf([long, said("m", "y"), said("m", "y"), said("m", "y")])).toEqual([2, 2]);
  });

  test("stores a larger fragment as a row without others", () => {
    const order = [said("m", "a"), said("m", "x".repeat(textBytesMax + 1)), said("m", "b")];
    expect(countsOf(order)).toEqual([1, 1, 1]);
    expect(countsOf([said("m", "x".repeat(textBytesMax)), said("m", "")])).toEqual([2]);
    // The row is complete at once, as no later event could join it.
    const compressor = new Compressor({ textBytesMax: 1 });
    expect(compressor.push(eventOf(said("m", "xx")), 0)).toHaveLength(1);
    expect(compressor.dueAtMs).toBeUndefined();
  });

  test("counts the UTF-8 bytes of the decoded text, in any spelling", () => {
    const spelled = (delta: string): string => `{"type":"TOOL_CALL_ARGS","delta":"${delta}"}`;
    const limits = { textBytesMax: 12 };
    const two = (first: string, second: string) =>
      countsOf([first, second].map(spelled), limits).length;
    expect(two("12345678901", "2")).toBe(1);
    expect(two("12345678901", "é")).toBe(2);
    expect(two("1234567890", "é")).toBe(1);
    expect(two("1234567890", "€")).toBe(2);
    expect(two("123456789", "€")).toBe(1);
    expect(two("123456789", "😀")).toBe(2);
    expect(two("12345678", "😀")).toBe(1);
    const unicode = (text: string): string =>
      Array.from(text, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");
    expect(two(unicode("12345678901"), "\\n")).toBe(1);
    expect(two(unicode("12345678901"), unicode("é"))).toBe(2);
    expect(two(unicode("1234567890"), unicode("é"))).toBe(1);
    expect(two(unicode("123456789"), unicode("€"))).toBe(1);
    expect(two(unicode("1234567890"), unicode("€"))).toBe(2);
    // A surrogate pair is four bytes; each half alone counts as three.
    expect(two("12345678\\ud83d", "\\ude00")).toBe(1);
    expect(two("123456789\\ud83d", "\\ude00")).toBe(2);
    expect(two("12345678\\ud83d\\ude00", "1")).toBe(2);
    expect(two("123456789\\ud83d", "1")).toBe(2);
    expect(two("1234567\\ud83d", "\\ud83d")).toBe(2);
    expect(two("123456\\ud83d", "\\ud83d")).toBe(1);
    expect(two("1234567\\ud83d", "\\ude001")).toBe(1);
    expect(two("12345\\ud83d", "1\\ude00")).toBe(1);
    expect(two("123456\\ud83d", "1\\ude00")).toBe(2);
    expect(countsOf(["12345678\\ud83d", "", "\\ude00"].map(spelled), limits)).toEqual([3]);
  });
});

describe("the age of a group", () => {
  const fragment = eventOf(said("m", "a"));

  test("ends the group exactly at the limit, counted from its first fragment", () => {
    const compressor = new Compressor({ maxAgeMs: 250 });
    expect(compressor.dueAtMs).toBeUndefined();
    expect(compressor.push(fragment, 1_000)).toEqual([]);
    expect(compressor.dueAtMs).toBe(1_250);
    expect(compressor.push(fragment, 1_249.999)).toEqual([]);
    expect(compressor.dueAtMs).toBe(1_250);
    expect(compressor.push(fragment, 1_250)).toMatchObject([{ eventCount: 2 }]);
    expect(compressor.dueAtMs).toBe(1_500);
    expect(compressor.flush()).toMatchObject({ eventCount: 1 });
    expect(compressor.dueAtMs).toBeUndefined();
    expect(compressor.flush()).toBeUndefined();
  });

  test("ends the group before an event with its own row, which follows it", () => {
    const compressor = new Compressor({ maxAgeMs: 250 });
    compressor.push(fragment, 0);
    const rows = compressor.push(eventOf({ type: "TEXT_MESSAGE_END", messageId: "m" }), 250);
    expect(rows.map(({ eventType }) => eventType)).toEqual([
      "TEXT_MESSAGE_CONTENT",
      "TEXT_MESSAGE_END",
    ]);
    expect(compressor.dueAtMs).toBeUndefined();
  });

  test("may be zero or infinite", () => {
    expect(countsOf([said("m", "a"), said("m", "b")], { maxAgeMs: 0 })).toEqual([1, 1]);
    const patient = new Compressor({ maxAgeMs: Number.POSITIVE_INFINITY });
    patient.push(fragment, 0);
    expect(patient.push(fragment, Number.MAX_SAFE_INTEGER)).toEqual([]);
  });
});

describe("a group also ends", () => {
  test("at the maximum number of events", () => {
    const compressor = new Compressor({ eventsMax: 3 });
    const fragment = eventOf(said("m", "a"));
    const counts = Array.from({ length: 7 }, () =>
      compressor.push(fragment, 0).map(({ eventCount }) => eventCount),
    );
    expect(counts).toEqual([[], [], [3], [], [], [3], []]);
    expect(countsOf([said("m", "a"), said("m", "b")], { eventsMax: 1 })).toEqual([1, 1]);
  });

  test("at the number of events that the service accepts", () => {
    expect(COMPRESSOR_LIMITS.eventsMax).toBeLessThanOrEqual(EVENT_COUNT_MAX);
    const compressor = new Compressor({ eventsMax: EVENT_COUNT_MAX });
    const empty = { eventType: "TEXT_MESSAGE_CHUNK", payload: "{}", createdAtMicros: 0n };
    const counts: number[] = [];
    for (let count = 0; count <= EVENT_COUNT_MAX; count += 1)
      for (const row of compressor.push(empty, 0)) counts.push(row.eventCount);
    expect(counts).toEqual([EVENT_COUNT_MAX]);
  });

  test("at the maximum bytes of its payload, in the given spelling", () => {
    const spelled = (delta: string): string =>
      `{"type":"TOOL_CALL_ARGS","x":"é","delta":"${delta}"}`;
    const payloadBytesMax = Buffer.byteLength(spelled("")) + 8;
    const two = (first: string, second: string) =>
      countsOf([first, second].map(spelled), { payloadBytesMax }).length;
    expect(two("1234567", "8")).toBe(1);
    expect(two("1234567", "89")).toBe(2);
    expect(two("123456", "\\n")).toBe(1);
    expect(two("1234567", "\\n")).toBe(2);
    expect(two("12", "\\u0061")).toBe(1);
    expect(two("123", "\\u0061")).toBe(2);
    expect(two("1234", "😀")).toBe(1);
    expect(two("12345", "😀")).toBe(2);
    expect(countsOf(["123456789", "", ""].map(spelled), { payloadBytesMax })).toEqual([1, 2]);
    const noText = [{ type: "TEXT_MESSAGE_CHUNK" }, { type: "TEXT_MESSAGE_CHUNK" }];
    expect(countsOf(noText, { payloadBytesMax: 29 })).toEqual([2]);
    expect(countsOf(noText, { payloadBytesMax: 28 })).toEqual([1, 1]);
  });

  test("at the maximum bytes of its expanded events", () => {
    const KIB = 1_024;
    const frameBytes = Buffer.byteLength(JSON.stringify(said("m", "", { rawEvent: "€" })));
    /** `count` events of one payload, which has `bytes` bytes beside its text. */
    const many = (count: number, bytes: number) => {
      const rawEvent = `€${"x".repeat(bytes - frameBytes)}`;
      const event = eventOf(said("m", "a\n", { rawEvent }));
      const limits = { eventsMax: EVENT_COUNT_MAX, textBytesMax: Number.POSITIVE_INFINITY };
      const rows = compressAll(Array<typeof event>(count).fill(event), limits);
      const violations = rows.flatMap((row) => row.fragments && checkFragments(row, row.fragments));
      return { counts: rows.map(({ eventCount }) => eventCount), violations };
    };
    expect(EXPANDED_BYTES_MAX).toBe(65_536 * KIB);
    expect(many(65_537, KIB)).toEqual({ counts: [65_536, 1], violations: [undefined] });
    expect(many(65_536, KIB + 1)).toEqual({ counts: [65_472, 64], violations: [] });
  });

  test("before a second payload that would expand beyond the maximum", () => {
    const event = eventOf(said("m", "a", { rawEvent: "x".repeat(EXPANDED_BYTES_MAX / 2) }));
    const rows = compressAll([event, event], { payloadBytesMax: EXPANDED_BYTES_MAX });
    expect(rows.map(({ eventCount }) => eventCount)).toEqual([1, 1]);
  });
});

test.each([
  { textBytesMax: -1 },
  { textBytesMax: Number.NaN },
  { maxAgeMs: -1 },
  { maxAgeMs: Number.NaN },
  { payloadBytesMax: -1 },
  { eventsMax: 0 },
  { eventsMax: EVENT_COUNT_MAX + 1 },
  { eventsMax: Number.NaN },
])("%o is refused as a limit", (limits) => {
  expect(() => new Compressor(limits)).toThrow(RangeError);
});
