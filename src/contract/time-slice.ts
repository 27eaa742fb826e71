/**
 * Work that never has to wait: an async generator hands on what it has, and a reader that keeps up takes
 * it, all in promises, which the event loop runs before it looks at anything else. So who sends very much
 * asks here between two pieces, and lets the others have their turn when it has gone on for a while.
 */
import { setImmediate as turnOfEventLoop } from "node:timers/promises";

/** How long the others may have to wait for one who sends. */
const SLICE_MS = 5;

export class TimeSlice {
  readonly #sliceMs: number;
  #endMs: number;

  constructor({ sliceMs = SLICE_MS }: { readonly sliceMs?: number } = {}) {
    this.#sliceMs = sliceMs;
    this.#endMs = performance.now() + sliceMs;
  }

  /** Undefined while there is time left; else resolves when the others had their turn. */
  turn(): Promise<void> | undefined {
    if (performance.now() < this.#endMs) return undefined;
    return this.#others();
  }

  async #others(): Promise<void> {
    await turnOfEventLoop();
    this.#endMs = performance.now() + this.#sliceMs;
  }
}
