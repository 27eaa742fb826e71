import * as fc from "fast-check";
import { expect, test } from "vitest";
import { isoOf } from "../../src/store/columns.ts";

const MIN = -62_135_596_800_000_000n;
const MAX = 253_402_300_799_999_999n;

test("the text of a time reads back to the same microsecond, in any order of calls", () => {
  const seed = process.env["SEED"];
  fc.assert(
    fc.property(fc.array(fc.bigInt({ min: MIN, max: MAX })), (times) => {
      for (const micros of [...times, 0n, MIN, MAX, -1n, ...times]) {
        const text = isoOf(micros);
        const ms = BigInt(Date.parse(`${text.slice(0, 23)}Z`));
        expect(ms * 1_000n + BigInt(text.slice(23, -1) || "0")).toBe(micros);
      }
    }),
    seed === undefined ? {} : { seed: Number(seed) },
  );
});
