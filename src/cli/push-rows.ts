/**
 * Sends rows one after the other, each with its idempotency key, and reports the refused ones. A row is
 * a line of an input (push.ts), or one of the events that an import makes of a line (import.ts).
 */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { open } from "node:fs/promises";
import { addAbortSignal, type Readable } from "node:stream";
import type { AguiEvent } from "@session-ledger/agui/event-maker";
import { systemClock } from "@session-ledger/base/clock";
import { ledger } from "@session-ledger/runner/internal/client";
import { RpcFailure } from "@session-ledger/runner/internal/failure";
import { retrying } from "@session-ledger/runner/internal/retry";
import { lastSeqOf, type LedgerRow, type StreamName } from "@session-ledger/runner/internal/rows";
import { type Connection, connected, type ConnectionFlags } from "./connection.ts";
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
import type { LineRefusal, RowLine } from "./push-lines.ts";

export interface RowToPush {
  readonly line: number;
  /** The number of input bytes up to the end of the line. */
  readonly endByte: number;
  readonly read: RowLine;
  readonly key: string;
  /** The rows that were merged into it. */
  readonly parts?: readonly RowToPush[];
}

export interface PushRun {
  readonly sessionId: string;
  readonly stream: StreamName;
  /** False: no keys, so a push with an unknown outcome is not sent again. */
  readonly keys: boolean;
  readonly stopOnRefused: boolean;
  readonly connection: Connection;
  readonly summary: Summary;
  readonly progress: Progress;
  readonly io: CliIo;
}

/** Refused lines are reported one by one up to this number, and then only counted. */
const REFUSALS_SHOWN_MAX = 20;
const FILE_FORMAT =
  "{bar} {percentage}% | {lines} lines | {refused} refused | {eta_formatted} to go";
/** The length of a pipe's input is unknown, so the bar has no end. */
const PIPE_FORMAT = "{lines} lines | {refused} refused | {duration_formatted}";

interface RowPushFlags extends ConnectionFlags {
  /** Without it, or `-`: stdin. */
  readonly file?: string | undefined;
  readonly json?: boolean;
}

type RowPushParts = Pick<PushRun, "sessionId" | "stream" | "keys" | "stopOnRefused">;

/** Opens the input and the connection, sends, and prints the summary. */
export async function withInput(
  flags: RowPushFlags,
  { io, ...parts }: RowPushParts & { readonly io: CliIo },
  send: (input: Readable, run: PushRun) => Promise<ExitCode>,
): Promise<ExitCode> {
  const { stream, bytesTotal } = await openInput(flags.file, io);
  return connected(io, flags, async (connection) => {
    const startMs = systemClock.monotonicMs();
    const summary = new Summary(parts.sessionId);
    const progress = startProgress(io.stderr, {
      format: bytesTotal === undefined ? PIPE_FORMAT : FILE_FORMAT,
      total: bytesTotal ?? 0,
    });
    const exitCode = await send(stream, { ...parts, connection, summary, progress, io });
    progress.stop();
    const elapsedMs = systemClock.monotonicMs() - startMs;
    tell(io, summary.text(elapsedMs));
    if (flags.json === true) await printLine(io, summary.json(elapsedMs));
    return exitCode;
  });
}

export async function pushRows(rows: AsyncIterable<RowToPush>, run: PushRun): Promise<ExitCode> {
  const { stopOnRefused, summary, progress, io } = run;
  try {
    for await (const row of rows) {
      const { line: lines, endByte } = row;
      if (io.signal.aborted) return EXIT.interrupted;
      summary.lines = lines;
      const refused = await pushOrParts(row, run);
      progress.update(endByte, { lines, refused: summary.refused });
      if (refused && stopOnRefused) break;
    }
  } catch (error) {
    // The signal ends the reading of the input and the pause between attempts.
    if (io.signal.aborted) return EXIT.interrupted;
    const { exitCode, message } = explain(error);
    progress.note(`session-ledger: line ${summary.lines}: ${message}`);
    return exitCode;
  }
  if (io.signal.aborted) return EXIT.interrupted;
  return summary.refused > 0 ? EXIT.incomplete : EXIT.done;
}

