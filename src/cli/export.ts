/**
 * A session as JSON lines, up to its head when the command began: the raw events, each with its
 * payload from before the merge, in the form that `push` reads; or the messages, in the form of
 * `tail`.
 *
 * A file is complete or absent: it is written under another name and renamed when it is complete
 * and on disk. So for a script, an existing file is a complete file.
 */
import { open, realpath, rename, rm, stat } from "node:fs/promises";
import { finished } from "node:stream/promises";
import { type Command, Option } from "commander";
import { systemClock } from "../base/clock.ts";
import { codeOf } from "../base/errors.ts";
import { oneLine } from "../runner/lines.ts";
import { headSeq, readRows } from "../runner/session-reader.ts";
import { isEvent, lastSeqOf, rowJson, type StreamName } from "../runner/rows.ts";
import {
  addConnectionOptions,
  type Connection,
  connected,
  type ConnectionFlags,
} from "./connection.ts";
import { type CliIo, EXIT, type ExitCode, type Output, Printer, tell, UsageError } from "./io.ts";
import { startProgress } from "./progress.ts";
import type { Finish } from "./serve.ts";

export function addExport(program: Command, io: CliIo, finish: Finish): void {
  const command = program
    .command("export")
    .summary("write the current rows of a session")
    .description("write the current rows of a session, one JSON object per line")
    .argument("<session>", "the session to export")
    .addOption(
      new Option(
        "--stream <name>",
        "events as they were before they were merged, as `push` takes them; or messages",
      )
        .choices(["events", "messages"])
        .default("events"),
    )
    .option("-o, --output <path>", "a file, which exists only when it is complete; default: stdout")
    .option("--force", "replace an existing file");
  addConnectionOptions(command).action(async (sessionId: string, flags: ExportFlags) =>
    finish(await exportSession(sessionId, flags, io)),
  );
}

interface ExportFlags extends ConnectionFlags {
  readonly stream: StreamName;
  /** Without it, or `-`: stdout. */
  readonly output?: string;
  readonly force?: boolean;
}

async function exportSession(sessionId: string, flags: ExportFlags, io: CliIo): Promise<ExitCode> {
  const target = await openTarget(flags, io);
  const request = { sessionId, stream: flags.stream };
  try {
    return await connected(io, flags, (connection) => run(request, { connection, target, io }));
  } catch (error) {
    // The signal ends the pause between attempts and the call in progress.
    if (io.signal.aborted) return EXIT.interrupted;
    throw error;
  } finally {
    await target.discard();
  }
}

interface Run {
  readonly connection: Connection;
  readonly target: Target;
  readonly io: CliIo;
}

/** A seq need not fit a number; its fraction of the whole does. */
const PROGRESS_STEPS = 10_000n;
const PROGRESS_FORMAT = "{bar} {percentage}% | {lines} lines | {eta_formatted} to go";

async function run(
  { sessionId, stream }: { readonly sessionId: string; readonly stream: StreamName },
  { connection, target, io }: Run,
): Promise<ExitCode> {
  const { client, retry } = connection;
  const startMs = systemClock.monotonicMs();
  const head = await headSeq(client, { stream, sessionId }, retry);
  const request = { stream, sessionId, afterSeq: 0n, expand: stream === "events", untilSeq: head };
  const progress = startProgress(io.stderr, {
    format: PROGRESS_FORMAT,
    total: Number(PROGRESS_STEPS),
    hasBar: !target.isTerminal && head > 0n,
  });
  const printer = new Printer(target.output, io.signal);
  let lines = 0;
  try {
    for await (const row of readRows(client, request, retry)) {
      const line = isEvent(row) ? oneLine(row.payload) : rowJson(row);
      if (!(await printer.print(line))) return EXIT.done; // The reader has closed the pipe.
      lines += 1;
      progress.update(Number((lastSeqOf(row) * PROGRESS_STEPS) / head), { lines });
      if (io.signal.aborted) break;
    }
  } catch (error) {
    throw target.failureOf(error);
  } finally {
    progress.stop();
  }
  if (io.signal.aborted) return EXIT.interrupted;
  await target.complete();
  const seconds = ((systemClock.monotonicMs() - startMs) / 1_000).toFixed(1);
  tell(io, `${lines} ${stream} in ${seconds} s, session ${sessionId} up to ${head}`);
  return EXIT.done;
}

/** The target of the lines. */
interface Target {
  readonly output: Output;
  readonly isTerminal: boolean;
  /** All lines are written and on disk. */
  complete(): Promise<void>;
  /** Removes an incomplete file. */
  discard(): Promise<void>;
  /** Converts a failure of the printing: an error of the file, or another error. */
  failureOf(error: unknown): unknown;
}

async function openTarget({ output, force = false }: ExportFlags, io: CliIo): Promise<Target> {
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
  const handle = await open(partial, "wx").catch((error: unknown) => {
    throw cannotWrite(output, error);
  });
  const file = handle.createWriteStream({ flush: true });
  let failure: unknown;
  file.on("error", (error) => (failure ??= error));
  let isThere = true;
  return {
    output: file,
    isTerminal: false,
    complete: async () => {
      try {
        file.end();
        await finished(file);
        await rename(partial, path);
        isThere = false;
      } catch (error) {
        throw cannotWrite(output, error);
      }
    },
    discard: async () => {
      file.destroy();
      if (isThere) await rm(partial, { force: true });
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
