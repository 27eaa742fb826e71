import { Command, CommanderError, Option } from "commander";
import { packageVersion } from "../observability/version.ts";
import { configHelp } from "../config/config.ts";
import type { StreamName } from "../runner/rows.ts";
import {
  addressArgument,
  ageArgument,
  durationArgument,
  limitArgument,
  seqArgument,
} from "./arguments.ts";
import { erase } from "./erase.ts";
import { EXIT, exitHelp } from "./exit.ts";
import { explain, UsageError } from "./explain.ts";
import { exportSession } from "./export.ts";
import { health } from "./health.ts";
import { type CliIo, type MigrateCommand, tell } from "./io.ts";
import { migrate } from "./migrate.ts";
import { Printer } from "./printer.ts";
import { push } from "./push.ts";
import { retention } from "./retention.ts";
import { configOf, serve } from "./serve.ts";
import { sessions } from "./sessions.ts";
import { type Format, FORMATS, tail } from "./tail.ts";
import { token, TOKEN_ROLES, type TokenOptions } from "./token.ts";

/**
 * Runs one command and resolves with its exit code (exit.ts); without a command it starts the
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
type Finish = (exitCode: number) => void;

/** A program without commands; it writes to `io`, and its help has the exit codes. */
export function programNamed(name: string, io: ProgramIo): Command {
  return new Command(name)
    .version(packageVersion())
    .exitOverride()
    .configureOutput({
      writeOut: (text) => io.stdout.write(text),
      writeErr: (text) => io.stderr.write(text),
    })
    .addHelpText("afterAll", `\nExit codes:\n${exitHelp()}`);
}

function build(io: CliIo, finish: Finish): Command {
  const program = programNamed("session-ledger", io)
    .description("The durable record of AI-agent sessions.")
    .usage("[command] [options]")
    .addHelpText("after", `\nWithout a command: serve.\n\n${ENVIRONMENT}`);
  addServe(program, io, finish);
  addMigrate(program, io, finish);
  addEmbedded(program, io, finish);
  addPush(program, io, finish);
  addTail(program, io, finish);
  addExport(program, io, finish);
  addSessions(program, io, finish);
  addToken(program, io, finish);
  addErase(program, io, finish);
  addRetention(program, io, finish);
  addImport(program, io, finish);
  addHealth(program, io, finish);
  return program;
}

const ENVIRONMENT = `Environment:\n${configHelp()}`;
const RETRY_FOR = "60s";

function addServe(program: Command, io: CliIo, finish: Finish): void {
  program
    .command("serve")
    .description("start the service; it is set up by its environment")
    .addHelpText("after", `\n${ENVIRONMENT}`)
    .action(async () => finish(await serve(io)));
}

function addMigrate(program: Command, io: CliIo, finish: Finish): void {
  const group = program
    .command("migrate")
    .description("bring the database schema up or down, or tell where it is");
  const add = (command: MigrateCommand, description: string): Command =>
    group
      .command(command)
      .description(description)
      .action(async ({ yes = false, force = false }: { yes?: boolean; force?: boolean }) =>
        finish(await migrate({ command, yes, force }, io)),
      );
  add("up", "apply what is pending; `serve` does the same when it starts");
  add("down", "take back the newest migration, with the rows of its tables")
    .option("-y, --yes", "required: nothing brings the rows back")
    .option("--force", "also while instances of session-ledger are connected to the database");
  add("status", "list the migrations that are applied and pending");
}

function addEmbedded(program: Command, io: CliIo, finish: Finish): void {
  program
    .command("embedded")
    .description("ask for the embedded database of DATA_DIR")
    .command("url")
    .description("print the connection string of the running one, with its password")
    .action(async () => {
      const config = configOf(io);
      if (config.databaseUrl !== undefined)
        throw new UsageError("DATABASE_URL is set: there is no embedded database");
      await new Printer(io.stdout, io.signal).print(await io.embeddedUrl(config));
      finish(EXIT.done);
    });
}

