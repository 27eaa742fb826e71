/**
 * A session as JSON lines, up to its head when the command began: the raw events, each with its
 * payload from before the merge, in the form that `push` reads; or the messages, in the form of
 * `tail`.
 */
import { type Command, Option } from "commander";
import { systemClock } from "../base/clock.ts";
import { oneLine } from "../runner/lines.ts";
import { headSeq, readRows } from "../runner/session-reader.ts";
import { isEvent, lastSeqOf, rowJson, type StreamName } from "../runner/rows.ts";
import {
  addConnectionOptions,
  type Connection,
  connected,
  type ConnectionFlags,
} from "./connection.ts";
import { type CliIo, EXIT, type ExitCode, Printer, tell } from "./io.ts";
import { startProgress } from "./progress.ts";
import type { Finish } from "./serve.ts";
import { openTarget, type Target, type TargetFlags } from "./target.ts";

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

interface ExportFlags extends ConnectionFlags, TargetFlags {
  readonly stream: StreamName;
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
