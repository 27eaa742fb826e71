/**
 * The request side of one call, below grpc-js: every byte passes here when it arrives, before any
 * code holds it. Bytes are held in three places: the buffer of the HTTP/2 stream (a window, 64
 * KiB), the decoder of grpc-js (the arrived part of a message) and the handler. All three are
 * counted as one sum:
 *
 *   chunk ──► held ──► message whole ──► handler ──► answered, or taken and stored ──► freed
 *               │ no room
 *               ├─ one request: the call is refused, and the stream closed, because the decoder
 *               │  keeps its bytes until then
 *               └─ a stream of requests: not read on until room is free (base/fair-share.ts)
 *
 * requests.ts has the two kinds.
 */
import { constants, type ServerHttp2Stream } from "node:http2";
import { type CallerMemory, type CallMemory, UNREAD_LIMIT_MS } from "../auth/caller-memory.ts";
import type { ServiceError } from "@session-ledger/base/errors";

/** The objects of Node, grpc-js and ours that an open call has in addition to its bytes: an estimate. */
const CALL_BYTES = 16 * 1024;

/** The cost of a chunk in addition to its bytes: the objects that hold it (220 bytes and more, Node 24). */
const CHUNK_COST_BYTES = 256;
/**
 * A chunk is a slice of one read from the socket, and keeps it alive. A later chunk of a request
 * that is smaller than this part of its read is copied.
 */
const COPIED_PART = 4;
/**
 * A message in this many pieces, with this few bytes on average, is an attack: a client packs its
 * bytes into frames, and no event of AG-UI is small enough to fill a window of 64 KiB with them.
 */
const CHUNKS_MAX = 1_024;
const CHUNK_BYTES_MIN = 64;

/** A slow reader gets this long to take the status of a call, 8 s in all. */
const FIRST_LOOK_MS = 2;
const LAST_LOOK_MS = 4_096;
/** A call that must give its memory back gets this long, 62 ms in all. */
const LAST_UNREAD_LOOK_MS = 32;

type Chunk = Buffer | null;

export interface RequestStreamParts {
  readonly memory: CallerMemory;
  /** Ends the connection of a caller who attacks. */
  readonly cut: (stream: ServerHttp2Stream) => void;
}

export abstract class RequestStream {
  readonly stream: ServerHttp2Stream;
  readonly memory: CallMemory;
  readonly #cutConnection: RequestStreamParts["cut"];
  readonly #push: ServerHttp2Stream["push"];
  #hasEnded = false;
  #isDropping = false;
  /** Bytes on the wire that belong to no complete message yet … */
  #bytes = 0;
  /** … and the number of their pieces. */
  #chunks = 0;
  /** Other bytes that the call keeps. */
  #bufferedBytes = 0;

