/**
 * A session as JSON lines, up to where it stood when the command began: the raw events, each the
 * payload it was before it was merged, as `push` takes them; or the messages, as `tail` prints them.
 *
 * A file is there as a whole or not at all: it is written beside its place and moved there when it is
 * complete and on disk. So a script may take the file's existence for its completeness.
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
  /** A file that is there may be replaced. */
  readonly force: boolean;
}

export async function exportSession(options: ExportOptions, io: CliIo): Promise<ExitCode> {
  const target = await openTarget(options, io);
  try {
    return await connected(io, options, (connection) => run(options, { connection, target, io }));
  } catch (error) {
    // The signal ends the waiting between attempts and the call under way.
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
  if (lines === undefined) return EXIT.done; // The reader has seen enough.
  if (io.signal.aborted) return EXIT.interrupted;
  await target.complete();
  const seconds = ((systemClock.monotonicMs() - startMs) / 1_000).toFixed(1);
  tell(io, `${lines} ${stream} in ${seconds} s, session ${sessionId} up to ${head}`);
  return EXIT.done;
}

/** How many lines were printed; undefined when nobody reads them any more. */
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

/** Where the lines go. */
interface Target {
  readonly output: Output;
  readonly isTerminal: boolean;
  /** The lines are all there and on disk. */
  complete(): Promise<void>;
  /** Leaves nothing behind of what is not complete. */
  discard(): Promise<void>;
  /** What a failure of the printing was: one of the file's, or another. */
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

/** The file itself, where the path is a link to it. */
async function placeOf(output: string, force: boolean): Promise<string> {
  const found = await stat(output).catch((error: unknown) => {
    if (isNotThere(error)) return undefined;
    throw cannotWrite(output, error);
  });
  if (found === undefined) return output;
  // A device or a pipe must be written to, not replaced: that is what the shell's > is for.
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
