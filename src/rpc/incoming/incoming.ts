/**
 * The request side of one call, below grpc-js: every byte passes here when it arrives, before any
 * code keeps it. Bytes are kept in three places: the buffer of the HTTP/2 stream (a window, 64
 * KiB), the decoder of grpc-js (the arrived part of a message) and the handler. All three are
 * counted as one sum:
 *
 *   chunk ──► held ──► message whole ──► handler ──► answered, or taken and stored ──► let go
 *               │ no room
 *               ├─ one-request.ts: the call is refused, and the stream closed, because the decoder
 *               │  keeps what it has until then
 *               └─ many-requests.ts: not read on until there is room (base/fair-share.ts)
 */
import { constants, type ServerHttp2Stream } from "node:http2";
import type { CallerMemory, CallMemory } from "../../auth/caller-memory.ts";
import type { ServiceError } from "../../base/errors.ts";

/** The objects of Node, grpc-js and ours that an open call has beside its bytes: an estimate. */
const CALL_BYTES = 16 * 1024;

/**
 * The cost of a chunk beside its bytes: the objects that hold it. Many chunks of one byte are not
 * free.
 */
const CHUNK_COST_BYTES = 256;
/**
 * A chunk is a slice of one read from the socket, and keeps the whole read alive. The first chunk
 * of a read may do that. A later one that is smaller than this part of the read is copied together
 * with others of its stream.
 */
const COPIED_PART = 4;
const SLAB_BYTES = 4_096;
/**
 * A message in this many pieces, with this few bytes on average, is an attack, and not a slow
 * network: a client packs its bytes into frames. A stream that is not read has a window of 64 KiB,
 * and no event of AG-UI is small enough to fill it with this many pieces.
 */
const CHUNKS_MAX = 1_024;
const CHUNK_BYTES_MIN = 64;

/** A slow reader gets this long to take the status of a call, 8 s in all. */
const FIRST_LOOK_MS = 2;
const LAST_LOOK_MS = 4_096;
/** A call that must give its memory back gets this long, 62 ms in all. */
const LAST_UNREAD_LOOK_MS = 32;

type Chunk = Buffer | null;

export interface IncomingParts {
  readonly memory: CallerMemory;
  /** Ends the connection of a caller who attacks. */
  readonly cut: (stream: ServerHttp2Stream) => void;
}

export interface IncomingHooks {
  /** The chunk is counted already; false: it is dropped. */
  came(chunk: Buffer): boolean;
  /** The chunk was passed on; it may have completed a message. */
  passed?(): void;
  /** The caller has sent everything. */
  ended(): void;
  /** Called after `close`, when no byte of the request is kept. */
  closed?(): void;
  /** Other callers need the call's memory, or its caller does not read: the call ends. */
  cut(error: ServiceError): void;
}

export class Incoming {
  readonly #stream: ServerHttp2Stream;
  readonly #parts: IncomingParts;
  readonly memory: CallMemory;
  readonly #hooks: IncomingHooks;
  readonly #push: ServerHttp2Stream["push"];
  #hasEnded = false;
  #isDropping = false;
  /** Bytes on the wire that belong to no complete message yet … */
  #bytes = 0;
  /** … and the number of their pieces. */
  #chunks = 0;
  /** Other bytes that the call keeps. */
  #keptBytes = 0;
  /** Room for small chunks. */
  #slab: Buffer | undefined;

