/**
 * Sends the lines of a file or a pipe into a session; the order of the lines is the order of the
 * session. There are two ways:
 *
 *   keys     one call a line, one after the other. Every line has an idempotency key, so an
 *            interrupted command can be run again unchanged (LineKeys). Concurrent calls would be
 *            faster and could not keep the order: HTTP/2 gives concurrent calls no order, and a
 *            repeated call would come after its successors.
 *   stream   a push stream, which is many times faster. It fences other writers, and a further
 *            command does not recognise its lines, so the command tells where to continue.
 */
import { open } from "node:fs/promises";
import { addAbortSignal, type Readable } from "node:stream";
import { type Command, Option } from "commander";
import { systemClock } from "../base/clock.ts";
import { ledger } from "../runner/client.ts";
import { RpcFailure } from "../runner/failure.ts";
import { type Line, LINE_BYTES_MAX, readLines } from "../runner/lines.ts";
import { retrying } from "../runner/retry.ts";
import { lastSeqOf, type LedgerRow } from "../runner/rows.ts";
import { proposedEpoch } from "../runner/writer/book.ts";
import {
  addSessionArgument,
  countArgument,
  requiredSession,
  type SessionFlag,
} from "./arguments.ts";
import {
  addConnectionOptions,
  type Connection,
  connected,
  type ConnectionFlags,
} from "./connection.ts";
import {
  type CliIo,
  EXIT,
  type ExitCode,
  explain,
  explainCall,
  printLine,
  tell,
  UsageError,
} from "./io.ts";
import { type Progress, startProgress } from "./progress.ts";
import { type Form, FORMS, LineKeys, type Refusal, type RowLine, rowLine } from "./push-lines.ts";
import { pushStream, type StreamLine } from "./push-stream.ts";
import type { Finish } from "./serve.ts";

export function addPush(program: Command, io: CliIo, finish: Finish): void {
  const command = program
    .command("push")
    .summary("append AG-UI events or messages to a session")
    .description("append AG-UI events or messages to a session, one per line");
  addSessionArgument(command, "the session to append to")
    .option("-f, --file <path>", "the input; default, and for -: stdin")
    .option(
      "--key-prefix <text>",
      "idempotency keys <text>:<line number>; default: keys made of the lines, so the same input sent again is recognised",
    )
    .option("--no-keys", "no idempotency keys: a push whose answer was lost is not sent again")
    .addOption(
      new Option(
        "--as <form>",
        "the lines: AG-UI events, messages as `tail` prints them, or texts of user messages",
      )
        .choices(FORMS)
        .default("events"),
    )
    .addOption(
      new Option(
        "--stream",
        "one push stream: many times faster, ends other writers of the session, and does not recognise an input that is sent again",
      ).conflicts(["keyPrefix", "keys"]),
    )
    .option("--from-line <number>", "skip the lines before this one", countArgument())
    .option("--stop-on-refused", "end at the first refused line")
    .option("--json", "the summary as JSON on stdout");
  addConnectionOptions(command).action(
    async (session: string | undefined, flags: PushFlags & SessionFlag) =>
      finish(await push({ ...flags, session: requiredSession(session, flags) }, io)),
  );
}

interface PushFlags extends ConnectionFlags {
  /** Without it, or `-`: stdin. */
  readonly file?: string;
  /** False: no keys, so a push with an unknown outcome is not sent again. */
  readonly keys: boolean;
  readonly keyPrefix?: string;
  readonly as: Form;
  readonly stream?: boolean;
  readonly fromLine?: number;
  readonly stopOnRefused?: boolean;
  readonly json?: boolean;
}

/** Refused lines are reported one by one up to this number, and then only counted. */
const REFUSALS_SHOWN_MAX = 20;
const FILE_FORMAT =
  "{bar} {percentage}% | {lines} lines | {refused} refused | {eta_formatted} to go";
/** The length of a pipe's input is unknown, so the bar has no end. */
const PIPE_FORMAT = "{lines} lines | {refused} refused | {duration_formatted}";

