import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { RenewedMap } from "../../src/base/renewed-map.ts";

setFlagsFromString("--expose-gc");
const gc: NodeJS.GCFunction = runInNewContext("gc");

test("is a Map, also when its entries move", () => {
  const step = fc.oneof(
    fc.record({ kind: fc.constant("set" as const), from: fc.nat(50), count: fc.nat(1_500) }),
    fc.record({ kind: fc.constant("delete" as const), from: fc.nat(50), count: fc.nat(1_500) }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 20 }), (steps) => {
      const [map, model] = [new RenewedMap<number, string>(), new Map<number, string>()];
      for (const { kind, from, count } of steps) {
        for (let key = from; key < from + count; key += 1) {
          const change = (one: RenewedMap<number, string> | Map<number, string>): unknown =>
            kind === "set" ? one.set(key, `${from}`) === one : one.delete(key);
          expect(change(map)).toBe(change(model));
        }
      }
      expect(map.size).toBe(model.size);
      expect([...map.keys()]).toEqual([...model.keys()]);
      expect([...map.values()]).toEqual([...model.values()]);
      const seen: [number, string][] = [];
      map.forEach((value, key) => seen.push([key, value]));
      expect(seen).toEqual([...model]);
      for (const key of [0, 49, 60, 2_000]) {
        expect(map.get(key)).toBe(model.get(key));
        expect(map.has(key)).toBe(model.has(key));
      }
    }),
  );
});

test("does not keep entries that have gone, as a Map does after a full collection", () => {
  const OPEN = 64;
  const VALUE_BYTES = 1_024;
  const map = new RenewedMap<number, number[]>();
  let next = 0;
  const pass = (count: number): void => {
    for (const last = next + count; next < last; next += 1) {
      map.set(
        next,
        Array.from({ length: VALUE_BYTES / 8 }, () => 0.5),
      );
      map.delete(next - OPEN);
    }
  };
  pass(OPEN);
  gc();
  const before = process.memoryUsage().heapUsed;
  for (let round = 0; round < 20; round += 1) {
    pass(2_000);
    gc({ type: "minor" });
  }
  const grown = process.memoryUsage().heapUsed - before;
  // 40 MB have passed. A Map grew by 16 MB.
  expect(grown).toBeLessThan(6_000_000);
});
