import { seedOfRun } from "./random.ts";

/** How properties run: SEED repeats a failure that was printed, PROPERTY_RUNS looks longer. */
export function properties({ runs }: { readonly runs: number }): {
  readonly numRuns: number;
  readonly seed: number;
} {
  return { numRuns: Number(process.env["PROPERTY_RUNS"] ?? runs), seed: seedOfRun() };
}