  /** Make this before any byte of the request can arrive. */
  constructor({ memory, cut }: RequestStreamParts, stream: ServerHttp2Stream) {
    this.stream = stream;
    this.memory = memory.of(stream.session ?? stream).call((error) => this.#revoke(error));
    this.memory.begin(CALL_BYTES);
    this.#cutConnection = cut;
    // oxlint-disable-next-line typescript/unbound-method -- Called with its stream.
    this.#push = stream.push;
    // Node calls this with every chunk; an event would come only with a read.
    stream.push = (chunk: Chunk) => this.#onPush(chunk);
  }

  /** The chunk is counted already; false: it is dropped. */
  protected abstract onChunk(chunk: Buffer): boolean;
  /** The chunk was passed on; it may have completed a message. */
  protected onPassed(): void {}
  /** The caller has sent everything. */
  protected abstract onEnd(): void;
  /** Called after `closeStream`, when no byte of the request is held. */
  protected onClosed(): void {}
  /** Other callers need the call's memory, or its caller does not read: the call ends. */
  protected abstract onRevoke(error: ServiceError): void;

  /** Bytes that belong to no complete message yet. */
  protected get bytes(): number {
    return this.#bytes;
  }

  /** A message was made from `wireBytes` bytes; `bufferedBytes` of it are held from now on. */
  protected countMessage(
    wireBytes: number,
    { bufferedBytes }: { readonly bufferedBytes: number },
  ): void {
    const part = wireBytes >= this.#bytes ? 1 : wireBytes / this.#bytes;
    this.#chunks -= Math.floor(this.#chunks * part);
    this.#bytes = Math.max(0, this.#bytes - wireBytes);
    this.keep(bufferedBytes);
  }

  protected keep(bytes: number): void {
    this.#bufferedBytes = bytes;
    this.memory.requestSoFar(this.#bytes + this.#chunks * CHUNK_COST_BYTES + bytes);
  }

  /**
   * The call has ended for its caller. While the caller sends, the stream and grpc-js's copy of the
   * request stay. RFC 9113, 8.1, lets a server end such a stream without an error.
   */
  protected closeStream(): void {
    this.#isDropping = true;
    if (this.#hasEnded || this.stream.destroyed) return this.onClosed();
    this.stream.once("close", () => this.onClosed());
    if (!this.stream.closed) setImmediate(() => this.#reset(FIRST_LOOK_MS));
  }

  /** A reset overtakes a status that waits after answers, so it waits until the status was sent. */
  #reset(nextLookMs: number): void {
    const { stream } = this;
    if (stream.closed || stream.destroyed) return;
    if (stream.state.localClose === 1) return stream.close(constants.NGHTTP2_NO_ERROR);
    if (nextLookMs > LAST_LOOK_MS) return stream.close(constants.NGHTTP2_CANCEL);
    setTimeout(() => this.#reset(nextLookMs * 2), nextLookMs).unref();
  }

  #revoke(error: ServiceError): void {
    const { hasAnswer } = this.memory;
    this.onRevoke(error);
    if (hasAnswer) this.#resetUnread(FIRST_LOOK_MS);
  }

  /**
   * An unread answer stays until the stream is reset. One that was just sent leaves within moments,
   * and its status after it: an immediate reset would overtake it.
   */
  #resetUnread(nextLookMs: number): void {
    const { stream } = this;
    if (stream.closed || stream.destroyed || stream.state.localClose === 1) return;
    if (nextLookMs > LAST_UNREAD_LOOK_MS) {
      return stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    }
    setTimeout(() => this.#resetUnread(nextLookMs * 2), nextLookMs).unref();
  }

  #onPush(chunk: Chunk): boolean {
    if (chunk === null) {
      this.#hasEnded = true;
      this.onEnd();
      return this.#push.call(this.stream, null);
    }
    if (this.#isDropping) return true;
    const isSmallPart = chunk.length * COPIED_PART < chunk.buffer.byteLength;
    const stored = this.#bytes > 0 && isSmallPart ? copyOf(chunk) : chunk;
    this.#bytes += chunk.length;
    this.#chunks += 1;
    this.keep(this.#bufferedBytes);
    if (this.#chunks > CHUNKS_MAX && this.#bytes < this.#chunks * CHUNK_BYTES_MIN) {
      this.#isDropping = true;
      this.#cutConnection(this.stream);
      return true;
    }
    if (!this.onChunk(chunk)) return true;
    const canContinue = this.#push.call(this.stream, stored);
    this.onPassed();
    return canContinue;
  }
}

/** Not in Node's shared pool, where the copy would keep its neighbours alive. */
function copyOf(chunk: Buffer): Buffer {
  const copy = Buffer.allocUnsafeSlow(chunk.length);
  chunk.copy(copy);
  return copy;
}

/**
 * Lateness is counted in ticks: the limits are 5 to 60 s, and a clock read per chunk costs more.
 */
export const TICK_MS = 1_000;
/** A caller must take some bytes of an answer within this number of ticks, or the call ends. */
export const STALLED_TICKS = UNREAD_LIMIT_MS / TICK_MS;
/** The ticks in which a request, or a message of a stream, must be complete. */
const COMPLETE_TICKS_MAX = 60;
/** When other callers need the memory: for a request, and for a message that stands still. */
const PRESSED_TICKS_MAX = 5;

/** A request or message that is incomplete. */
interface PartialRequest {
  onTimeout(): void;
}

/** Incomplete requests and messages, ordered by their start. */
class Deadlines {
  readonly #began = new Map<PartialRequest, number>();
  #tick = 0;

  begin(arrival: PartialRequest): void {
    if (!this.#began.has(arrival)) this.#began.set(arrival, this.#tick);
  }

  end(arrival: PartialRequest): void {
    this.#began.delete(arrival);
  }

  tick(ticksMax: number): void {
    this.#tick += 1;
    for (const [arrival, began] of this.#began) {
      if (this.#tick - began <= ticksMax) return; // All later entries began later.
      this.#began.delete(arrival);
      arrival.onTimeout();
    }
  }
}

/** The incomplete requests and messages of all calls. */
export class PartialRequests {
  readonly requests = new Deadlines();
  readonly #messages = new Deadlines();
  readonly #stalled = new Deadlines();

  /** A part of a message arrived, and the message is incomplete. */
  onChunk(message: PartialRequest): void {
    this.#messages.begin(message);
    this.#stalled.end(message);
    this.#stalled.begin(message);
  }

  /** The message is complete, or the server itself delays it. */
  onComplete(message: PartialRequest): void {
    this.#messages.end(message);
    this.#stalled.end(message);
  }

  tick({ isPressed }: { readonly isPressed: boolean }): void {
    this.requests.tick(isPressed ? PRESSED_TICKS_MAX : COMPLETE_TICKS_MAX);
    this.#messages.tick(COMPLETE_TICKS_MAX);
    this.#stalled.tick(isPressed ? PRESSED_TICKS_MAX : COMPLETE_TICKS_MAX);
  }
}
