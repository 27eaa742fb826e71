import { once } from "node:events";
import type { Output } from "./io.ts";

/**
 * Prints lines no faster than they are read. A reader that is gone (`| head`) ends the work without
 * a failure; a full disk is a failure.
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

  /** False when the reader is gone. */
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
      // Either the write failed, which is known by now, or the user has stopped the command.
      if (!this.#signal.aborted && this.#failure === undefined) throw error;
    }
  }
}

function isBrokenPipe(error: Error): boolean {
  return "code" in error && error.code === "EPIPE";
}
