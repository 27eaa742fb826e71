/**
 * The lanes of a load generator: each sends one session after the other on a shared connection, in turn
 * with the other lanes.
 */
import { fromBinary } from "@bufbuild/protobuf";
import { PushSessionEventsResponseSchema } from "@session-ledger/proto/ambient/v1/event_stream_pb";
import { framed, messageCutter } from "./grpc-messages.ts";
import type { Http2Connection, StreamListener } from "./http2-connection.ts";
import { openFrame, type PreparedSession } from "./prepared-session.ts";

const STREAM_PATH = "/ambient.v1.SessionService/PushSessionEvents";
const UNARY_PATH = "/ambient.v1.SessionService/PushSessionEvent";
/** Bytes that a lane writes before the next lane's turn. */
const TURN_BYTES = 16_384;

/** The shared state of the lanes of one run. */
export interface Run {
  /** True: no more is sent, and only acknowledgements are awaited. */
  readonly isStopping: boolean;
  /** Of a session that nobody has used. */
  newSessionId(): string;
  sent(events: number, frames: number): void;
  acknowledged(events: number): void;
  refused(): void;
  failed(error: Error): void;
  /** Called when the lane has ended. */
  ended(): void;
}

/** On push streams; how much may be unacknowledged is for the server to say. */
export class StreamLane implements StreamListener {
  readonly #run: Run;
  readonly #connection: Http2Connection;
  readonly #session: PreparedSession;
  #id = 0;
  /** Undefined until the server has taken the stream. */
  #windowBytes: number | undefined;
  /** Of the frame that is sent next. */
  #next = 0;
  #sentSeq = 0;
  #ackedSeq = 0;
  #hasEnded = false;
  #cut = messageCutter((message) => this.#take(message));

  constructor(
    deps: { readonly run: Run; readonly connection: Http2Connection },
    session: PreparedSession,
  ) {
    this.#run = deps.run;
    this.#connection = deps.connection;
    this.#session = session;
  }

  start(): void {
    this.#open();
  }

  /** Whether it has sent anything. */
  pump(): boolean {
    const { frames } = this.#session;
    if (this.#windowBytes === undefined || this.#hasEnded) return false;
    let bytes = 0;
    let sent = 0;
    const fromSeq = this.#sentSeq;
    const roomBytes = Math.min(TURN_BYTES, this.#connection.room(this.#id));
    for (let frame = frames[this.#next]; frame !== undefined; frame = frames[this.#next]) {
      if (this.#run.isStopping) break;
      const isFirst = bytes === 0 && roomBytes === TURN_BYTES; // One that is longer than a turn.
      if ((bytes + frame.bytes.length > roomBytes && !isFirst) || this.#isFull(frame.lastSeq))
        break;
      this.#connection.send(this.#id, frame.bytes);
      bytes += frame.bytes.length;
      sent += 1;
      this.#sentSeq = frame.lastSeq;
      this.#next += 1;
    }
    if (sent > 0) this.#run.sent(this.#sentSeq - fromSeq, sent);
    if (this.#run.isStopping || this.#next === frames.length) this.#end();
    return sent > 0;
  }

  onData(chunk: Buffer): void {
    this.#cut(chunk);
  }

  onEnd(error: Error | undefined): void {
    const missing = this.#sentSeq - this.#ackedSeq;
    if (error !== undefined || !this.#hasEnded || missing > 0) {
      const reason = `a stream ended and ${missing} events were not acknowledged`;
      return this.#run.failed(new Error(reason, { cause: error }));
    }
    if (this.#run.isStopping) return this.#run.ended();
    this.#open();
  }

  #open(): void {
    this.#windowBytes = undefined;
    this.#hasEnded = false;
    this.#next = 0;
    this.#sentSeq = 0;
    this.#ackedSeq = 0;
    this.#id = this.#connection.open(STREAM_PATH, this);
    this.#connection.send(this.#id, openFrame(this.#run.newSessionId()));
  }

  #end(): void {
    this.#hasEnded = true;
    this.#connection.end(this.#id);
  }

  /** With nothing in flight a frame is sent at any length, or it never would be. */
  #isFull(lastSeq: number): boolean {
    const { payloadBytes } = this.#session;
    const bytes = (payloadBytes[lastSeq] ?? 0) - (payloadBytes[this.#ackedSeq] ?? 0);
    return bytes > (this.#windowBytes ?? 0) && this.#sentSeq > this.#ackedSeq;
  }

  #take(message: Buffer): void {
    const seq = committedSeq(message);
    if (seq !== undefined) {
      this.#run.acknowledged(seq - this.#ackedSeq);
      this.#ackedSeq = seq;
      return;
    }
    const { frame } = fromBinary(PushSessionEventsResponseSchema, message);
    if (frame.case === "opened") this.#windowBytes = Number(frame.value.maxUnacknowledgedBytes);
    if (frame.case === "refused") this.#run.refused();
  }
}

const COMMITTED_TAG = 0x12;
const LAST_CLIENT_SEQ_TAG = 0x08;

/** The number in a `Committed`; a no-op server sends one a frame, too many for a general decoder. */
function committedSeq(message: Buffer): number | undefined {
  if (message[0] !== COMMITTED_TAG || message[2] !== LAST_CLIENT_SEQ_TAG) return undefined;
  let seq = 0;
  let factor = 1;
  for (let at = 3; at < message.length; at += 1) {
    const byte = message[at] ?? 0;
    seq += (byte & 0x7f) * factor;
    if (byte < 0x80) return seq;
    factor *= 0x80;
  }
  return undefined;
}

/** Unary pushes, one at a time, because the events of a session have an order. */
export class UnaryLane implements StreamListener {
  readonly #run: Run;
  readonly #connection: Http2Connection;
  readonly #bodies: readonly Uint8Array[];
  readonly #fieldOf: (sessionId: string) => Uint8Array;
  #field: Uint8Array = new Uint8Array();
  #next = 0;

  constructor(
    deps: { readonly run: Run; readonly connection: Http2Connection },
    session: {
      readonly bodies: readonly Uint8Array[];
      readonly fieldOf: (sessionId: string) => Uint8Array;
    },
  ) {
    this.#run = deps.run;
    this.#connection = deps.connection;
    this.#bodies = session.bodies;
    this.#fieldOf = session.fieldOf;
  }

  start(): void {
    this.#push();
  }

  onData(): void {}

  /** Refused or not: only the table knows. */
  onEnd(error: Error | undefined): void {
    if (error !== undefined) return this.#run.failed(error);
    this.#run.acknowledged(1);
    if (this.#run.isStopping) return this.#run.ended();
    this.#push();
  }

  #push(): void {
    const at = this.#next % this.#bodies.length;
    if (at === 0) this.#field = this.#fieldOf(this.#run.newSessionId());
    this.#next += 1;
    const message = Buffer.concat([this.#field, this.#bodies[at] ?? new Uint8Array()]);
    const id = this.#connection.open(UNARY_PATH, this);
    this.#connection.send(id, framed(message));
    this.#connection.end(id);
    this.#run.sent(1, 1);
  }
}