interface ClientFlags {
  readonly address?: string;
  readonly retryFor: number;
}

/** The options of every command that calls a running service. */
function addClientOptions(command: Command): Command {
  return command
    .option(
      "-a, --address <host:port>",
      "the service; SESSION_LEDGER_ADDRESS without it",
      addressArgument,
    )
    .addOption(
      new Option(
        "--retry-for <duration>",
        "how long to try again while the service does not answer",
      )
        .argParser(durationArgument)
        .default(durationArgument(RETRY_FOR), RETRY_FOR),
    );
}

function addPush(program: Command, io: CliIo, finish: Finish): void {
  interface Flags extends ClientFlags {
    readonly session: string;
    readonly file?: string;
    readonly keys: boolean;
    readonly keyPrefix?: string;
    readonly stopOnRefused?: boolean;
    readonly json?: boolean;
  }
  const command = program
    .command("push")
    .description("send AG-UI events, one JSON object a line, into a session")
    .requiredOption("-s, --session <id>", "the session to append to")
    .option("-f, --file <path>", "what to read; stdin without it, or with -")
    .option(
      "--key-prefix <text>",
      "idempotency keys <text>:<line number>; without it they are made of the lines, so the same input sent again is known",
    )
    .option("--no-keys", "no idempotency keys: a push whose answer was lost is not sent again")
    .option("--stop-on-refused", "end at the first line that is refused")
    .option("--json", "the summary as JSON on stdout");
  addClientOptions(command).action(async (flags: Flags) => {
    const { session, address, file, keyPrefix, retryFor, ...rest } = flags;
    const { keys, stopOnRefused = false, json = false } = rest;
    const options = { sessionId: session, address, file, keyPrefix, retryForMs: retryFor };
    finish(await push({ ...options, keys, stopOnRefused, json }, io));
  });
}

function addTail(program: Command, io: CliIo, finish: Finish): void {
  interface Flags extends ClientFlags {
    readonly session: string;
    readonly follow?: boolean;
    readonly stream: StreamName;
    readonly after: bigint;
    readonly expand?: boolean;
    readonly limit?: number;
    readonly format: Format;
  }
  const command = program
    .command("tail")
    .description("print a session, one row a line")
    .requiredOption("-s, --session <id>", "the session to print")
    .option("-f, --follow", "go on with what comes, through restarts of the service")
    .addOption(
      new Option("--stream <name>", "what to print")
        .choices(["events", "messages"])
        .default("events"),
    )
    .addOption(
      new Option("--after <seq>", "rows after this number").argParser(seqArgument).default(0n, "0"),
    )
    .option("--expand", "events one by one, as they were before they were merged")
    .option("-n, --limit <rows>", "end after so many lines", limitArgument)
    .addOption(
      new Option("--format <format>", "how to print a row").choices(FORMATS).default("json"),
    );
  addClientOptions(command).action(async (flags: Flags) => {
    const { session, address, stream, after, limit, format, retryFor, ...rest } = flags;
    const { follow = false, expand = false } = rest;
    const options = { sessionId: session, address, stream, afterSeq: after, limit, format };
    finish(await tail({ ...options, expand, retryForMs: retryFor, follow }, io));
  });
}

function addExport(program: Command, io: CliIo, finish: Finish): void {
  interface Flags extends ClientFlags {
    readonly stream: StreamName;
    readonly output?: string;
    readonly force?: boolean;
  }
  const command = program
    .command("export")
    .description("write a session up to where it stands now, one JSON object a line")
    .argument("<session>", "the session to export")
    .addOption(
      new Option(
        "--stream <name>",
        "events as they were before they were merged, as `push` takes them; or messages",
      )
        .choices(["events", "messages"])
        .default("events"),
    )
    .option("-o, --output <path>", "a file, which is there once it is complete; stdout without it")
    .option("--force", "replace the file if it is there already");
  addClientOptions(command).action(async (sessionId: string, flags: Flags) => {
    const { address, retryFor, stream, output, force = false } = flags;
    const options = { sessionId, address, retryForMs: retryFor, stream, output, force };
    finish(await exportSession(options, io));
  });
}