async function push(flags: Run["flags"], io: CliIo): Promise<ExitCode> {
  const { stream: isStream = false } = flags;
  if (isStream && flags.as !== "events") throw new UsageError("--stream: expected events");
  const { stream, bytesTotal } = await openInput(flags.file, io);
  return connected(io, flags, async (connection) => {
    const startMs = systemClock.monotonicMs();
    const summary = new Summary(flags.session);
    const progress = startProgress(io.stderr, {
      format: bytesTotal === undefined ? PIPE_FORMAT : FILE_FORMAT,
      total: bytesTotal ?? 0,
    });
    const send = isStream ? streamLines : pushLines;
    const exitCode = await send(stream, { flags, connection, summary, progress, io });
    progress.stop();
    const elapsedMs = systemClock.monotonicMs() - startMs;
    tell(io, summary.text(elapsedMs));
    if (flags.json === true) await printLine(io, summary.json(elapsedMs));
    return exitCode;
  });
}

interface Run {
  readonly flags: PushFlags & { readonly session: string };
  readonly connection: Connection;
  readonly summary: Summary;
  readonly progress: Progress;
  readonly io: CliIo;
}

async function pushLines(input: Readable, run: Run): Promise<ExitCode> {
  const { flags, summary, progress, io } = run;
  const keys = new LineKeys(flags.keyPrefix);
  try {
    for await (const line of readLines(input, { bytesMax: LINE_BYTES_MAX })) {
      const { number: lines, endByte } = line;
      summary.lines = lines;
      const key = keys.next(line);
      if (lines < (flags.fromLine ?? 1)) continue;
      const refusal = await pushLine(line, key, run);
      if (refusal !== undefined) tellRefusal(lines, refusal, run);
      progress.update(endByte, { lines, refused: summary.refused });
      if (refusal !== undefined && flags.stopOnRefused === true) break;
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

async function streamLines(input: Readable, run: Run): Promise<ExitCode> {
  const { flags, connection, summary, progress, io } = run;
  let settledLine = (flags.fromLine ?? 1) - 1;
  try {
    await pushStream(eventsOf(input, run), {
      ...connection,
      sessionId: flags.session,
      epoch: proposedEpoch(systemClock),
      stopOnRefused: flags.stopOnRefused === true,
      committed: ({ number, endByte }, stored, lastSeq) => {
        settledLine = number;
        summary.streamed(stored, lastSeq);
        progress.update(endByte, { lines: number, refused: summary.refused });
      },
      refused: ({ number }, failure) => tellRefusal(number, refusalOf(failure), run),
    });
    return summary.refused > 0 ? EXIT.incomplete : EXIT.done;
  } catch (error) {
    const place = `lines up to ${settledLine} are done: continue with --from-line ${settledLine + 1}`;
    if (io.signal.aborted) {
      progress.note(`session-ledger: ${place}`);
      return EXIT.interrupted;
    }
    const { exitCode, message } = explain(error);
    progress.note(`session-ledger: line ${settledLine + 1}: ${message}; ${place}`);
    return exitCode;
  }
}

async function* eventsOf(input: Readable, run: Run): AsyncGenerator<StreamLine, void, undefined> {
  const { flags, summary } = run;
  for await (const line of readLines(input, { bytesMax: LINE_BYTES_MAX })) {
    const { number, endByte } = line;
    summary.lines = number;
    if (number < (flags.fromLine ?? 1)) continue;
    const row = rowLine(line, "events");
    if (row.kind === "refused") tellRefusal(number, row, run);
    if (row.kind === "refused" && flags.stopOnRefused === true) return;
    if (row.kind === "row") yield { number, endByte, ...eventOf(row) };
  }
}

function eventOf({ eventType, payload }: RowLine & { readonly kind: "row" }) {
  return { eventType, payload };
}

/** Resolves when the line is stored or refused; rejects when further lines would fail too. */
async function pushLine(line: Line, key: string, run: Run): Promise<Refusal | undefined> {
  const { flags, connection, summary } = run;
  const read = rowLine(line, flags.as);
  if (read.kind === "empty") return undefined;
  if (read.kind === "refused") return read;
  const { kind: _, ...given } = read;
  const idempotencyKey = flags.keys ? key : "";
  const request = { sessionId: flags.session, ...given, idempotencyKey };
  const { client } = connection;
  const send = () =>
    flags.as === "events"
      ? client.call(ledger.pushSessionEvent, request)
      : client.call(ledger.pushSessionMessage, request);
  try {
    const row = await retrying<LedgerRow>(send, {
      ...connection.retry,
      mayRepeat: (failure) => mayRepeat(failure, flags) && connection.retry.mayRepeat(failure),
    });
    summary.stored(lastSeqOf(row), row.deduplicated);
    return undefined;
  } catch (error) {
    if (!(error instanceof RpcFailure) || !isFaultOfLine(error)) throw error;
    return refusalOf(error);
  }
}

function refusalOf(failure: RpcFailure): Refusal {
  return { reason: failure.reason ?? failure.code, message: explainCall(failure) };
}

/** Without a key, a push whose answer was lost may be stored, and a repeat would store it twice. */
export function mayRepeat(failure: RpcFailure, { keys }: { readonly keys: boolean }): boolean {
  return failure.wasRefusedForNow || (keys && failure.wasLost);
}

/** Other lines may be accepted; a wrong session id, for example, would refuse all lines. */
export function isFaultOfLine({ code, wasRefusedForNow, violations }: RpcFailure): boolean {
  if (violations.some(({ field }) => field === "session_id")) return false;
  return (
    code === "INVALID_ARGUMENT" ||
    code === "ALREADY_EXISTS" ||
    (code === "RESOURCE_EXHAUSTED" && !wasRefusedForNow)
  );
}

function tellRefusal(number: number, { reason, message }: Refusal, run: Run): void {
  const { summary, progress } = run;
  summary.refuse(reason);
  if (summary.refused > REFUSALS_SHOWN_MAX) return;
  progress.note(`session-ledger: line ${number} refused: ${message}`);
  if (summary.refused === REFUSALS_SHOWN_MAX) {
    progress.note("session-ledger: further refusals are only counted");
  }
}

/** The results of a push, during the push and at its end. */
class Summary {
  readonly #sessionId: string;
  readonly #refusedByReason = new Map<string, number>();
  lines = 0;
  refused = 0;
  #pushed = 0;
  #deduplicated = 0;
  #lastSeq = 0n;

  constructor(sessionId: string) {
    this.#sessionId = sessionId;
  }

  refuse(reason: string): void {
    this.refused += 1;
    this.#refusedByReason.set(reason, (this.#refusedByReason.get(reason) ?? 0) + 1);
  }

  stored(lastSeq: bigint, deduplicated: boolean): void {
    if (deduplicated) this.#deduplicated += 1;
    else this.#pushed += 1;
    if (lastSeq > this.#lastSeq) this.#lastSeq = lastSeq;
  }

  /** By a stream: the events of one acknowledgement. */
  streamed(events: number, lastSeq: bigint): void {
    this.#pushed += events;
    if (lastSeq > this.#lastSeq) this.#lastSeq = lastSeq;
  }

  text(elapsedMs: number): string {
    const perSecond = elapsedMs > 0 ? Math.round((this.#pushed * 1_000) / elapsedMs) : 0;
    const reasons = Array.from(this.#refusedByReason, ([reason, count]) => `${reason} ${count}`);
    return [
      `${this.#pushed} pushed`,
      `${this.#deduplicated} already there`,
      `${this.refused} refused${reasons.length === 0 ? "" : ` (${reasons.join(", ")})`}`,
      `in ${(elapsedMs / 1_000).toFixed(1)} s, ${perSecond}/s`,
      `session ${this.#sessionId} is at ${this.#lastSeq}`,
    ].join(", ");
  }

  json(elapsedMs: number): string {
    return JSON.stringify({
      sessionId: this.#sessionId,
      lines: this.lines,
      pushed: this.#pushed,
      deduplicated: this.#deduplicated,
      refused: this.refused,
      refusedByReason: Object.fromEntries(this.#refusedByReason),
      lastSeq: String(this.#lastSeq), // As in protobuf's JSON: 64 bits do not fit a JSON number.
      elapsedMs: Math.round(elapsedMs),
    });
  }
}

interface Input {
  readonly stream: Readable;
  readonly bytesTotal: number | undefined;
}

export async function openInput(
  file: string | undefined,
  { stdin, signal }: CliIo,
): Promise<Input> {
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
