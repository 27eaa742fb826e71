/**
 * Streams of text that outlive their connection, for `useChat` of the Vercel AI SDK. The context has the
 * form of that of the package `resumable-stream`, with the ledger in place of Redis:
 *
 *   const streams = createResumableStreamContext({ address: "127.0.0.1:9000", waitUntil: after });
 *
 * A stream is a session with one run and one text, which has no user messages. The first process
 * that stores the RUN_STARTED makes the stream; all others read it.
 */
import type { Session } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { type LedgerClient, ledger } from "../../client.ts";
import { RpcFailure, textOf as errorText } from "../../failure.ts";
import type { SessionWriter, WriterProblem } from "../../writer/types.ts";
import { createSessionWriter } from "../../writer/writer.ts";
import {
  type LedgerConnection,
  clientOf,
  eventsToRunEnd,
  LOST_AFTER_MS,
  onCancel,
  RETRY,
  sessionOf,
} from "./follow-run.ts";

export interface ResumableStreamOptions extends LedgerConnection {
  /** Keeps the process alive until the promise resolves, as `after` of Next.js. */
  readonly waitUntil?: ((promise: Promise<unknown>) => void) | null;
  /** The beginning of the ids of sessions; default `stream`. */
  readonly keyPrefix?: string;
  /** A stream that is not done, without a new text for this time, fails; default 60,000 milliseconds. */
  readonly lostAfterMs?: number;
  /** Called with the problems of writing. */
  readonly onProblem?: (streamId: string, problem: WriterProblem) => void;
}

type TextStream = ReadableStream<string>;

/**
 * The signal aborts when somebody cancels the run of the stream; the stream itself is cancelled too. A
 * stream with two branches continues in the other one, so give the signal to its source.
 */
type MakeStream = (signal: AbortSignal) => TextStream;

export interface ResumableStreamContext {
  /** Creates the stream, or resumes an existing one with this id. Null: it is done. */
  resumableStream(
    streamId: string,
    makeStream: MakeStream,
    skipCharacters?: number,
  ): Promise<TextStream | null>;
  /** The same: two requests may both come first. */
  createNewResumableStream(
    streamId: string,
    makeStream: MakeStream,
    skipCharacters?: number,
  ): Promise<TextStream | null>;
  /** Null: the stream is done. Undefined: it does not exist. */
  resumeExistingStream(
    streamId: string,
    skipCharacters?: number,
  ): Promise<TextStream | null | undefined>;
  hasExistingStream(streamId: string): Promise<null | true | "DONE">;
}

export function createResumableStreamContext(
  options: ResumableStreamOptions,
): ResumableStreamContext {
  const { keyPrefix = "stream", lostAfterMs = LOST_AFTER_MS, waitUntil, onProblem } = options;
  const { address, token, tls } = options;
  const connection = { address, ...(token && { token }), ...(tls && { tls }) };
  const client = clientOf(connection);

  const resumeExistingStream: ResumableStreamContext["resumeExistingStream"] = async (
    streamId,
    skipCharacters = 0,
  ) => {
    const session = await sessionOf(client, `${keyPrefix}:${streamId}`);
    if (session === undefined || session.eventSeq === 0n) return undefined;
    if (session.openRunId === undefined) return null;
    return textOf(session, { ...connection, lostAfterMs, skipCharacters });
  };

  const resumableStream: ResumableStreamContext["resumableStream"] = async (
    streamId,
    makeStream,
    skipCharacters,
  ) => {
    const sessionId = `${keyPrefix}:${streamId}`;
    if (!(await isFirst(client, sessionId)))
      return (await resumeExistingStream(streamId, skipCharacters)) ?? null;
    const writer = createSessionWriter({
      ...connection,
      sessionId,
      messages: "manual",
      onProblem: (problem) => onProblem?.(streamId, problem),
    });
    const { shown, recorded } = record(makeStream, sessionId, writer);
    waitUntil?.(recorded);
    return shown;
  };

  return {
    resumableStream,
    createNewResumableStream: resumableStream,
    resumeExistingStream,
    async hasExistingStream(streamId) {
      const session = await sessionOf(client, `${keyPrefix}:${streamId}`);
      if (session === undefined || session.eventSeq === 0n) return null;
      return session.openRunId === undefined ? "DONE" : true;
    },
  };
}