function addSessions(program: Command, io: CliIo, finish: Finish): void {
  interface Flags extends ClientFlags {
    readonly json?: boolean;
    readonly limit?: number;
  }
  const command = program
    .command("sessions")
    .description("list sessions, newest first: a table on a terminal, JSON lines elsewhere")
    .option("--json", "JSON lines on a terminal too")
    .option("-n, --limit <sessions>", "end after so many", limitArgument);
  addClientOptions(command).action(async ({ json, limit, address, retryFor }: Flags) =>
    finish(await sessions({ json, limit, address, retryForMs: retryFor }, io)),
  );
}

function addToken(program: Command, io: CliIo, finish: Finish): void {
  interface Flags extends ClientFlags {
    readonly role: TokenOptions["role"];
    readonly ttl?: number;
    readonly json?: boolean;
  }
  const command = program
    .command("token")
    .description("have a short-lived token issued that opens one session; for admins")
    .argument("<session>", "the session that it opens")
    .addOption(
      new Option("--role <role>", "what may be done with it")
        .choices(TOKEN_ROLES)
        .default("runner"),
    )
    .addOption(
      new Option("--ttl <duration>", "how long it lives; an hour without it").argParser(
        durationArgument,
      ),
    )
    .option("--json", "the token and its end as JSON");
  addClientOptions(command).action(async (sessionId: string, flags: Flags) => {
    const { role, ttl, json = false, address, retryFor } = flags;
    const options = { sessionId, role, ttlMs: ttl, json, address, retryForMs: retryFor };
    finish(await token(options, io));
  });
}

function addErase(program: Command, io: CliIo, finish: Finish): void {
  interface Flags extends ClientFlags {
    readonly yes?: boolean;
    readonly json?: boolean;
  }
  const command = program
    .command("erase")
    .description("delete a session's rows and texts for good; its id and numbers stay used")
    .argument("<session>", "the session to erase")
    .option("-y, --yes", "required: nothing brings the session back")
    .option("--json", "what was erased as JSON on stdout");
  addClientOptions(command).action(async (sessionId: string, flags: Flags) => {
    const { address, retryFor, yes = false, json = false } = flags;
    finish(await erase({ sessionId, address, retryForMs: retryFor, yes, json }, io));
  });
}

function addRetention(program: Command, io: CliIo, finish: Finish): void {
  interface Flags {
    readonly olderThan: number;
    readonly session?: string;
    readonly dryRun?: boolean;
    readonly json?: boolean;
  }
  program
    .command("retention")
    .description(
      "erase ended runs from the beginning of their sessions, on the database; RETENTION_AFTER has the service do it",
    )
    .addOption(
      new Option("--older-than <age>", "runs that ended so long ago: 30d, 720h, 90m")
        .argParser(ageArgument)
        .makeOptionMandatory(),
    )
    .option("-s, --session <id>", "of this session only")
    .option("--dry-run", "tell what would go, and leave it")
    .option("--json", "the summary as JSON on stdout")
    .action(async ({ olderThan, session, dryRun = false, json = false }: Flags) =>
      finish(await retention({ olderThanMs: olderThan, sessionId: session, dryRun, json }, io)),
    );
}

/** The options are the tool's own: tools/import-upstream/command.ts. */
function addImport(program: Command, io: CliIo, finish: Finish): void {
  program
    .command("import")
    .description("take over the sessions, messages and events of an upstream database")
    .argument("[options...]")
    .allowUnknownOption()
    .helpOption(false)
    .action(async (argv: readonly string[]) => finish(await io.importUpstream(argv)));
}

function addHealth(program: Command, io: CliIo, finish: Finish): void {
  program
    .command("health")
    .description("ask the service on this machine whether it lives; for health checks")
    .action(async () => finish(await health(io)));
}
