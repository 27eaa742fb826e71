/** What runs cost, by the prices of their models. */
import { type ModelUsage, sumOf } from "@session-ledger/agui/run-end";

/** Of a million tokens, in USD. */
export interface ModelPrice {
  readonly input: number;
  readonly output: number;
}

export function tokensOf(usage: readonly ModelUsage[]): number {
  return (sumOf(usage, "input") ?? 0) + (sumOf(usage, "output") ?? 0);
}

/** In USD. An agent may report the cost itself; undefined: a model has no price. */
export function costOf(
  usage: readonly ModelUsage[],
  prices: Readonly<Record<string, ModelPrice>>,
): number | undefined {
  if (usage.length === 0) return undefined;
  const costs = usage.map(({ model = "", input = 0, output = 0, cost }) => {
    const price = Object.hasOwn(prices, model) ? prices[model] : undefined;
    return cost ?? (price && (input * price.input + output * price.output) / 1e6);
  });
  return costs.reduce(
    (sum, cost) => (sum === undefined || cost === undefined ? undefined : sum + cost),
    0,
  );
}
