import type { Readable, Writable } from "node:stream";
import type { ClientConfig, Config, Loaded } from "../config/config.ts";
import type { ImportReport } from "../import/report.ts";
import type { MigrationStatus } from "../store/migrate.ts";
import type { RetentionOptions, RetentionSummary } from "../maintenance/pass.ts";

export type MigrateCommand = "up" | "down" | "status";

export interface ImportRequest {
  readonly dryRun: boolean;
  readonly batchRowsMax: number;
  readonly signal: AbortSignal;
  readonly sourceUrl: string;
  readonly progressed: (report: ImportReport) => void;
}

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
  /** Imports into the database itself; `progressed` is called after each page. */
  readonly importFrom: (request: ImportRequest, config: Config) => Promise<ImportReport>;
}

/** A stream that may be a terminal. */
export type Output = Writable & { readonly isTTY?: boolean };

/** Writes one line for a person; scripts read no line from here. */
export function tell({ stderr }: Pick<CliIo, "stderr">, line: string): void {
  stderr.write(`session-ledger: ${line}\n`);
}
