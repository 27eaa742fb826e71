import type { ServerHttp2Stream } from "node:http2";
import { type CallMemory, serverBusy } from "../../auth/caller-memory.ts";
import { ServiceError } from "../../base/errors.ts";
import type { Arriving } from "./arriving.ts";
import { Incoming, type IncomingHooks, type IncomingParts } from "./incoming.ts";
import { type Encoding, isPacked } from "./request-headers.ts";
import type { Unpacking } from "./unpacking.ts";

/** The parts that all calls share. */
export interface RequestParts extends IncomingParts {
  readonly arriving: Arriving;
  readonly unpacking: Unpacking;
}

/** A call in HTTP/2, when only its headers have arrived. */
export interface Arrived {
  readonly stream: ServerHttp2Stream;
  /** The headers are above the limit; the call must be reset. */
  readonly isTooLarge: boolean;
  readonly encoding: Encoding | undefined;
}

export interface Owner {
  readonly hasEnded: boolean;
  /** The memory of the call; it also holds bytes that arrive before the caller is known. */
  memory: CallMemory | undefined;
  fail(error: ServiceError): void;
}

/** The request of a call with a single request: its memory is freed after the handler. */
export class OneRequest implements IncomingHooks {
  readonly #parts: RequestParts;
  readonly #encoding: Encoding | undefined;
  readonly #owner: Owner;
  readonly #incoming: Incoming;
  #isInHand = false;
  /** True when the call is over for the caller, and no byte is kept below. */
  #isOver = false;

  constructor(parts: RequestParts, { stream, encoding }: Arrived, owner: Owner) {
    this.#parts = parts;
    this.#encoding = encoding;
    this.#owner = owner;
    this.#incoming = new Incoming(parts, stream, this);
    owner.memory = this.#incoming.memory;
    parts.arriving.requests.begin(this);
  }

  came(): boolean {
    return this.mayStay();
  }

  cut(error: ServiceError): void {
    this.#owner.fail(error);
  }

  ended(): void {
    this.#parts.arriving.requests.end(this);
  }

  late(): void {
    this.#owner.fail(tooLate());
  }

  /** Calls `then` with the decompressed message, at once if it was not compressed. */
  unpacked(message: Buffer, then: (bytes: Buffer) => void): void {
    const encoding = this.#encoding;
    if (encoding === undefined || !isPacked(message)) return then(message);
    this.#parts.unpacking.unpack({
      bytes: message,
      encoding,
      isUnwanted: () => this.#owner.hasEnded,
      done: (bytes) => {
        this.#incoming.keep(bytes.length);
        if (this.mayStay()) then(bytes);
      },
      failed: (error) => this.#owner.fail(error),
    });
  }

  /** A handler has the request, and continues with it even when the caller leaves. */
  handed({ canEnd }: { readonly canEnd: boolean }): void {
    this.#isInHand = true;
    this.#incoming.memory.charge.canEnd = canEnd;
  }

  handled(): void {
    this.#isInHand = false;
    this.#incoming.memory.charge.canEnd = true;
    if (this.#isOver) this.#incoming.memory.release();
  }

  /** The answer stays with the stream until the caller has read it. */
  answered(bytes: number): void {
    const { memory } = this.#incoming;
    memory.charge.awaitsCaller = true;
    memory.answer(bytes);
  }

  /** The call has ended for its caller. */
  over(): void {
    this.#parts.arriving.requests.end(this);
    this.#incoming.close();
  }

  closed(): void {
    this.#isOver = true;
    if (!this.#isInHand) this.#incoming.memory.release();
  }

  /** False: there is no room for it, and the call has ended. */
  mayStay(): boolean {
    if (this.#incoming.memory.charge.hasRoom) return true;
    this.#owner.fail(serverBusy());
    return false;
  }
}

export function tooLate(): ServiceError {
  const message = "the request did not arrive in time";
  return new ServiceError("deadline_exceeded", "DEADLINE_EXCEEDED", message);
}
