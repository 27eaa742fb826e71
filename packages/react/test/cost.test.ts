/** What runs cost by the prices of their models. */
import { expect, test } from "vitest";
import { costOf, tokensOf } from "../src/model/cost.ts";
import { money } from "../src/ui/format.ts";

const usageOf = (model: string, input: number, output: number, cost?: number) => ({
  model,
  input,
  output,
  cost,
  cachedInput: undefined,
  cacheWriteInput: undefined,
  reasoning: undefined,
  total: undefined,
});
const PRICES = { small: { input: 0.5, output: 2 } };

test("a run costs what its models cost, and nothing is claimed for a model without a price", () => {
  const small = usageOf("small", 1_000_000, 500_000);
  expect(costOf([small], PRICES)).toBe(1.5);
  expect(costOf([small, small], PRICES)).toBe(3);
  expect(tokensOf([small, small])).toBe(3_000_000);
  expect(costOf([small, usageOf("large", 1, 1)], PRICES)).toBeUndefined();
  expect(costOf([usageOf("toString", 1, 1)], PRICES)).toBeUndefined();
  expect(costOf([usageOf("large", 1, 1, 0.25)], PRICES)).toBe(0.25);
  expect(costOf([], PRICES)).toBeUndefined();
});

test("money has cents, or two digits that count", () => {
  expect([12.345, 0.1, 0.0123, 0.000_45, 0.000_000_9].map(money)).toEqual([
    "$12.35",
    "$0.10",
    "$0.012",
    "$0.00045",
    "$0.000001",
  ]);
});