/** True: the row, or a part of it, is refused. */
async function pushOrParts(row: RowToPush, run: PushRun): Promise<boolean> {
  const refusal = await pushRow(row, run);
  if (refusal === undefined) return false;
  const { parts = [] } = row;
  let hasRefused = parts.length === 0;
  if (hasRefused) tellRefusal(row.line, refusal, run);
  for (const [at, part] of parts.entries()) {
    const ofPart = await pushRow(part, run);
    if (ofPart === undefined) continue;
    hasRefused = true;
    tellRefusal(part.line, ofPart, run);
    // An earlier row with this key stands for other events: the rest of them may be in it.
    if (at === 0 && ofPart.reason === KEY_REUSED) break;
  }
  return hasRefused;
}

const KEY_REUSED = "KEY_REUSED";

/** Resolves when the row is stored or refused; rejects when further rows would fail too. */
async function pushRow(
  { read, key, parts }: RowToPush,
  run: PushRun,
): Promise<LineRefusal | undefined> {
  const { sessionId, stream, keys, connection, summary } = run;
  if (read.kind === "empty") return undefined;
  if (read.kind === "refused") return read;
  const { kind: _, ...given } = read;
  const request = { sessionId, ...given, idempotencyKey: keys ? key : "" };
  const { client } = connection;
  const send = () =>
    stream === "events"
      ? client.call(ledger.pushSessionEvent, request)
      : client.call(ledger.pushSessionMessage, request);
  try {
    const row = await retrying<LedgerRow>(send, {
      ...connection.retry,
      mayRepeat: (failure) => mayRepeat(failure, run) && connection.retry.mayRepeat(failure),
    });
    summary.stored(lastSeqOf(row), { events: parts?.length ?? 1, isNew: !row.deduplicated });
    return undefined;
  } catch (error) {
    if (!(error instanceof RpcFailure) || !isFaultOfLine(error)) throw error;
    return refusalOf(error);
  }
}

export function refusalOf(failure: RpcFailure): LineRefusal {
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

export function tellRefusal(
  number: number,
  { reason, message }: LineRefusal,
  { summary, progress }: Pick<PushRun, "summary" | "progress">,
): void {
  summary.refuse(reason);
  if (summary.refused > REFUSALS_SHOWN_MAX) return;
  progress.note(`session-ledger: line ${number} refused: ${message}`);
  if (summary.refused === REFUSALS_SHOWN_MAX) {
    progress.note("session-ledger: further refusals are only counted");
  }
}

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

  stored(
    lastSeq: bigint,
    { events, isNew }: { readonly events: number; readonly isNew: boolean },
  ): void {
    if (isNew) this.#pushed += events;
    else this.#deduplicated += events;
    if (lastSeq > this.#lastSeq) this.#lastSeq = lastSeq;
  }

  text(elapsedMs: number): string {
    const perSecond = elapsedMs > 0 ? Math.round((this.#pushed * 1_000) / elapsedMs) : 0;
    const reasons = Array.from(this.#refusedByReason, ([reason, count]) => `${reason} ${count}`);
    return [
      `${this.#pushed} pushed`,
      `${this.#deduplicated} already stored`,
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

/** A key is made of the run and of the place in it, so a longer file continues an earlier one. */
export async function* keyed(
  events: AsyncIterable<AguiEvent>,
  place: { readonly line: number; readonly endByte: number },
): AsyncGenerator<RowToPush, void, undefined> {
  let run = "";
  let nth = 0;
  for await (const event of events) {
    if (event.type === "RUN_STARTED") {
      run = createHash("sha256").update(String(event["runId"])).digest("hex").slice(0, 32);
      nth = 0;
    }
    nth += 1;
    const { type: eventType } = event;
    const read = { kind: "row", eventType, payload: JSON.stringify(event) } as const;
    yield { line: place.line, endByte: place.endByte, read, key: `import:${run}:${nth}` };
  }
}

/** Two files with the same beginning have different runs. */
export async function runIdOf(
  format: string,
  { file }: Pick<RowPushFlags, "file">,
): Promise<string> {
  if (file === undefined || file === "-") return crypto.randomUUID();
  const digest = createHash("sha256");
  try {
    for await (const chunk of createReadStream(file)) digest.update(chunk);
  } catch (error) {
    throw unreadable(file, error);
  }
  return `${format}-${digest.digest("hex").slice(0, 16)}`;
}

export async function openInput(
  file: string | undefined,
  { stdin, signal }: CliIo,
): Promise<{ readonly stream: Readable; readonly bytesTotal: number | undefined }> {
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
    throw unreadable(file, error);
  }
}

function unreadable(file: string, cause: unknown): UsageError {
  const why = cause instanceof Error ? cause.message : String(cause);
  return new UsageError(`cannot read ${file}: ${why}`, { cause });
}
