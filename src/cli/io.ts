import type { Readable, Writable } from "node:stream";
import type { ClientConfig, Config, Loaded } from "../config/config.ts";
import { EXIT } from "./exit.ts";
import type { MigrationStatus } from "../store/migrate.ts";
import type { RetentionOptions, RetentionSummary } from "../maintenance/retention.ts";

export type MigrateCommand = "up" | "down" | "status";

/** The outside world of a command, so that a test can replace it. */
export interface CliIo {
  readonly stdin: Readable & { readonly isTTY?: boolean };
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

/** Aborted by the first SIGINT or SIGTERM; the second ends the process at once. */
export function endingSignal(): AbortSignal {
  const ending = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.on(signal, () => {
      if (ending.signal.aborted) process.exit(EXIT.interrupted);
      ending.abort();
    });
  }
  return ending.signal;
}
