import { Command, CommanderError } from "commander";
import { packageVersion } from "../observability/version.ts";
import { addCompletion } from "./completion.ts";
import { addBackup } from "./backup.ts";
import { type CliIo, EXIT, exitHelp, explain, tell } from "./io.ts";
import { addExport } from "./export.ts";
import { addDatabaseCommands } from "./database.ts";
import { addDemo } from "./demo.ts";
import { addDumpCommands } from "./dump.ts";
import { addPush } from "./push.ts";
import { addProcessCommands, ENVIRONMENT_HELP, type Finish } from "./serve.ts";
import { addConversationCommands } from "./conversation.ts";
import { addFeed } from "./feed.ts";
import { addSessions } from "./session-list.ts";
import { addSessionCommands } from "./sessions.ts";
import { addSearch } from "./search.ts";
import { addTail } from "./tail.ts";
import { addTalkCommands } from "./talk.ts";
import { addVerify } from "./verify.ts";

/**
 * Runs one command and resolves with its exit code (io.ts); without a command it starts the
 * service. Never rejects, and never ends the process: output may still be on its way.
 */
export async function runCli(argv: readonly string[], io: CliIo): Promise<number> {
  return runProgram(argv.length === 0 ? ["serve"] : argv, io, build);
}

/** Runs the program that `make` makes; it calls `finish` with its exit code. */
export async function runProgram<Io extends ProgramIo>(
  argv: readonly string[],
  io: Io,
  make: (io: Io, finish: Finish) => Command,
): Promise<number> {
  // A reader that is gone (`--help | head`) is no failure; Printer handles lost lines.
  for (const output of [io.stdout, io.stderr]) output.on("error", () => undefined);
  let exitCode: number = EXIT.done;
  const program = make(io, (code) => {
    exitCode = code;
  });
  try {
    await program.parseAsync(argv, { from: "user" });
    return exitCode;
  } catch (error) {
    // Commander has printed the help, the version, or the error of an option.
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.done : EXIT.usage;
    const explained = explain(error);
    tell(io, explained.message);
    return explained.exitCode;
  }
}

type ProgramIo = Pick<CliIo, "stdout" | "stderr">;

/** A program without commands; it writes to `io`. */
export function programNamed(name: string, io: ProgramIo): Command {
  return new Command(name)
    .version(packageVersion())
    .exitOverride()
    .configureOutput({
      writeOut: (text) => io.stdout.write(text),
      writeErr: (text) => io.stderr.write(text),
    })
    .configureHelp({ subcommandTerm: (command) => command.name() })
    .addHelpText("afterAll", ({ command }) => (isWithCommands(command) ? "" : EXIT_HELP));
}

const EXIT_HELP = `\nExit codes:\n${exitHelp()}`;

/** Its help is an overview on one screen; the exit codes are in the help of each command. */
function isWithCommands({ parent, commands }: Command): boolean {
  return parent === null && commands.length > 0;
}

/** In the order of the help. */
const COMMANDS = [
  addProcessCommands,
  addDemo,
  addDatabaseCommands,
  addDumpCommands,
  addBackup,
  addVerify,
  addTalkCommands,
  addPush,
  addTail,
  addFeed,
  addExport,
  addConversationCommands,
  addSessions,
  addSearch,
  addSessionCommands,
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

/** The options are the tool's own: tools/import-upstream/command.ts. */
function addImport(program: Command, io: CliIo, finish: Finish): void {
  program
    .command("import")
    .summary("copy an upstream database")
    .description("copy the sessions, messages and events of an upstream database")
    .argument("[options...]")
    .allowUnknownOption()
    .helpOption(false)
    .action(async (argv: readonly string[]) => finish(await io.importUpstream(argv)));
}
