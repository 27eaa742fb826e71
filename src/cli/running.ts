/** A program of commander as a function: its exit code is the result, and no failure leaves it. */
import { Command, CommanderError } from "commander";
import { packageVersion } from "../observability/version.ts";
import { type CliIo, EXIT, exitHelp, explain, tell } from "./io.ts";
import type { Finish } from "./serve.ts";

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
  return (
    new Command(name)
      .version(packageVersion())
      .exitOverride()
      .configureOutput({
        writeOut: (text) => io.stdout.write(text),
        writeErr: (text) => io.stderr.write(text),
      })
      .configureHelp({ subcommandTerm: (command) => command.name() })
      // The help of a program with commands is an overview on one screen.
      .addHelpText("afterAll", ({ command: { parent, commands } }) =>
        parent === null && commands.length > 0 ? "" : EXIT_HELP,
      )
  );
}

const EXIT_HELP = `\nExit codes:\n${exitHelp()}`;