/** Begins the run. Of all callers with one id, one gets true. */
async function isFirst(client: LedgerClient, sessionId: string): Promise<boolean> {
  const start = { type: "RUN_STARTED", threadId: sessionId, runId: sessionId };
  // The content is this caller's own: a repeated call is known as such, and that of another one refused.
  const payload = JSON.stringify({ ...start, metadata: { maker: crypto.randomUUID() } });
  const row = { sessionId, eventType: "RUN_STARTED", payload, idempotencyKey: "start" };
  try {
    await client.call(ledger.pushSessionEvent, row, RETRY);
    return true;
  } catch (error) {
    if (error instanceof RpcFailure && error.reason === "KEY_REUSED") return false;
    throw error;
  }
}

/** One event has at most this many characters, far below the largest payload. */
const DELTA_CHARS_MAX = 65_536;

interface Recording {
  /** The text as it comes. It ends when the ledger has its end. */
  readonly shown: TextStream;
  readonly recorded: Promise<void>;
}

/** Reads the source to its end or a cancel, also when nobody reads `shown` any more. */
function record(makeStream: MakeStream, sessionId: string, writer: SessionWriter): Recording {
  const stopping = new AbortController();
  const { signal } = stopping;
  const source = makeStream(signal).getReader();
  onCancel(writer, sessionId, (reason) => {
    stopping.abort(reason);
    void source.cancel(reason).catch(() => undefined);
  });
  let reader: ReadableStreamDefaultController<string> | undefined;
  const shown = new ReadableStream<string>({
    start: (controller) => {
      reader = controller;
    },
    cancel: () => {
      reader = undefined;
    },
  });
  const messageId = "text";
  const read = async (): Promise<void> => {
    writer.event({ type: "TEXT_MESSAGE_START", messageId, role: "developer" });
    for (let next = await source.read(); !next.done; next = await source.read()) {
      const text = next.value;
      for (let at = 0; at < text.length; at += DELTA_CHARS_MAX) {
        const delta = text.slice(at, at + DELTA_CHARS_MAX);
        writer.event({ type: "TEXT_MESSAGE_CONTENT", messageId, delta });
      }
      reader?.enqueue(text);
    }
    await finish();
  };
  const finish = async (): Promise<void> => {
    writer.event({ type: "TEXT_MESSAGE_END", messageId });
    const outcome = signal.aborted ? { outcome: { type: "cancelled" } } : {};
    writer.event({ type: "RUN_FINISHED", threadId: sessionId, runId: sessionId, ...outcome });
    await writer.close();
    reader?.close();
  };
  const recorded = read().catch(async (error: unknown) => {
    if (signal.aborted) return finish();
    const message = errorText(error);
    writer.event({ type: "RUN_ERROR", message });
    await writer.close();
    reader?.error(error);
  });
  return { shown, recorded };
}

interface ResumeOptions extends LedgerConnection {
  readonly lostAfterMs: number;
  readonly skipCharacters: number;
}

/** The text from the ledger: that so far, and the rest as it comes. */
function textOf(session: Session, { skipCharacters, ...following }: ResumeOptions): TextStream {
  const leaving = new AbortController();
  const events = eventsToRunEnd(session, { ...following, signal: leaving.signal });
  let skip = skipCharacters;
  return new ReadableStream<string>({
    async pull(controller) {
      for (;;) {
        const next = await events.next();
        if (next.done === true) return controller.close();
        const { eventType, event } = next.value;
        const { delta, message } = event;
        if (eventType === "RUN_ERROR") throw new Error(String(message));
        if (eventType !== "TEXT_MESSAGE_CONTENT" || typeof delta !== "string") continue;
        const text = delta.slice(skip);
        skip = Math.max(0, skip - delta.length);
        if (text !== "") return controller.enqueue(text);
      }
    },
    cancel: () => leaving.abort(),
  });
}
