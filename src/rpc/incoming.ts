/**
 * The request side of one call, below grpc-js: every byte passes here when it arrives, before any
 * code holds it. The head of a message states its size, which is reserved before the rest is read:
 *
 *   chunk ── head of a message ──► reserved ──► grpc-js puts the message together ──► the call
 *                │ no room            └── a whole message of a call with one request ─────▲
 *                ├─ one request: the call is refused, and no further byte is held
 *                └─ a stream of requests: not read on until room is free
 */
import type { ServerHttp2Stream } from "node:http2";

/** The flag, and the length of the message. */
export const HEAD_BYTES = 5;

/** The objects that hold one piece of a message (220 bytes and more, Node 24). */
const PIECE_BYTES = 256;
/** The pieces of a message are counted in these steps, unless they are larger than this on average. */
const PIECES_STEP = 64;
const LARGE_PIECE_BYTES = 4_096;
/**
 * A message in this many pieces, with this few bytes on average, is an attack: a client packs its
 * bytes into frames, and no event of AG-UI is small enough to fill a window of 64 KiB with them.
 */
const PIECES_MAX = 1_024;
const PIECE_BYTES_MIN = 64;
/**
 * A chunk is a slice of one read from the socket, and keeps it alive. A later chunk of a message that
 * is smaller than this part of its read is copied.
 */
const COPIED_PART = 4;

type Chunk = Buffer | null;

export interface IncomingOwner {
  /** A message of this many bytes, its head not included, begins. False: drop it and all others. */
  onMessageHead(bytes: number, isCompressed: boolean): boolean;
  /** A message that is not compressed came in one chunk, with its head. True: grpc-js does not get it. */
  onWholeMessage?(chunk: Buffer): boolean;
  /** The same message needs this many bytes more than it stated. */
  onPieces(bytes: number): boolean;
  /** The caller has sent everything. */
  onRequestEnd?(): void;
  /** The caller attacks: its connection must end. */
  onFlood(): void;
}

export class IncomingBytes {
  readonly #stream: ServerHttp2Stream;
  readonly #push: ServerHttp2Stream["push"];
  readonly #owner: IncomingOwner;
  #headBytes = 0;
  #isCompressed = false;
  /** The stated size of the current message, and its bytes that have not arrived. */
  #messageBytes = 0;
  #leftBytes = 0;
  #partBytes = 0;
  #pieces = 0;
  /** True: no further byte is held. */
  isDropping = false;
  hasEnded = false;

  /** Make this before any byte of the request can arrive. */
  constructor(stream: ServerHttp2Stream, owner: IncomingOwner) {
    this.#stream = stream;
    this.#owner = owner;
    // oxlint-disable-next-line typescript/unbound-method -- Called with its stream.
    this.#push = stream.push;
    // Node calls this with every chunk; an event would come only with a read.
    stream.push = this.#onPush.bind(this);
  }

  /** A message has begun, and has not arrived whole. */
  get hasPart(): boolean {
    return this.#leftBytes > 0 || this.#headBytes > 0;
  }

  #onPush(chunk: Chunk): boolean {
    if (chunk === null) {
      this.hasEnded = true;
      this.#owner.onRequestEnd?.();
      return this.#push.call(this.#stream, null);
    }
    if (this.isDropping) return true;
    const continues = this.hasPart;
    if (!this.#readHeads(chunk) || (this.hasPart && !this.#addPiece(chunk))) {
      this.isDropping = true;
      return true;
    }
    const isWhole = !continues && chunk.length === HEAD_BYTES + this.#messageBytes;
    if (isWhole && !this.#isCompressed && this.#owner.onWholeMessage?.(chunk) === true) return true;
    const isSmallPart = chunk.length * COPIED_PART < chunk.buffer.byteLength;
    return this.#push.call(this.#stream, continues && isSmallPart ? copyOf(chunk) : chunk);
  }

  #readHeads(chunk: Buffer): boolean {
    let at = 0;
    while (at < chunk.length) {
      if (this.#leftBytes > 0) {
        const bytes = Math.min(this.#leftBytes, chunk.length - at);
        this.#leftBytes -= bytes;
        at += bytes;
        continue;
      }
      // Not in a Buffer: one that is copied into gets an ArrayBuffer, which costs more than the head.
      const byte = chunk[at] ?? 0;
      at += 1;
      if (this.#headBytes === 0) this.#isCompressed = byte === 1;
      this.#messageBytes = this.#headBytes === 0 ? 0 : this.#messageBytes * 256 + byte;
      this.#headBytes += 1;
      if (this.#headBytes < HEAD_BYTES) continue;
      this.#leftBytes = this.#messageBytes;
      this.#headBytes = 0;
      this.#partBytes = 0;
      this.#pieces = 0;
      if (!this.#owner.onMessageHead(this.#leftBytes, this.#isCompressed)) return false;
    }
    return true;
  }

  #addPiece(chunk: Buffer): boolean {
    this.#pieces += 1;
    this.#partBytes += chunk.length;
    if (this.#pieces > PIECES_MAX && this.#partBytes < this.#pieces * PIECE_BYTES_MIN) {
      this.#owner.onFlood();
      return false;
    }
    const isStep = this.#pieces % PIECES_STEP === 0;
    // In frames of the usual sizes the objects are a few hundredths of the bytes.
    if (!isStep || this.#partBytes > this.#pieces * LARGE_PIECE_BYTES) return true;
    return this.#owner.onPieces(PIECES_STEP * PIECE_BYTES);
  }
}

/** Not in Node's shared pool, where the copy would keep its neighbours alive. */
function copyOf(chunk: Buffer): Buffer {
  const copy = Buffer.allocUnsafeSlow(chunk.length);
  chunk.copy(copy);
  return copy;
}
