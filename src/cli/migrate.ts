import type { MigrationStatus } from "../store/migrate.ts";
import { EXIT, type ExitCode } from "./exit.ts";
import { UsageError } from "./explain.ts";
import { type CliIo, type MigrateCommand, tell } from "./io.ts";
import { Printer } from "./printer.ts";
import { configOf } from "./serve.ts";

export interface MigrateOptions {
  readonly command: MigrateCommand;
  /** Required for `down`, because it drops rows. */
  readonly yes: boolean;
  /** Allows `down` even while instances are connected. */
  readonly force: boolean;
}

/**
 * Migrates the schema up, reverts its newest step, or reports its state: one line per migration.
 */
export async function migrate(
  { command, yes, force }: MigrateOptions,
  io: CliIo,
): Promise<ExitCode> {
  const config = configOf(io);
  if (command === "down" && !yes) {
    throw new UsageError(
      "migrate down drops what the newest migration made, with the rows in it; add --yes",
    );
  }
  const status = await io.migrate(command, { force }, config);
  const printer = new Printer(io.stdout, io.signal);
  for (const line of linesOf(status)) await printer.print(line);
  if (status.unknown > 0) {
    tell(io, `the schema is newer than this version: ${status.unknown} unknown migrations`);
    return EXIT.incomplete;
  }
  return command === "down" || status.pending.length === 0 ? EXIT.done : EXIT.incomplete;
}

function linesOf({ applied, pending }: MigrationStatus): readonly string[] {
  return [...applied.map((tag) => `applied ${tag}`), ...pending.map((tag) => `pending ${tag}`)];
}
