import { expect, test } from "vitest";
import { BoundedMap } from "../../src/base/bounded-map.ts";

test("a bounded map drops the entry whose last set or use is the oldest", () => {
  const map = new BoundedMap<string, number>(2);
  map.set("a", 1).set("b", 2).set("a", 3).set("c", 4);
  expect([...map]).toEqual([
    ["a", 3],
    ["c", 4],
  ]);
  expect(map.use("a")).toBe(3);
  expect(map.use("b")).toBeUndefined();
  map.set("d", 5);
  expect([...map.keys()]).toEqual(["a", "d"]);
});
