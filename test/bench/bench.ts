/** The input and the result of every benchmark. */
import type { BenchOptions } from "./options.ts";

export interface Bench {
  readonly options: BenchOptions;
  /** Aborted by Ctrl-C and by the time limit of the benchmark. */
  readonly signal: AbortSignal;
  /** Runs in reverse order when the benchmark ends, in any way. */
  readonly undo: AsyncDisposableStack;
  /** For people who wait; stdout is for the figures. */
  readonly progress: (line: string) => void;
}

/** Goes unchanged into the JSON document. */
export type Findings = Readonly<Record<string, unknown>>;
