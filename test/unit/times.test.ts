import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { checkTimestamp, microsOf, timestampOf } from "../../src/contract/times.ts";
import { isoOf } from "../../src/store/columns.ts";
import { properties } from "../support/random.ts";

const RUNS = properties({ runs: 500 });
const MIN_MICROS = -62_135_596_800_000_000n;
const MAX_MICROS = 253_402_300_799_999_999n;

const timestamp = (seconds: bigint, nanos: number) =>
  ({ $typeName: "google.protobuf.Timestamp", seconds, nanos }) as const;

describe("times", () => {
  test.each([
    [0n, 0, 0n],
    [1_700_000_000n, 999_999_999, 1_700_000_000_999_999n],
    [0n, 999, 0n],
    [-1n, 999_999_999, -1n], // The last microsecond before 1970, cut towards the past.
    [-1n, 999, -1_000_000n],
    [253_402_300_799n, 999_999_999, MAX_MICROS],
    [-62_135_596_800n, 0, MIN_MICROS],
  ])("%d s %d ns is %d us", (seconds, nanos, micros) => {
    expect(microsOf(timestamp(seconds, nanos))).toBe(micros);
  });

  test("microseconds stay the same on the way to the wire and back, in the normal form of the wire", () => {
    fc.assert(
      fc.property(fc.bigInt({ min: MIN_MICROS, max: MAX_MICROS }), (micros) => {
        const there = timestampOf(micros);
        expect(microsOf(there)).toBe(micros);
        expect(checkTimestamp("t", there)).toBeUndefined();
      }),
      RUNS,
    );
  });

  test("the text of a time reads back to the same microsecond, in any order of calls", () => {
    const any = fc.array(fc.bigInt({ min: MIN_MICROS, max: MAX_MICROS }));
    fc.assert(
      fc.property(any, (times) => {
        for (const micros of [...times, 0n, MIN_MICROS, MAX_MICROS, -1n, ...times]) {
          const text = isoOf(micros);
          const ms = BigInt(Date.parse(`${text.slice(0, 23)}Z`));
          expect(ms * 1_000n + BigInt(text.slice(23, -1) || "0")).toBe(micros);
        }
      }),
      RUNS,
    );
  });

  test("cutting to microseconds keeps the order of two times", () => {
    const any = fc.tuple(
      fc.bigInt({ min: -2n, max: 2n }),
      fc.integer({ min: 0, max: 999_999_999 }),
    );
    fc.assert(
      fc.property(any, any, ([s1, n1], [s2, n2]) => {
        fc.pre(s1 < s2 || (s1 === s2 && n1 <= n2));
        expect(microsOf(timestamp(s1, n1)) <= microsOf(timestamp(s2, n2))).toBe(true);
      }),
      RUNS,
    );
  });

  test.each([
    [-62_135_596_801n, 0, "completed_at.seconds"],
    [253_402_300_800n, 0, "completed_at.seconds"],
    [0n, -1, "completed_at.nanos"],
    [0n, 1_000_000_000, "completed_at.nanos"],
  ])("%d s %d ns is refused because of %s", (seconds, nanos, field) => {
    expect(checkTimestamp("completed_at", timestamp(seconds, nanos))?.field).toBe(field);
  });
});
