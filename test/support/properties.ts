import { seedOfRun } from "./random.ts";

/**
 * The settings of properties. `.ci/run` draws all runs (PROPERTY_SHARE=1); without it a quarter of them,
 * the same ones each time. SEED repeats a printed failure, PROPERTY_RUNS sets another number of runs.
 */
const SHARE = Number(process.env["PROPERTY_SHARE"] ?? "0.25");

export function properties({ runs }: { readonly runs: number }): {
  readonly numRuns: number;
  readonly seed: number;
} {
  const { PROPERTY_RUNS: given } = process.env;
  return { numRuns: Number(given ?? Math.ceil(runs * SHARE)), seed: seedOfRun() };
}
