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
import { systemClock } from "../base/clock.ts";
import { rowJson } from "../runner/json.ts";
import { oneLine } from "../runner/json-lines.ts";
import { headSeq, readRows } from "../runner/read.ts";
import { isEvent, type LedgerRow, lastSeqOf, type StreamName } from "../runner/rows.ts";
import { type Connection, type ConnectionOptions, connected } from "./connection.ts";
import { EXIT, type ExitCode } from "./exit.ts";
import { UsageError } from "./explain.ts";
import { type CliIo, type Output, tell } from "./io.ts";
import { Printer } from "./printer.ts";
import { type ExportProgress, startExportProgress } from "./progress.ts";

export interface ExportOptions extends ConnectionOptions {
  readonly sessionId: string;
  readonly stream: StreamName;
  /** Undefined or `-`: stdout. */
  readonly output: string | undefined;
  /** True: an existing file may be replaced. */
  readonly force: boolean;
}

export async function exportSession(options: ExportOptions, io: CliIo): Promise<ExitCode> {
  const target = await openTarget(options, io);
  try {
    return await connected(io, options, (connection) => run(options, { connection, target, io }));
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

async function run(options: ExportOptions, { connection, target, io }: Run): Promise<ExitCode> {
  const { client, retry } = connection;
  const { sessionId, stream } = options;
  const startMs = systemClock.monotonicMs();
  const head = await headSeq(client, { stream, sessionId }, retry);
  const request = { stream, sessionId, afterSeq: 0n, expand: stream === "events", untilSeq: head };
  const progress = startExportProgress(target.isTerminal ? undefined : io.stderr, head);
  const lines = await print(readRows(client, request, retry), { target, progress, io }).finally(
    () => progress.stop(),
  );
  if (lines === undefined) return EXIT.done; // The reader has closed the pipe.
  if (io.signal.aborted) return EXIT.interrupted;
  await target.complete();
  const seconds = ((systemClock.monotonicMs() - startMs) / 1_000).toFixed(1);
  tell(io, `${lines} ${stream} in ${seconds} s, session ${sessionId} up to ${head}`);
  return EXIT.done;
}

/** The number of printed lines; undefined when the reader has gone. */
async function print(
  rows: AsyncIterable<LedgerRow>,
  {
    target,
    progress,
    io,
  }: { readonly target: Target; readonly progress: ExportProgress; readonly io: CliIo },
): Promise<number | undefined> {
  const printer = new Printer(target.output, io.signal);
  let lines = 0;
  try {
    for await (const row of rows) {
      if (!(await printer.print(lineOf(row)))) return undefined;
      lines += 1;
      progress.update({ lines, seq: lastSeqOf(row) });
      if (io.signal.aborted) break;
    }
    return lines;
  } catch (error) {
    throw target.failureOf(error);
  }
}

function lineOf(row: LedgerRow): string {
  return isEvent(row) ? oneLine(row.payload) : rowJson(row);
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

async function openTarget({ output, force }: ExportOptions, io: CliIo): Promise<Target> {
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
    if (isNotThere(error)) return undefined;
    throw cannotWrite(output, error);
  });
  if (found === undefined) return output;
  // A device or a pipe must be written to, and never replaced: the shell's > does that.
  if (!found.isFile()) throw new UsageError(`cannot write ${output}: it is not a file`);
  if (!force) throw new UsageError(`${output} is there already; --force replaces it`);
  return realpath(output);
}

function isNotThere(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ENOENT";
}

function cannotWrite(output: string, cause: unknown): UsageError {
  const why = cause instanceof Error ? cause.message : String(cause);
  return new UsageError(`cannot write ${output}: ${why}`, { cause });
}
