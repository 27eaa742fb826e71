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
  readonly migrate: (
    command: MigrateCommand,
    options: { readonly force: boolean },
    config: Config,
  ) => Promise<MigrationStatus>;
  /** Of the embedded database that a service runs. */
  readonly embeddedUrl: (config: Config) => Promise<string>;
  /** On the database itself; undefined: the session that was named does not exist. */
  readonly retention: (
    options: RetentionOptions,
    config: Config,
  ) => Promise<RetentionSummary | undefined>;
  /** Into the database itself; `progressed` is told after each page. */
  readonly importFrom: (request: ImportRequest, config: Config) => Promise<ImportReport>;
}

/** A stream that may be a terminal. */
export type Output = Writable & { readonly isTTY?: boolean };

/** One line for a person; nothing a script would read goes here. */
export function tell({ stderr }: Pick<CliIo, "stderr">, line: string): void {
  stderr.write(`session-ledger: ${line}\n`);
}
