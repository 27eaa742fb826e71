/**
 * Sends the events of a file or a pipe into a session, one line per event, one after the other: the
 * order of the lines is the order of the session. Concurrent calls would be faster and could not
 * keep the order: HTTP/2 gives concurrent calls no order (a large payload waits for flow control
 * while a small one overtakes it), and a repeated call would come after its successors.
 *
 * Every line has an idempotency key, so an interrupted command can be run again unchanged
 * (event-line.ts).
 */
import { open } from "node:fs/promises";
import { addAbortSignal, type Readable } from "node:stream";
import { systemClock } from "../base/clock.ts";
import { ledger } from "../runner/client.ts";
import { RpcFailure } from "../runner/failure.ts";
import { LINE_BYTES_MAX } from "../runner/json-lines.ts";
import { type Line, readLines } from "../runner/lines.ts";
import { retrying } from "../runner/retry.ts";
import { lastSeqOf } from "../runner/rows.ts";
import { type Connection, type ConnectionOptions, connected } from "./connection.ts";
import { eventLine, LineKeys } from "./event-line.ts";
import { EXIT, type ExitCode } from "./exit.ts";
import { explain, explainCall, UsageError } from "./explain.ts";
import { type CliIo, tell } from "./io.ts";
import { Printer } from "./printer.ts";
import { type Progress, startProgress } from "./progress.ts";
import { isFaultOfLine, mayRepeat } from "./push-failures.ts";
import { PushSummary } from "./push-summary.ts";

export interface PushOptions extends ConnectionOptions {
  readonly sessionId: string;
  /** Undefined or `-`: stdin. */
  readonly file: string | undefined;
  /** False: no keys, so a push with an unknown outcome is not sent again. */
  readonly keys: boolean;
  readonly keyPrefix: string | undefined;
  readonly stopOnRefused: boolean;
  /** True: the summary is JSON on stdout. */
  readonly json: boolean;
}

/** Refused lines are reported one by one up to this number, and then only counted. */
const REFUSALS_SHOWN_MAX = 20;

export async function push(options: PushOptions, io: CliIo): Promise<ExitCode> {
  const input = await openInput(options.file, io);
  return connected(io, options, async (connection) => {
    const startMs = systemClock.monotonicMs();
    const summary = new PushSummary(options.sessionId);
    const progress = startProgress(io.stderr, input);
    const exitCode = await pushLines(input.stream, { options, connection, summary, progress, io });
    progress.stop();
    const elapsedMs = systemClock.monotonicMs() - startMs;
    tell(io, summary.text(elapsedMs));
    if (options.json) await new Printer(io.stdout, io.signal).print(summary.json(elapsedMs));
    return exitCode;
  });
}

interface Run {
  readonly options: PushOptions;
  readonly connection: Connection;
  readonly summary: PushSummary;
  readonly progress: Progress;
  readonly io: CliIo;
}

async function pushLines(input: Readable, run: Run): Promise<ExitCode> {
  const { options, summary, progress, io } = run;
  const keys = new LineKeys(options.keyPrefix);
  try {
    for await (const line of readLines(input, { bytesMax: LINE_BYTES_MAX })) {
      summary.lines = line.number;
      const refusal = await pushLine(line, keys.next(line), run);
      if (refusal !== undefined) tellRefusal(line, refusal, run);
      progress.update({ bytes: line.endByte, lines: line.number, refused: summary.refused });
      if (refusal !== undefined && options.stopOnRefused) break;
      if (io.signal.aborted) return EXIT.interrupted;
    }
  } catch (error) {
    // The signal ends the reading of the input and the pause between attempts.
    if (io.signal.aborted) return EXIT.interrupted;
    const { exitCode, message } = explain(error);
    progress.note(`session-ledger: line ${summary.lines}: ${message}`);
    return exitCode;
  }
  return summary.refused > 0 ? EXIT.incomplete : EXIT.done;
}

interface Refusal {
  readonly reason: string;
  readonly message: string;
}

/**
 * Resolves when the line is stored, or finally refused; rejects when further lines would fail too.
 */
async function pushLine(line: Line, key: string, run: Run): Promise<Refusal | undefined> {
  const { options, connection, summary } = run;
  const event = eventLine(line);
  if (event.kind === "empty") return undefined;
  if (event.kind === "refused") return event;
  const request = {
    sessionId: options.sessionId,
    eventType: event.eventType,
    payload: event.payload,
    idempotencyKey: options.keys ? key : "",
  };
  try {
    const row = await retrying(
      () => connection.client.call(ledger.pushSessionEvent, request),
      (failure) => mayRepeat(failure, options),
      connection.retry,
    );
    summary.stored({ lastSeq: lastSeqOf(row), deduplicated: row.deduplicated });
    return undefined;
  } catch (error) {
    if (!(error instanceof RpcFailure) || !isFaultOfLine(error)) throw error;
    return { reason: error.reason ?? error.code, message: explainCall(error) };
  }
}

function tellRefusal(line: Line, { reason, message }: Refusal, { summary, progress }: Run): void {
  summary.refuse(reason);
  if (summary.refused > REFUSALS_SHOWN_MAX) return;
  progress.note(`session-ledger: line ${line.number} refused: ${message}`);
  if (summary.refused === REFUSALS_SHOWN_MAX) {
    progress.note("session-ledger: further refusals are only counted");
  }
}

interface Input {
  readonly stream: Readable;
  readonly bytesTotal: number | undefined;
}

async function openInput(file: string | undefined, { stdin, signal }: CliIo): Promise<Input> {
  if (file === undefined || file === "-") {
    return { stream: addAbortSignal(signal, stdin), bytesTotal: undefined };
  }
  try {
    const handle = await open(file);
    const found = await handle.stat();
    if (found.isDirectory()) {
      await handle.close();
      throw new UsageError("it is a directory");
    }
    const stream = addAbortSignal(signal, handle.createReadStream());
    return { stream, bytesTotal: found.isFile() ? found.size : undefined };
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new UsageError(`cannot read ${file}: ${why}`, { cause: error });
  }
}
