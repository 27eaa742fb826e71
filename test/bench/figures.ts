/** From measurements to figures; pure. */

export interface Latency {
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
}

export function latencyOf(tookMs: Iterable<number>): Latency {
  const ascending = Float64Array.from(tookMs).toSorted();
  return {
    p50Ms: rounded(percentile(ascending, 0.5)),
    p99Ms: rounded(percentile(ascending, 0.99)),
    maxMs: rounded(percentile(ascending, 1)),
  };
}

/** The nearest rank: always a measured value. NaN, in JSON null, without values. */
function percentile(ascending: ArrayLike<number>, fraction: number): number {
  const rank = Math.ceil(fraction * ascending.length);
  return ascending[Math.max(1, rank) - 1] ?? Number.NaN;
}

export function median(values: readonly number[]): number {
  const ascending = values.toSorted((a, b) => a - b);
  const middle = Math.floor(ascending.length / 2);
  const upper = ascending[middle] ?? Number.NaN;
  return ascending.length % 2 === 1 ? upper : ((ascending[middle - 1] ?? Number.NaN) + upper) / 2;
}

export interface Ratio {
  readonly median: number;
  readonly rounds: readonly number[];
}

/** Round by round, because a disturbance of the machine affects both of a round. */
export function ratioOf(over: readonly number[], under: readonly number[]): Ratio {
  const rounds = over.map((value, round) => value / (under[round] ?? Number.NaN));
  return { median: rounded(median(rounds)), rounds: rounds.map((value) => rounded(value)) };
}

/** Of each field, over the rounds. */
export function medians<T extends { readonly [K in keyof T]: number }>(
  rounds: readonly T[],
): Readonly<Record<string, number>> {
  const values = new Map<string, number[]>();
  for (const round of rounds) {
    for (const [field, value] of Object.entries<number>(round)) {
      values.set(field, [...(values.get(field) ?? []), value]);
    }
  }
  return Object.fromEntries(Array.from(values, ([field, all]) => [field, rounded(median(all))]));
}

/** Three digits after the point are more than any of these figures has. */
export function rounded(value: number): number {
  return Math.round(value * 1_000) / 1_000;
}
