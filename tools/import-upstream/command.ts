/** The command line of the import: its options, its progress, and its report. */
import { Option } from "commander";
import { countArgument } from "../../src/cli/arguments.ts";
import { withDatabase } from "../../src/cli/database.ts";
import {
  type CliIo,
  EXIT,
  type ExitCode,
  Printer,
  tell,
  UsageError,
  visible,
} from "../../src/cli/io.ts";
import { programNamed, runProgram } from "../../src/cli/running.ts";
import { configOf } from "../../src/cli/serve.ts";
import type { Config } from "../../src/config/config.ts";
import { redactionOptions, createRedactor } from "@session-ledger/agui/redaction/redactor";
import { askAgain } from "../../src/search/index-store.ts";
import type { Database } from "../../src/store/database.ts";
import { migrateUp } from "../../src/store/migrate.ts";
import { importLedger, type ImportOptions } from "./import.ts";
import type { ImportReport, StreamReport } from "./report.ts";
import { openSource, sourceName } from "./source.ts";

export type ImportIo = Pick<CliIo, "stdout" | "stderr" | "signal" | "loadConfig">;

/** Runs the tool with these arguments, and resolves with its exit code (src/cli/io.ts). */
export function importUpstream(argv: readonly string[], io: ImportIo): Promise<number> {
  return runProgram(argv, io, (_, finish) =>
    programNamed("session-ledger import", io)
      .description("Copy the sessions, messages and events of an upstream database.")
      .requiredOption("--from <url>", "the upstream database, postgres://…; it is only read")
      .option("--dry-run", "read and check all rows, and write nothing")
      .addOption(
        new Option("--batch <rows>", `rows per transaction, 1 to ${BATCH_ROWS_MAX}`)
          .argParser(countArgument(BATCH_ROWS_MAX))
          .default(500),
      )
      .option("--json", "the report as JSON on stdout")
      .addHelpText(
        "after",
        "\nA file of another system: session-ledger import --format history --help",
      )
      .action(async (flags: Flags) => finish(await importDatabase(flags, io))),
  );
}

interface Flags {
  readonly from: string;
  readonly dryRun?: boolean;
  readonly batch: number;
  readonly json?: boolean;
}

const BATCH_ROWS_MAX = 5_000;
/** Rows of the source between two progress lines. */
const TOLD_ROWS = 50_000;

/** Takes over an upstream database; a second call continues where the first one stopped. */
async function importDatabase(
  { from, dryRun = false, batch: batchRowsMax, json = false }: Flags,
  io: ImportIo,
): Promise<ExitCode> {
  if (!isDatabaseUrl(from)) {
    // Checked here and not by the option parser, which quotes its input: the input may contain a
    // password.
    throw new UsageError("--from: expected postgres://user@host:5432/database");
  }
  const config = configOf(io);
  let told = 0;
  const progressed = ({ messages, events }: ImportReport): void => {
    const read = messages.read + events.read;
    if (read - told < TOLD_ROWS) return;
    told = read;
    tell(io, `${messages.read} messages and ${events.read} events read`);
  };
  const options = { sourceName: sourceName(from), dryRun, batchRowsMax, signal: io.signal };
  const report = await importFrom(from, { options, progressed, config });
  for (const { stream, oldSeq, sessionId, fault } of report.malformedRows) {
    tell(io, visible(`${stream} ${oldSeq} of session ${sessionId} is malformed: ${fault}`));
  }
  for (const { sessionId, reason } of report.refusedSessions) {
    tell(io, visible(`session ${sessionId} takes no rows of the import: ${MEANINGS[reason]}`));
  }
  const printer = new Printer(io.stdout, io.signal);
  if (json) await printer.print(JSON.stringify(report));
  else for (const line of linesOf(report)) await printer.print(line);
  if (io.signal.aborted) return EXIT.interrupted;
  return report.sessions.refused > 0 ? EXIT.incomplete : EXIT.done;
}

async function importFrom(
  url: string,
  {
    options,
    progressed,
    config,
  }: {
    readonly options: ImportOptions;
    readonly progressed: (report: ImportReport) => void;
    readonly config: Config;
  },
): Promise<ImportReport> {
  const redacting = redactionOptions(config);
  // A command has no metrics endpoint, so its findings are not counted.
  const redaction = redacting && createRedactor(redacting, () => undefined);
  const run = async (target: Database): Promise<ImportReport> => {
    const source = openSource({ url, statementTimeoutMs: config.statementTimeoutMs });
    try {
      await source.start();
      return await importLedger({ source, target, progressed, redaction }, options);
    } finally {
      // The index of search looks for new rows, and these have older times.
      if (!options.dryRun) await askAgain(target).catch(() => undefined);
      await source.stop();
    }
  };
  return withDatabase(config, run, { prepare: migrateUp });
}

function isDatabaseUrl(text: string): boolean {
  return /^postgres(ql)?:\/\/[^/]/.test(text) && URL.canParse(text);
}

const MEANINGS = {
  has_rows_of_its_own: "it has rows that are not from an import",
  deleted_here: "it was deleted here",
  erased_here: "it was erased here",
  id_not_usable: "its id is not one that the ledger takes",
} as const satisfies Record<ImportReport["refusedSessions"][number]["reason"], string>;

function linesOf({ source, dryRun, sessions, messages, events }: ImportReport): readonly string[] {
  const verb = dryRun ? "would import" : "imported";
  return [
    `${verb} from ${source}: ${sessions.read} sessions read, ${sessions.made} made, ${sessions.refused} refused`,
    `messages: ${wordsOf(messages)}`,
    `events: ${wordsOf(events)}`,
  ];
}

function wordsOf({ read, written, split, malformed, refused, known }: StreamReport): string {
  const rest = `${split} split, ${malformed} malformed, ${refused} refused, ${known} known`;
  return `${read} read, ${written} rows written, ${rest}`;
}
