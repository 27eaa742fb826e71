import type { ServiceError } from "../../base/errors.ts";
import { Incoming, type IncomingHooks } from "./incoming.ts";
import { type Arrived, type Owner, type RequestParts, tooLate } from "./one-request.ts";
import { type Encoding, FRAME_HEAD_BYTES, isPacked } from "./request-headers.ts";

/**
 * The requests of a stream. Three amounts are held: the next request from its first byte, the
 * decoded message until the handler has taken it, and the bytes of earlier messages that the
 * handler reports as kept.
 *
 *   idle ── asked, room ──► awaited ── message ──► handed ── taken ──► idle
 *             │ no room       │ no room: paused, until there is some
 *             ▼               └─ incomplete for too long ──► the call is refused
 *          waiting until there is some
 */
export class ManyRequests implements IncomingHooks {
  readonly #parts: RequestParts;
  readonly #encoding: Encoding | undefined;
  readonly #owner: Owner;
  readonly #incoming: Incoming;
  #isAwaited = false;
  #isPaused = false;
  #messageBytes = 0;
  #keptBytes = 0;

  constructor(parts: RequestParts, { stream, encoding }: Arrived, owner: Owner) {
    this.#parts = parts;
    this.#encoding = encoding;
    this.#owner = owner;
    this.#incoming = new Incoming(parts, stream, this);
    owner.memory = this.#incoming.memory;
    this.#incoming.memory.charge.canWait = true;
  }

  /** Bytes that were not requested stay with the stream, at most one window. */
  came(): boolean {
    return true;
  }

  passed(): void {
    this.#watch();
  }

  ended(): void {
    this.#parts.arriving.ended(this);
  }

  closed(): void {
    this.#incoming.memory.release();
  }

  cut(error: ServiceError): void {
    this.#owner.fail(error);
  }

  late(): void {
    this.#owner.fail(tooLate());
  }

  /** Whether the next message may be requested; if not, `go` is called when it may. */
  mayAsk(go: () => void): boolean {
    const { charge } = this.#incoming.memory;
    if (charge.hasRoom) return true;
    charge.wait(go);
    return false;
  }

  /** The message was requested, and has not arrived. */
  awaited(): void {
    this.#isAwaited = true;
    this.#watch();
  }

  /**
   * The message has arrived; `then` gets its decompressed bytes, at once if it was not compressed.
   */
  read(message: Buffer, then: (bytes: Buffer) => void): void {
    this.#isAwaited = false;
    this.#parts.arriving.ended(this);
    this.#made(message.length + FRAME_HEAD_BYTES, message.length);
    const encoding = this.#encoding;
    if (encoding === undefined || !isPacked(message)) return then(message);
    this.#parts.unpacking.unpack({
      bytes: message,
      encoding,
      isUnwanted: () => this.#owner.hasEnded,
      done: (bytes) => {
        this.#made(0, bytes.length);
        then(bytes);
      },
      failed: (error) => this.#owner.fail(error),
    });
  }

  /**
   * The handler has taken the message, if there was one, and keeps this number of bytes of all its
   * messages.
   */
  taken(keptBytes: number): void {
    this.#keptBytes = keptBytes;
    this.#made(0, 0);
    this.#incoming.memory.charge.stopWaiting();
  }

  keeps(keptBytes: number): void {
    if (keptBytes === this.#keptBytes) return;
    this.#keptBytes = keptBytes;
    this.#incoming.keep(this.#messageBytes + keptBytes);
  }

  /** Bytes that were sent and that the caller has not taken. */
  unsent(bytes: number): void {
    const { memory } = this.#incoming;
    memory.charge.awaitsCaller = bytes > 0;
    memory.answer(bytes);
  }

  /** The bytes that the handler still has move to a queue with its own limit. */
  over(): void {
    this.#parts.arriving.ended(this);
    this.#incoming.close();
  }

  #made(wireBytes: number, messageBytes: number): void {
    this.#messageBytes = messageBytes;
    this.#incoming.made({ wireBytes, keptBytes: messageBytes + this.#keptBytes });
  }

  /** Runs while a message is incomplete. */
  #watch(): void {
    if (!this.#isAwaited || this.#isPaused || this.#owner.hasEnded) return;
    const { stream, bytes } = this.#incoming;
    const { charge } = this.#incoming.memory;
    if (bytes > 0) this.#parts.arriving.grew(this);
    if (charge.hasRoom) return;
    this.#isPaused = true;
    this.#parts.arriving.ended(this); // The server itself delays the message.
    stream.pause();
    charge.wait(() => {
      this.#isPaused = false;
      if (!this.#isAwaited || this.#owner.hasEnded) return;
      stream.resume();
      this.#watch();
    });
  }
}