  /** Make this before any byte of the request can arrive. */
  constructor(parts: IncomingParts, stream: ServerHttp2Stream, hooks: IncomingHooks) {
    this.#stream = stream;
    this.#parts = parts;
    this.memory = parts.memory.of(stream.session ?? stream).call((error) => this.#cut(error));
    this.memory.begin(CALL_BYTES);
    this.#hooks = hooks;
    // oxlint-disable-next-line typescript/unbound-method -- Called with its stream.
    this.#push = stream.push;
    // Node calls this with every chunk. An event would come only with a read, which may never
    // happen.
    stream.push = (chunk: Chunk) => this.#came(chunk);
  }

  get stream(): ServerHttp2Stream {
    return this.#stream;
  }

  /** Bytes that belong to no complete message yet. */
  get bytes(): number {
    return this.#bytes;
  }

  /** A message was made from `wireBytes` bytes; `keptBytes` of it are kept from now on. */
  made({ wireBytes, keptBytes }: { readonly wireBytes: number; readonly keptBytes: number }): void {
    const part = wireBytes >= this.#bytes ? 1 : wireBytes / this.#bytes;
    this.#chunks -= Math.floor(this.#chunks * part);
    this.#bytes = Math.max(0, this.#bytes - wireBytes);
    this.keep(keptBytes);
  }

  keep(bytes: number): void {
    this.#keptBytes = bytes;
    this.memory.requestSoFar(this.#bytes + this.#chunks * CHUNK_COST_BYTES + bytes);
  }

  #cut(error: ServiceError): void {
    const { hasAnswer } = this.memory;
    this.#hooks.cut(error);
    if (hasAnswer) this.#resetUnread(FIRST_LOOK_MS);
  }

  /**
   * An unread answer stays with the stream until the stream is reset. An answer that was just sent
   * leaves within moments, and the status after it: an immediate reset would overtake the status.
   */
  #resetUnread(nextLookMs: number): void {
    const stream = this.#stream;
    if (stream.closed || stream.destroyed || stream.state.localClose === 1) return;
    if (nextLookMs > LAST_UNREAD_LOOK_MS) {
      return stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    }
    setTimeout(() => this.#resetUnread(nextLookMs * 2), nextLookMs).unref();
  }

  /**
   * The call has ended for its caller. While the caller still sends, the stream stays open, and so
   * does grpc-js's copy of the request. RFC 9113, 8.1, lets a server end such a stream without an
   * error.
   */
  close(): void {
    this.#isDropping = true;
    if (this.#hasEnded || this.#stream.destroyed) return this.#hooks.closed?.();
    this.#stream.once("close", () => this.#hooks.closed?.());
    if (!this.#stream.closed) setImmediate(() => this.#reset(FIRST_LOOK_MS));
  }

  /**
   * A reset overtakes a status that waits after answers, so the reset waits until the status was
   * sent.
   */
  #reset(nextLookMs: number): void {
    const stream = this.#stream;
    if (stream.closed || stream.destroyed) return;
    if (stream.state.localClose === 1) return stream.close(constants.NGHTTP2_NO_ERROR);
    if (nextLookMs > LAST_LOOK_MS) return stream.close(constants.NGHTTP2_CANCEL);
    setTimeout(() => this.#reset(nextLookMs * 2), nextLookMs).unref();
  }

  #came(chunk: Chunk): boolean {
    if (chunk === null) {
      this.#hasEnded = true;
      this.#hooks.ended();
      return this.#push.call(this.#stream, null);
    }
    if (this.#isDropping) return true;
    const isSmallPart = chunk.length * COPIED_PART < chunk.buffer.byteLength;
    const kept = this.#bytes > 0 && isSmallPart ? this.#copied(chunk) : chunk;
    this.#bytes += chunk.length;
    this.#chunks += 1;
    this.keep(this.#keptBytes);
    if (this.#chunks > CHUNKS_MAX && this.#bytes < this.#chunks * CHUNK_BYTES_MIN) {
      this.#isDropping = true;
      this.#parts.cut(this.#stream);
      return true;
    }
    if (!this.#hooks.came(chunk)) return true;
    const mayGoOn = this.#push.call(this.#stream, kept);
    this.#hooks.passed?.();
    return mayGoOn;
  }

  /** Not in Node's shared pool, where the copy would keep its neighbours alive. */
  #copied(chunk: Buffer): Buffer {
    const { length } = chunk;
    if (length > SLAB_BYTES) return Buffer.from(chunk);
    if (this.#slab === undefined || this.#slab.length < length) {
      this.#slab = Buffer.allocUnsafeSlow(SLAB_BYTES);
    }
    const copy = this.#slab.subarray(0, length);
    this.#slab = this.#slab.subarray(length);
    chunk.copy(copy);
    return copy;
  }
}
