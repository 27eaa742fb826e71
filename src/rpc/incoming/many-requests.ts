import type { ServiceError } from "../../base/errors.ts";
import { Incoming, type IncomingHooks } from "./incoming.ts";
import { type Arrived, type Owner, type RequestParts, tooLate } from "./one-request.ts";
import { type Encoding, FRAME_HEAD_BYTES, isPacked } from "./request-headers.ts";

/**
 * The requests of a stream. What has come of the next one is held from its first byte; what was made
 * of it, until the handler is done with it; and what the handler keeps of those before, as it says.
 *
 *   idle ── asked, room ──► awaited ── message ──► handed ── taken ──► idle
 *             │ no room       │ no room: paused, until there is some
 *             ▼               └─ half there for too long ──► the call is refused
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

  /** What is not asked for stays with the stream, and is a window at most. */
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

  /** Whether the next message may be asked for; if not, `go` is called when it may. */
  mayAsk(go: () => void): boolean {
    const { charge } = this.#incoming.memory;
    if (charge.hasRoom) return true;
    charge.wait(go);
    return false;
  }

  /** It was asked for, and is not there. */
  awaited(): void {
    this.#isAwaited = true;
    this.#watch();
  }

  /** It is there; `then` is called with what it was before it was packed, at once if it was not. */
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

  /** The handler has taken the message, if there was one, and keeps so many bytes of all that it has taken. */
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

  /** Sent, and not taken by the caller. */
  unsent(bytes: number): void {
    const { memory } = this.#incoming;
    memory.charge.awaitsCaller = bytes > 0;
    memory.answer(bytes);
  }

  /** What the handler still has goes on to a queue that has a limit of its own. */
  over(): void {
    this.#parts.arriving.ended(this);
    this.#incoming.close();
  }

  #made(wireBytes: number, messageBytes: number): void {
    this.#messageBytes = messageBytes;
    this.#incoming.made({ wireBytes, keptBytes: messageBytes + this.#keptBytes });
  }

  /** While a message is half there. */
  #watch(): void {
    if (!this.#isAwaited || this.#isPaused || this.#owner.hasEnded) return;
    const { stream, bytes } = this.#incoming;
    const { charge } = this.#incoming.memory;
    if (bytes > 0) this.#parts.arriving.grew(this);
    if (charge.hasRoom) return;
    this.#isPaused = true;
    this.#parts.arriving.ended(this); // It is we who keep it waiting.
    stream.pause();
    charge.wait(() => {
      this.#isPaused = false;
      if (!this.#isAwaited || this.#owner.hasEnded) return;
      stream.resume();
      this.#watch();
    });
  }
}
