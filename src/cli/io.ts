/** The outside world of a command, and safe ways to print to it. */
import { once } from "node:events";
import type { Readable, Writable } from "node:stream";
import { codeOf } from "../base/errors.ts";
import type { ClientConfig, Config, Loaded } from "../config/config.ts";
import type { RetentionOptions, RetentionSummary } from "../maintenance/retention.ts";
import type { MigrationStatus } from "../store/migrate.ts";

export type MigrateCommand = "up" | "down" | "status";

/** A test can replace every part of it. */
export interface CliIo {
  readonly stdin: Readable;
  readonly stdout: Output;
  readonly stderr: Output;
  /** Aborted when the user wants the command to end. */
  readonly signal: AbortSignal;
  readonly loadConfig: () => Loaded<Config>;
  readonly loadClientConfig: () => Loaded<ClientConfig>;
  /** Resolves with the exit code when the service has stopped. */
  readonly serve: (config: Config) => Promise<number>;
  readonly migrate: (
    command: MigrateCommand,
    options: { readonly force: boolean },
    config: Config,
  ) => Promise<MigrationStatus>;
  /** The URL of the embedded database that a service runs. */
  readonly embeddedUrl: (config: Config) => Promise<string>;
  /** Runs on the database itself; undefined: the named session does not exist. */
  readonly retention: (
    options: RetentionOptions,
    config: Config,
  ) => Promise<RetentionSummary | undefined>;
  /** Runs the tool tools/import-upstream with these arguments; resolves with its exit code. */
  readonly importUpstream: (argv: readonly string[]) => Promise<number>;
}

/** A stream that may be a terminal. */
export type Output = Writable & { readonly isTTY?: boolean };

/** Writes one line for a person; scripts read no line from here. */
export function tell({ stderr }: Pick<CliIo, "stderr">, line: string): void {
  stderr.write(`session-ledger: ${line}\n`);
}

/** Prints no faster than the lines are read. A reader that is gone (`| head`) is no failure. */
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
    if (this.#failure === undefined) return true;
    if (codeOf(this.#failure) === "EPIPE") return false;
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

/** Prints one line on stdout, unless its reader is gone. */
export async function printLine(
  { stdout, signal }: Pick<CliIo, "stdout" | "signal">,
  line: string,
): Promise<void> {
  await new Printer(stdout, signal).print(line);
}

/**
 * Text of a session in a safe form for a terminal: characters that would move the cursor, ring a
 * bell, change colours or turn the direction of the line are spelled out. A writer of a session
 * must not control the terminal of its reader.
 */
export function visible(text: string): string {
  return text.replace(UNSAFE, (character) => {
    return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });
}

// C0, DEL and C1; line and paragraph separators; embeddings, overrides and isolates of direction.
const UNSAFE = /[\p{Cc}\u2028\u2029\u202A-\u202E\u2066-\u2069]/gu;
