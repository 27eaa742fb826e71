import type { ImportReport, StreamReport } from "../import/report.ts";
import { EXIT, type ExitCode } from "./exit.ts";
import { UsageError } from "./explain.ts";
import { type CliIo, tell } from "./io.ts";
import { Printer } from "./printer.ts";
import { configOf } from "./serve.ts";
import { visible } from "./visible.ts";

export interface ImportCommand {
  readonly sourceUrl: string;
  readonly dryRun: boolean;
  readonly batchRowsMax: number;
  readonly json: boolean;
}

/** Rows of the source between two progress lines. */
const TOLD_ROWS = 50_000;

/** Takes over an upstream database; a second call continues where the first one stopped. */
export async function importDatabase(command: ImportCommand, io: CliIo): Promise<ExitCode> {
  const { json, ...rest } = command;
  if (!isDatabaseUrl(rest.sourceUrl)) {
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
  const report = await io.importFrom({ ...rest, signal: io.signal, progressed }, config);
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
