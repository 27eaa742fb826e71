/**
 * Shares the event loop fairly: the loop runs promises before anything else, and a generator that
 * never waits passes its values on in promises. So a sender of much data asks here between two
 * pieces.
 */
import { setImmediate as turnOfEventLoop } from "node:timers/promises";

/** The longest time that other work waits for one sender. */
const SLICE_MS = 5;

export class TimeSlice {
  readonly #sliceMs: number;
  #endMs: number;

  constructor({ sliceMs = SLICE_MS }: { readonly sliceMs?: number } = {}) {
    this.#sliceMs = sliceMs;
    this.#endMs = performance.now() + sliceMs;
  }

  /** Undefined while the slice has time left; else resolves when the others had their turn. */
  turn(): Promise<void> | undefined {
    if (performance.now() < this.#endMs) return undefined;
    return this.#others();
  }

  async #others(): Promise<void> {
    await turnOfEventLoop();
    this.#endMs = performance.now() + this.#sliceMs;
  }
}
