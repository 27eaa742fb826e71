/** The commands that copy a ledger, on its database: `dump` and `restore`; services may run. */
import { stat } from "node:fs/promises";
import type { Command } from "commander";
import type { DumpLine, RestoreCounts, RestoreSummary } from "../maintenance/restore.ts";
import type { Database } from "../store/database.ts";
import { askAgain } from "../search/index-store.ts";
import { fromJsonLines, JsonLinesError } from "@session-ledger/runner/internal/lines";
import { restoreDirectory } from "./backup.ts";
import { inDatabase } from "./database.ts";
import { type CliIo, EXIT, type ExitCode, Printer, tell, UsageError, visible } from "./io.ts";
import { openInput } from "./push-rows.ts";
import { configOf, type Finish } from "./serve.ts";
import { openTarget, type TargetFlags } from "./target.ts";

export function addDumpCommands(program: Command, io: CliIo, finish: Finish): void {
  program
    .command("dump")
    .summary("write sessions as a file, for `restore`")
    .description(
      "write all sessions, or chosen ones, with everything that a ledger has of them, from the database itself; a dump of all sessions has the keys that sign session tokens",
    )
    .argument("[sessions...]", "only these sessions; default: all")
    .option("-o, --output <path>", "a file, which exists only when it is complete; default: stdout")
    .option("--force", "replace an existing file")
    .action(async (sessions: readonly string[], flags: TargetFlags) =>
      finish(await dumpSessions(sessions, flags, io)),
    );
  program
    .command("restore")
    .summary("store a dump or a backup")
    .description(
      "store the sessions of a dump in the database itself, and never change an existing session; or put a backup into an empty DATA_DIR",
    )
    .argument("<place>", "a file that `dump` wrote, or - for stdin; or a directory of `backup`")
    .action(async (place: string) => {
      const found = place === "-" ? undefined : await stat(place).catch(() => undefined);
      const work = found?.isDirectory() === true ? restoreDirectory : restoreSessions;
      finish(await work(place, io));
    });
}

/** Only its owner may read the file: it has the keys that sign tokens. */
const FILE_MODE = 0o600;

async function dumpSessions(
  sessions: readonly string[],
  flags: TargetFlags,
  io: CliIo,
): Promise<ExitCode> {
  const { dump } = await import("../maintenance/dump.ts");
  const config = configOf(io);
  const target = await openTarget(flags, io, FILE_MODE);
  const printer = new Printer(target.output, io.signal);
  const call = {
    sessionIds: sessions.length === 0 ? undefined : sessions,
    print: (line: string) =>
      printer.print(line).catch((error: unknown) => {
        throw target.failureOf(error);
      }),
    signal: io.signal,
  };
  try {
    const summary = await inDatabase(config, (database) => dump(database, call));
    if (summary === undefined) return io.signal.aborted ? EXIT.interrupted : EXIT.done;
    await target.complete();
    tell(io, `dumped ${summary.sessions} sessions with ${summary.rows} rows`);
    return EXIT.done;
  } finally {
    await target.discard();
  }
}

/** A request has up to 64 MiB, and JSON doubles the bytes of a text of JSON. */
const LINE_BYTES_MAX = 192 * 1024 * 1024;

/** Lists conflicting sessions by name; counts the rest. */
const NAMED_MAX = 20;

async function restoreSessions(file: string, io: CliIo): Promise<ExitCode> {
  const { restore } = await import("../maintenance/restore.ts");
  const { migrateUp } = await import("../store/migrate.ts");
  const config = configOf(io);
  const { stream } = await openInput(file, io);
  const lines: AsyncIterable<DumpLine> = fromJsonLines(stream, { lineBytesMax: LINE_BYTES_MAX });
  let done: RestoreCounts = { sessions: 0, rows: 0, present: 0, refused: 0 };
  let named = 0;
  const call = {
    signal: io.signal,
    refused: (sessionId: string, difference: string) => {
      named += 1;
      if (named <= NAMED_MAX)
        tell(
          io,
          `session ${visible(sessionId)} exists, and differs from that of the dump (${difference}): not changed`,
        );
    },
    committed: (counts: RestoreCounts) => {
      done = counts;
    },
  };
  try {
    const work = async (database: Database): Promise<RestoreSummary> => {
      try {
        return await restore(database, lines, call);
      } finally {
        // The index of search looks for new rows, and these have older times.
        if (done.sessions > 0) await askAgain(database).catch(() => undefined);
      }
    };
    const { problem } = await inDatabase(config, work, migrateUp);
    if (problem === undefined) {
      tell(io, summaryOf(done));
      return done.refused === 0 ? EXIT.done : EXIT.incomplete;
    }
    return wrongFile({ problem, done }, io);
  } catch (error) {
    if (error instanceof JsonLinesError) return wrongFile({ problem: error.message, done }, io);
    if (!io.signal.aborted) throw error;
    tell(io, `${summaryOf(done)}; the same command continues`);
    return EXIT.interrupted;
  } finally {
    stream.destroy();
  }
}

function wrongFile(
  { problem, done }: { readonly problem: string; readonly done: RestoreCounts },
  io: CliIo,
): ExitCode {
  if (done.sessions === 0) throw new UsageError(problem);
  tell(io, `${problem}; before it: ${summaryOf(done)}`);
  return EXIT.incomplete;
}

function summaryOf({ sessions, rows, present, refused }: RestoreCounts): string {
  const others = [
    ...(present > 0 ? [`${present} existed already`] : []),
    ...(refused > 0 ? [`${refused} exist and differ`] : []),
  ];
  return [`restored ${sessions} sessions with ${rows} rows`, ...others].join(", ");
}
