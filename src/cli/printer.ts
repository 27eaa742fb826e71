import { once } from "node:events";
import type { Output } from "./io.ts";

/**
 * Prints lines no faster than they are read. A reader that is gone (`| head`) is the end of the work
 * and no failure; a disk that is full is one.
 */
export class Printer {
  readonly #output: Output;
  readonly #signal: AbortSignal;
  #failure: Error | undefined;

  constructor(output: Output, signal: AbortSignal) {
    this.#output = output;
    this.#signal = signal;
    // Without a listener the failure of a write would end the process.
    output.on("error", (error) => {
      this.#failure ??= error;
    });
  }

  /** False when nobody reads any more. */
  async print(line: string): Promise<boolean> {
    if (this.#failure === undefined && !this.#output.write(`${line}\n`)) await this.#drained();
    if (this.#failure === undefined || isBrokenPipe(this.#failure))
      return this.#failure === undefined;
    throw this.#failure;
  }

  async #drained(): Promise<void> {
    try {
      await once(this.#output, "drain", { signal: this.#signal });
    } catch (error) {
      // Either the write failed, which is known by now, or the user does not want to wait.
      if (!this.#signal.aborted && this.#failure === undefined) throw error;
    }
  }
}

function isBrokenPipe(error: Error): boolean {
  return "code" in error && error.code === "EPIPE";
}
