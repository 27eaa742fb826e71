import { expect, test } from "vitest";
import { reorders } from "../../src/handlers/agui-kept.ts";

function kept(...ids: readonly string[]): readonly unknown[] {
  return ids.map((id) => ({ id, role: "assistant", content: "" }));
}

test.each([
  ["nothing", [], ["a", "b"], false],
  ["the beginning", ["a", "b"], ["a", "b", "c"], false],
  ["all", ["a", "b"], ["a", "b"], false],
  ["what is gone", ["x", "y"], ["a", "b"], false],
  ["the beginning, and between it what is gone", ["a", "x", "b"], ["a", "b", "c"], false],
  ["another order", ["b", "a"], ["a", "b"], true],
  ["what others came in front of", ["b"], ["a", "b"], true],
  ["what others came between", ["a", "c"], ["a", "b", "c"], true],
])("a client that has %s", (_, has, log, expected) => {
  expect(reorders(kept(...has), log)).toBe(expected);
});

test("what a client sends that is no message counts for nothing", () => {
  expect(reorders([null, 1, "a", {}, ...kept("a")], ["a", "b"])).toBe(false);
});
