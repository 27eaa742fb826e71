/** The commands that copy the files of the embedded database: `backup`, and `restore` of its directory. */
import type { Command } from "commander";
import { createLog } from "../observability/log.ts";
import type { BackupSize } from "../postgres/backup.ts";
import type { Database } from "../store/database.ts";
import { codeOf } from "@session-ledger/base/errors";
import { inDatabase } from "./database.ts";
import { type CliIo, EXIT, type ExitCode, tell, UsageError } from "./io.ts";
import { configOf, type Finish } from "./serve.ts";

export function addBackup(program: Command, io: CliIo, finish: Finish): void {
  program
    .command("backup")
    .summary("copy the embedded database while it runs")
    .description(
      "copy the files of the embedded database of DATA_DIR, while the service runs or not",
    )
    .argument("<directory>", "a new directory, which exists only when it is complete")
    .action(async (directory: string) => finish(await backUp(directory, io)));
}

const anySchema = (): Promise<void> => Promise.resolve();

async function backUp(directory: string, io: CliIo): Promise<ExitCode> {
  const config = configOf(io);
  refuseOwnDatabase(config.databaseUrl);
  const { openBackup } = await import("../postgres/backup.ts");
  const { runningServer } = await import("../postgres/cluster.ts");
  const { copyWhileRunning } = await import("../store/base-backup.ts");
  const copy = async (database: Database): Promise<BackupSize> => {
    const { clusterDir } = (await runningServer(config.dataDir)) ?? {};
    if (clusterDir === undefined) throw new Error("the embedded database ended");
    const backup = await openBackup(clusterDir, { directory, signal: io.signal });
    try {
      await copyWhileRunning(database, {
        data: async () => {
          await backup.copyData();
          await backup.copyControl();
        },
        log: backup.copyLog,
      });
      return await backup.complete();
    } finally {
      await backup.discard();
    }
  };
  const work = inDatabase(config, copy, anySchema);
  return copied(work, { what: `backed up to ${directory}`, io });
}

/** `directory`: one that `backup` wrote. */
export async function restoreDirectory(directory: string, io: CliIo): Promise<ExitCode> {
  const config = configOf(io);
  refuseOwnDatabase(config.databaseUrl);
  const { restoreBackup } = await import("../postgres/backup.ts");
  const log = createLog({ level: "warn", pretty: process.stderr.isTTY, to: "stderr" });
  const { dataDir } = config;
  const work = restoreBackup(directory, { dataDir, log, signal: io.signal });
  return copied(work, { what: `restored into ${dataDir}`, io });
}

function refuseOwnDatabase(databaseUrl: string | undefined): void {
  if (databaseUrl === undefined) return;
  throw new UsageError(
    "DATABASE_URL is set, and a backup is of the embedded database: use the tools of PostgreSQL, or `dump` and `restore` of a file",
  );
}

async function copied(
  work: Promise<BackupSize>,
  { what, io }: { readonly what: string; readonly io: CliIo },
): Promise<ExitCode> {
  try {
    const { files, bytes } = await work;
    tell(io, `${what}: ${files} files with ${bytes} bytes`);
    return EXIT.done;
  } catch (error) {
    if (io.signal.aborted) return EXIT.interrupted;
    // A file or a directory of the user.
    if (!/^E[A-Z]+$/.test(codeOf(error)) || !(error instanceof Error)) throw error;
    throw new UsageError(`cannot copy: ${error.message}`, { cause: error });
  }
}
