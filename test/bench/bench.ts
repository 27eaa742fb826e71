/** What every benchmark is given, and what it gives back. */
import type { BenchOptions } from "./options.ts";

export interface Bench {
  readonly options: BenchOptions;
  /** Aborted by Ctrl-C and by the time limit of the benchmark. */
  readonly signal: AbortSignal;
  /** Undone in reverse when the benchmark ends, however it ends. */
  readonly undo: AsyncDisposableStack;
  /** For whoever waits; stdout is for the figures. */
  readonly progress: (line: string) => void;
}

/** Goes into the JSON document as it is. */
export type Findings = Readonly<Record<string, unknown>>;
