/** The outside world of a command, ways to print to it, exit codes, and messages of failures. */
import { once } from "node:events";
import type { Readable, Writable } from "node:stream";
import { codeOf, ServiceError } from "@session-ledger/base/errors";
import {
  type ClientConfig,
  type Config,
  GRPC_PORT_USUAL as GRPC_PORT,
  type Loaded,
} from "../config/config.ts";
import type { RetentionOptions, RetentionSummary } from "../maintenance/retention.ts";
import {
  type NoConnection,
  noConnectionOf,
  RpcFailure,
} from "@session-ledger/runner/internal/failure";
import type { MigrationStatus } from "../store/migrate.ts";

export type MigrateCommand = "up" | "down" | "status";
export interface MigrateOptions {
  readonly force: boolean;
  readonly partitions: number | undefined;
}

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
    options: MigrateOptions,
    config: Config,
  ) => Promise<MigrationStatus>;
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
 * A session's text for a terminal: characters that move the cursor, ring a bell, change colours or
 * turn the direction of a line are spelled out, so that no writer controls the terminal of a
 * reader.
 */
export function visible(text: string): string {
  return text.replace(UNSAFE, (character) => {
    return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });
}

// C0, DEL and C1; line and paragraph separators; embeddings, overrides and isolates of direction.
const UNSAFE = /[\p{Cc}\u2028\u2029\u202A-\u202E\u2066-\u2069]/gu;

/** The exit codes for shell scripts; a number never changes its meaning. */
export const EXIT = {
  done: 0,
  incomplete: 1,
  usage: 2,
  unavailable: 3,
  refused: 4,
  failed: 5,
  interrupted: 130,
} as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

export function exitHelp(): string {
  return Object.entries(MEANINGS)
    .map(([code, meaning]) => `  ${code.padStart(3)}  ${meaning}`)
    .join("\n");
}

/**
 * Aborted by the first SIGINT or SIGTERM; the second ends the process at once. The same signal
 * within a second is one: a terminal sends Ctrl-C to npm and its child, and npm passes it on.
 */
export function endingSignal(): AbortSignal {
  const ending = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    let firstMs = Number.NEGATIVE_INFINITY;
    process.on(signal, () => {
      if (performance.now() - firstMs < 1_000) return;
      if (ending.signal.aborted) process.exit(EXIT.interrupted);
      firstMs = performance.now();
      ending.abort();
    });
  }
  return ending.signal;
}

/** The handler of a failure: the user has stopped the command, which is its normal end, or it throws. */
export function unlessStopped({ signal }: Pick<CliIo, "signal">): (error: unknown) => void {
  return (error) => {
    if (!signal.aborted) throw error;
  };
}

/** A mistake in the call of the command that the option parser cannot find. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** The message of a failure for the user, and its exit code for the script. */
export function explain(error: unknown): { readonly exitCode: ExitCode; readonly message: string } {
  if (error instanceof UsageError) return { exitCode: EXIT.usage, message: error.message };
  if (error instanceof RpcFailure) {
    const exitCode = error.mayPass ? EXIT.unavailable : EXIT.refused;
    return { exitCode, message: explainCall(error) };
  }
  if (error instanceof ServiceError) {
    // This process receives no requests, so the fault is in a setting or its file.
    if (error.code === "invalid_argument") {
      return { exitCode: EXIT.usage, message: error.message };
    }
    const exitCode = error.code === "unavailable" ? EXIT.unavailable : EXIT.refused;
    return { exitCode, message: `${error.reason}: ${error.message}` };
  }
  return { exitCode: EXIT.failed, message: `unexpected failure: ${withCauses(error)}` };
}

/** One line: the reason, the service's message, and the fields it names. */
export function explainCall(failure: RpcFailure): string {
  const { code, reason, message, violations } = failure;
  // A description may begin with its field, and the message repeats the first description.
  const fields = violations.map(({ field, description }) =>
    description.startsWith(field) ? description : `${field}: ${description}`,
  );
  const parts = violations[0]?.description === message ? fields : [message, ...fields];
  const kind = noConnectionOf(failure);
  if (kind !== undefined) parts.push(ADVICE[kind]);
  return visible(`${reason ?? code}: ${parts.join("; ")}`);
}

const MEANINGS: Readonly<Record<ExitCode, string>> = {
  [EXIT.done]:
    "Done. `tail`, `feed`, `sessions --watch` and `demo` also end with this code on Ctrl-C, and `tail` and `export` at the next line after the reader of the output has gone.",
  [EXIT.incomplete]:
    "Partly done: `push` or `import` had refused lines, `import` refused sessions, `retention` found sessions that were locked, `verify` found damaged sessions, `restore` found existing sessions that differ or a dump that is wrong from some line on, or `migrate status` found pending migrations.",
  [EXIT.usage]:
    "Nothing was done: an option or a setting in the environment is wrong, the database refuses its URL, or a file (of an option or of a setting) cannot be read or written, or has the wrong content.",
  [EXIT.unavailable]:
    "The service or the database could not be reached within the time of `--retry-for`. The same command can succeed later, and `push` continues where it stopped.",
  [EXIT.refused]:
    "Refused for a reason that does not pass with time: the session does not exist, `demo` found other sessions, a port or a DATA_DIR is in use, `backup` or `restore` found a database or a directory, or a damaged backup, the schema is newer than this version, or instances are connected during `migrate down`.",
  [EXIT.failed]: "A defect. stderr has the details.",
  [EXIT.interrupted]:
    "`push`, `export`, `dump`, `backup`, `retention`, `restore` or `import` was interrupted, and the same command continues where it stopped, with `push --stream` from the line that it tells; `export`, `dump` and `backup` begin again. Or `say` was interrupted before it had read its text, and sent nothing.",
};

/** The user's remedy for a connection that fails. */
const ADVICE: Readonly<Record<NoConnection, string>> = {
  untrusted: "--ca-file or SESSION_LEDGER_TLS_CA_FILE names the trusted authorities",
  out_of_date: "the certificate must be renewed, or a clock is wrong",
  other_name: "--address must have the name that is in the service's certificate",
  asks: "SESSION_LEDGER_TLS_CERT_FILE and SESSION_LEDGER_TLS_KEY_FILE name the client's certificate",
  refuses: "SESSION_LEDGER_TLS_CERT_FILE must be from an authority that the service trusts",
  no_tls: "without SESSION_LEDGER_TLS and SESSION_LEDGER_TLS_CA_FILE the client does not use TLS",
  nobody: `is the service running, and its gRPC on another port than ${GRPC_PORT}?`,
  no_grpc: `the service has gRPC on port ${GRPC_PORT}, unless GRPC_ADDRESS sets another one, and HTTP on a separate one`,
  closed: "check the SESSION_LEDGER_TLS settings",
};

/** Stacks for the search of the defect; no fields, because a driver keeps values in them. */
function withCauses(error: unknown, causesMax = 4): string {
  if (!(error instanceof Error)) return String(error);
  const own = error.stack ?? error.message;
  if (error.cause === undefined || causesMax === 0) return own;
  return `${own}\ncaused by: ${withCauses(error.cause, causesMax - 1)}`;
}
