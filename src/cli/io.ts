import type { Readable, Writable } from "node:stream";
import type { ClientConfig, Config, Loaded } from "../config.ts";
import type { MigrationStatus } from "../store/migrate.ts";

export type MigrateCommand = "up" | "down" | "status";

/** All that a command touches outside itself, so that a test can hand it something else. */
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
  readonly migrate: (command: MigrateCommand, config: Config) => Promise<MigrationStatus>;
}

/** A stream that may be a terminal. */
export type Output = Writable & { readonly isTTY?: boolean };

/** One line for a person; nothing a script would read goes here. */
export function tell({ stderr }: Pick<CliIo, "stderr">, line: string): void {
  stderr.write(`session-ledger: ${line}\n`);
}
