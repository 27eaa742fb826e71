/** How properties run: SEED repeats a failure that was printed, PROPERTY_RUNS looks longer. */
export function properties({ runs }: { readonly runs: number }): {
  readonly numRuns: number;
  readonly seed?: number;
} {
  const { SEED: seed, PROPERTY_RUNS: longer } = process.env;
  return { numRuns: Number(longer ?? runs), ...(seed === undefined ? {} : { seed: Number(seed) }) };
}
