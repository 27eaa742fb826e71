/**
 * The target of a command's lines: stdout or a file, which is complete or absent: it is written
 * under another name, and renamed when it is complete and on disk.
 */
import { open, realpath, rename, rm, stat } from "node:fs/promises";
import { finished } from "node:stream/promises";
import { codeOf } from "@session-ledger/base/errors";
import { type CliIo, type Output, UsageError } from "./io.ts";

export interface TargetFlags {
  /** Without it, or `-`: stdout. */
  readonly output?: string;
  readonly force?: boolean;
}

export interface Target {
  readonly output: Output;
  readonly isTerminal: boolean;
  /** All lines are written and on disk. */
  complete(): Promise<void>;
  /** Removes an incomplete file. */
  discard(): Promise<void>;
  /** Converts a failure of the printing: an error of the file, or another error. */
  failureOf(error: unknown): unknown;
}

/** A new file gets these permissions, within the umask. */
const FILE_MODE = 0o666;

export async function openTarget(
  { output, force = false }: TargetFlags,
  io: Pick<CliIo, "stdout">,
  mode = FILE_MODE,
): Promise<Target> {
  if (output === undefined || output === "-") {
    return {
      output: io.stdout,
      isTerminal: io.stdout.isTTY === true,
      complete: async () => undefined,
      discard: async () => undefined,
      failureOf: (error) => error,
    };
  }
  const path = await placeOf(output, force);
  const partial = `${path}.${process.pid}.partial`;
  const handle = await open(partial, "wx", mode).catch((error: unknown) => {
    throw cannotWrite(output, error);
  });
  const file = handle.createWriteStream({ flush: true });
  let failure: unknown;
  file.on("error", (error) => (failure ??= error));
  let partialExists = true;
  return {
    output: file,
    isTerminal: false,
    complete: async () => {
      try {
        file.end();
        await finished(file);
        await rename(partial, path);
        partialExists = false;
      } catch (error) {
        throw cannotWrite(output, error);
      }
    },
    discard: async () => {
      file.destroy();
      if (partialExists) await rm(partial, { force: true });
    },
    failureOf: (error) => (error === failure ? cannotWrite(output, error) : error),
  };
}

/** The file itself, when the path is a link to it. */
async function placeOf(output: string, force: boolean): Promise<string> {
  const found = await stat(output).catch((error: unknown) => {
    if (codeOf(error) === "ENOENT") return undefined;
    throw cannotWrite(output, error);
  });
  if (found === undefined) return output;
  // A device or a pipe must be written to, and never replaced: the shell's > does that.
  if (!found.isFile()) throw new UsageError(`cannot write ${output}: it is not a file`);
  if (!force) throw new UsageError(`${output} exists already; --force replaces it`);
  return realpath(output);
}

function cannotWrite(output: string, cause: unknown): UsageError {
  const why = cause instanceof Error ? cause.message : String(cause);
  return new UsageError(`cannot write ${output}: ${why}`, { cause });
}
