/** Estimated sizes of values in memory, compared with measured ones. */
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { expect, test } from "vitest";
import type { Weights } from "../../../test/support/weighing-worker.ts";

const script = new URL("../../../test/support/weighing-worker.ts", import.meta.url);
const [weights] = await once(new Worker(script), "message");
const { items, pieces, openings }: Weights = weights;

test.each(Object.entries(items))(
  "the estimate for an item of a long list is close to its size: %s",
  (_, { estimated, taken }) => {
    expect(estimated / taken).toBeGreaterThan(0.55);
    expect(estimated / taken).toBeLessThan(4);
  },
);

test("the estimate for a transcript of many small pieces is close to their size", () => {
  expect(pieces.estimated / pieces.taken).toBeGreaterThan(0.8);
  expect(pieces.afterRead).toBeLessThan(600_000);
});

test.each(Object.entries(openings))(
  "open constructs and owners do not grow with long texts: %s",
  (_, { estimated, taken }) => {
    expect(taken).toBeLessThan(10_000_000);
    expect(estimated).toBeLessThan(10_000_000);
    expect(estimated).toBeGreaterThan(taken * 0.8 - 200_000);
  },
);
