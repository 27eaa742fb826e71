import type { Command } from "commander";
import { addCompletion } from "./completion.ts";
import { addBackup } from "./backup.ts";
import type { CliIo } from "./io.ts";
import { addExport } from "./export.ts";
import { addMigrate, addReindex, addRetention } from "./database.ts";
import { addDemo } from "./demo.ts";
import { addDumpCommands } from "./dump.ts";
import { addPush } from "./push.ts";
import { addProcessCommands, ENVIRONMENT_HELP, type Finish } from "./serve.ts";
import { addRuns, addTranscript } from "./conversation.ts";
import { addFeed } from "./feed.ts";
import { importFile } from "./import.ts";
import { addMcp } from "./mcp.ts";
import { programNamed, runProgram } from "./running.ts";
import { addInbox, addSessions } from "./session-list.ts";
import { addErase, addHold, addToken } from "./sessions.ts";
import { addSearch } from "./search.ts";
import { addTail } from "./tail.ts";
import { addCancel, addCreate, addFeedback, addFork, addSay } from "./talk.ts";
import { addVerify } from "./verify.ts";

/**
 * Runs one command and resolves with its exit code (io.ts); without a command it starts the
 * service. Never rejects, and never ends the process: output may still be on its way.
 */
export async function runCli(argv: readonly string[], io: CliIo): Promise<number> {
  return runProgram(argv.length === 0 ? ["serve"] : argv, io, build);
}

/** In the order of the help. */
const COMMANDS = [
  addProcessCommands,
  addDemo,
  addMigrate,
  addRetention,
  addReindex,
  addDumpCommands,
  addBackup,
  addVerify,
  addCreate,
  addFork,
  addSay,
  addFeedback,
  addCancel,
  addPush,
  addTail,
  addFeed,
  addExport,
  addTranscript,
  addRuns,
  addSessions,
  addInbox,
  addSearch,
  addMcp,
  addToken,
  addErase,
  addHold,
  addImport,
  addCompletion,
  addEnvironment,
];

const AFTER_HELP = `
Options of a command and exit codes: session-ledger help <command>
Settings: session-ledger help environment`;

function build(io: CliIo, finish: Finish): Command {
  const program = programNamed("session-ledger", io)
    .description("The durable record of AI-agent sessions.")
    .usage("[command] [options]")
    .addHelpText("after", AFTER_HELP);
  for (const add of COMMANDS) add(program, io, finish);
  return program;
}

/** A page of `help`, as if it were a command. */
function addEnvironment(program: Command): void {
  const page = program
    .command("environment", { hidden: true })
    .configureHelp({ formatHelp: () => `${ENVIRONMENT_HELP}\n` })
    .action(() => page.outputHelp());
}

/** The options are those of importFile, or of the tool: tools/import-upstream/command.ts. */
function addImport(program: Command, io: CliIo, finish: Finish): void {
  program
    .command("import")
    .summary("copy an upstream database, or a file of another system")
    .description("copy the sessions, messages and events of an upstream database, or a file")
    .argument("[options...]")
    .allowUnknownOption()
    .helpOption(false)
    .action(async (argv: readonly string[]) => {
      const isFile = argv.some((word) => /^--format(=|$)/.test(word));
      finish(await (isFile ? importFile(argv, io) : io.importUpstream(argv)));
    });
}
