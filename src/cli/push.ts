/**
 * Sends the events of a file or a pipe into a session, one line per event, one after the other: the
 * order of the lines is the order of the session. Concurrent calls would be faster and could not
 * keep the order: HTTP/2 gives concurrent calls no order (a large payload waits for flow control
 * while a small one overtakes it), and a repeated call would come after its successors.
 *
 * Every line has an idempotency key, so an interrupted command can be run again unchanged
 * (LineKeys).
 */
import { createHash } from "node:crypto";
import { open } from "node:fs/promises";
import { addAbortSignal, type Readable } from "node:stream";
import type { Command } from "commander";
import { systemClock } from "../base/clock.ts";
import { ledger } from "../runner/client.ts";
import { RpcFailure } from "../runner/failure.ts";
import { decodeLine, isBlank, type Line, LINE_BYTES_MAX, readLines } from "../runner/lines.ts";
import { retrying } from "../runner/retry.ts";
import { lastSeqOf } from "../runner/rows.ts";
import { addSessionArgument, requiredSession, type SessionFlag } from "./arguments.ts";
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
import type { Finish } from "./serve.ts";

export function addPush(program: Command, io: CliIo, finish: Finish): void {
  const command = program
    .command("push")
    .summary("append AG-UI events to a session")
    .description("append AG-UI events to a session, one JSON object per line");
  addSessionArgument(command, "the session to append to")
    .option("-f, --file <path>", "the input; default, and for -: stdin")
    .option(
      "--key-prefix <text>",
      "idempotency keys <text>:<line number>; default: keys made of the lines, so the same input sent again is recognised",
    )
    .option("--no-keys", "no idempotency keys: a push whose answer was lost is not sent again")
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
  const { stream, bytesTotal } = await openInput(flags.file, io);
  return connected(io, flags, async (connection) => {
    const startMs = systemClock.monotonicMs();
    const summary = new Summary(flags.session);
    const progress = startProgress(io.stderr, {
      format: bytesTotal === undefined ? PIPE_FORMAT : FILE_FORMAT,
      total: bytesTotal ?? 0,
    });
    const exitCode = await pushLines(stream, { flags, connection, summary, progress, io });
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
      const refusal = await pushLine(line, keys.next(line), run);
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

interface Refusal {
  readonly reason: string;
  readonly message: string;
}

/** Resolves when the line is stored or refused; rejects when further lines would fail too. */
async function pushLine(line: Line, key: string, run: Run): Promise<Refusal | undefined> {
  const { flags, connection, summary } = run;
  const event = eventLine(line);
  if (event.kind === "empty") return undefined;
  if (event.kind === "refused") return event;
  const { eventType, payload } = event;
  const idempotencyKey = flags.keys ? key : "";
  const request = { sessionId: flags.session, eventType, payload, idempotencyKey };
  try {
    const row = await retrying(() => connection.client.call(ledger.pushSessionEvent, request), {
      ...connection.retry,
      mayRepeat: (failure) => mayRepeat(failure, flags) && connection.retry.mayRepeat(failure),
    });
    summary.stored(lastSeqOf(row), row.deduplicated);
    return undefined;
  } catch (error) {
    if (!(error instanceof RpcFailure) || !isFaultOfLine(error)) throw error;
    return { reason: error.reason ?? error.code, message: explainCall(error) };
  }
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

type EventLine =
  | { readonly kind: "event"; readonly eventType: string; readonly payload: string }
  | { readonly kind: "empty" }
  /** The line is not an event; the service never sees it. */
  | ({ readonly kind: "refused" } & Refusal);

/** Classifies a line of input. The payload is the line, byte for byte. */
export function eventLine(line: Line): EventLine {
  if (line.bytes === undefined) {
    return refused("LINE_TOO_LONG", `the line is longer than ${LINE_BYTES_MAX} bytes`);
  }
  const payload = decodeLine(line);
  if (payload === undefined) return refused("NOT_UTF8", "the line is not UTF-8");
  if (isBlank(payload)) return { kind: "empty" };
  const eventType = typeOf(payload);
  if (eventType === undefined) return refused("NOT_JSON", "the line is not a JSON object");
  if (eventType === "") return refused("NO_TYPE", "the event has no `type`");
  return { kind: "event", eventType, payload };
}

function refused(reason: string, message: string): EventLine {
  return { kind: "refused", reason, message };
}

/** Undefined when the text is not a JSON object, empty when the object has no type. */
function typeOf(payload: string): string | undefined {
  try {
    const parsed: unknown = JSON.parse(payload);
    if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) return undefined;
    return "type" in parsed && typeof parsed.type === "string" ? parsed.type : "";
  } catch {
    return undefined;
  }
}

/** 128 bits: enough that two inputs of one session never collide by chance. */
const DIGEST_HEX = 32;

/**
 * One key per line, made from that line and all lines before it. So the same input sent again, or
 * the same input with additional lines, is recognised line by line up to its earlier end. Two
 * inputs that only share a line (every run may have the same STEP_FINISHED on its seventh line) do
 * not share its key, unless all lines before it are equal too.
 */
export class LineKeys {
  readonly #prefix: string | undefined;
  readonly #seen = createHash("sha256");

  /** With a prefix, a key is the prefix and the line's number, for any content. */
  constructor(prefix: string | undefined) {
    this.#prefix = prefix;
  }

  next({ number, bytes }: Line): string {
    if (this.#prefix !== undefined) return `${this.#prefix}:${number}`;
    this.#seen.update(bytes ?? "").update("\n");
    const digest = this.#seen.copy().digest("hex").slice(0, DIGEST_HEX);
    return `cli:${number}:${digest}`;
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
