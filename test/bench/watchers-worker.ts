/**
 * Many watchers on raw HTTP/2, on a thread of their own: a gRPC client in JavaScript would be the
 * slowest part of what is measured. Each stream counts its messages; where a row tells when it was
 * sent, the time it took is noted.
 *
 * Commands come as messages of the parent, and so do answers go; watchers.ts is the other side.
 */
import { type ClientHttp2Session, type ClientHttp2Stream, connect } from "node:http2";
import { parentPort } from "node:worker_threads";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  SessionEventSchema,
  WatchSessionEventsRequestSchema,
} from "@session-ledger/proto/ambient/v1/events_pb";
import { framed, messageCutter } from "./grpc-messages.ts";
import type { Answer, Command, Pace } from "./watchers.ts";

const WINDOW_BYTES = 16 * 1_048_576;
const RESOURCE_EXHAUSTED = "8";
const RETRY_AFTER_MS = 100;
/** How often a slow reader reads. */
const SIP_INTERVAL_MS = 100;

const sessions: ClientHttp2Session[] = [];
const streams: { readonly stream: ClientHttp2Stream; readonly pace: Pace; rows: number }[] = [];
let rows = 0;
let firstMs = 0;
let lastMs = 0;
let timed = false;
let tookMs: number[] = [];
/** Rows that each watcher is waited for, and how many have them. */
let target = Number.POSITIVE_INFINITY;
let done = 0;

function say(answer: Answer): void {
  parentPort?.postMessage(answer);
}

parentPort?.on("message", (command: Command) => {
  switch (command.kind) {
    case "attach":
      void attach(command).then(() => say({ kind: "attached" }));
      return;
    case "await":
      target = command.rowsEach;
      done = streams.filter((stream) => stream.rows >= target).length;
      completeIfDone();
      return;
    case "fast":
      for (const { stream, pace } of streams) if (pace !== "fast") stream.resume();
      for (const timer of sipping) clearInterval(timer);
      return;
    case "reset":
      [rows, firstMs, lastMs, tookMs] = [0, 0, 0, []];
      for (const stream of streams) stream.rows = 0;
      say({ kind: "attached" });
      return;
    case "close":
      for (const session of sessions) session.destroy();
      sessions.length = 0;
      streams.length = 0;
      say({ kind: "attached" });
  }
});

const sipping: NodeJS.Timeout[] = [];

function completeIfDone(): void {
  if (done < streams.length) return;
  target = Number.POSITIVE_INFINITY;
  say({ kind: "complete", rows, firstMs, lastMs, tookMs });
}

async function attach(command: Extract<Command, { kind: "attach" }>): Promise<void> {
  const { address, sessionIds, connections, pace } = command;
  timed ||= command.timed;
  const own: ClientHttp2Session[] = [];
  for (let at = 0; at < connections; at += 1) {
    const settings = pace === "fast" ? { initialWindowSize: WINDOW_BYTES } : {};
    const session = connect(`http://${address}`, { settings });
    session.on("error", () => undefined);
    await new Promise<void>((resolve) => session.once("connect", () => resolve()));
    if (pace === "fast") session.setLocalWindowSize(WINDOW_BYTES);
    own.push(session);
  }
  sessions.push(...own);
  const attached = sessionIds.map((sessionId, at) => {
    const session = own[at % own.length];
    if (session === undefined) throw new Error("no connection");
    return watch(session, { sessionId, pace });
  });
  await Promise.all(attached);
}

function watch(
  session: ClientHttp2Session,
  { sessionId, pace }: { readonly sessionId: string; readonly pace: Pace },
): Promise<void> {
  const stream = session.request({
    ":method": "POST",
    ":path": "/ambient.v1.SessionService/WatchSessionEvents",
    "content-type": "application/grpc",
    te: "trailers",
  });
  const request = create(WatchSessionEventsRequestSchema, { sessionId });
  stream.end(framed(toBinary(WatchSessionEventsRequestSchema, request)));
  stream.on("error", () => undefined);
  const counted = { stream, pace, rows: 0 };
  streams.push(counted);
  const count = messageCutter((message) => {
    const nowMs = performance.timeOrigin + performance.now();
    if (rows === 0) firstMs = nowMs;
    lastMs = nowMs;
    rows += 1;
    counted.rows += 1;
    if (counted.rows === target) done += 1;
    if (timed && pace === "fast") note(message, nowMs);
  });
  return new Promise((resolve, reject) => {
    stream.once("response", ({ "grpc-status": refusal }) => {
      if (refusal !== undefined) {
        streams.splice(streams.indexOf(counted), 1);
        if (refusal !== RESOURCE_EXHAUSTED)
          return reject(new Error(`a watch got status ${String(refusal)}`));
        // The service may still hold what it had for the watchers before these.
        setTimeout(() => resolve(watch(session, { sessionId, pace })), RETRY_AFTER_MS);
        return;
      }
      read(stream, pace, (chunk) => {
        count(chunk);
        if (target < Number.POSITIVE_INFINITY) completeIfDone();
      });
      resolve();
    });
  });
}

function read(stream: ClientHttp2Stream, pace: Pace, take: (chunk: Buffer) => void): void {
  if (pace === "fast" || pace.kind === "stops") {
    stream.on("data", take);
    if (pace === "fast") return;
    stream.pause();
    setTimeout(() => stream.resume(), pace.forMs);
    return;
  }
  const bytes = Math.max(1, Math.round((pace.bytesPerSecond * SIP_INTERVAL_MS) / 1_000));
  stream.pause();
  const sip = setInterval(() => {
    const chunk: unknown = stream.read(Math.min(bytes, stream.readableLength));
    if (Buffer.isBuffer(chunk)) take(chunk);
  }, SIP_INTERVAL_MS);
  sipping.push(sip);
  // A slow watch is read at full speed later.
  stream.once("resume", () => {
    clearInterval(sip);
    stream.on("data", take);
  });
}

function note(message: Buffer, nowMs: number): void {
  const { payload } = fromBinary(SessionEventSchema, message);
  const sentMs = Number(/"sentMs":([\d.]+)/.exec(payload)?.[1]);
  if (sentMs > 0) tookMs.push(nowMs - sentMs);
}
