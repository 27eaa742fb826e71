/** The requests of a call, from their first byte until the handler is done: one, or a stream. */
import type { ServerHttp2Stream } from "node:http2";
import { promisify } from "node:util";
import { gunzip, inflate } from "node:zlib";
import { serverBusy } from "../auth/caller-memory.ts";
import { invalidArgument, ServiceError } from "@session-ledger/base/errors";
import { Semaphore } from "../base/semaphore.ts";
import { type PartialRequests, RequestStream, type RequestStreamParts } from "./incoming.ts";
import type { ServedCall } from "./call.ts";

/** The parts that all calls share. */
export interface RequestParts extends RequestStreamParts {
  readonly partialRequests: PartialRequests;
  readonly decompressor: Decompressor;
}

/** Message encodings that the server decompresses itself. */
export type Encoding = keyof typeof DECOMPRESS;

/** A call in HTTP/2, when only its headers have arrived. */
export interface IncomingCall {
  readonly stream: ServerHttp2Stream;
  /** The headers are above the limit; the call must be reset. */
  readonly isTooLarge: boolean;
  readonly encoding: Encoding | undefined;
}

/** The requests of one call of ours: its faults are the call's. */
abstract class CallRequests extends RequestStream {
  protected readonly partialRequests: PartialRequests;
  protected readonly call: ServedCall;
  readonly #decompressor: Decompressor;
  readonly #encoding: Encoding | undefined;

  constructor(parts: RequestParts, { stream, encoding }: IncomingCall, call: ServedCall) {
    super(parts, stream);
    this.partialRequests = parts.partialRequests;
    this.call = call;
    this.#decompressor = parts.decompressor;
    this.#encoding = encoding;
    call.memory = this.memory;
  }

  onTimeout(): void {
    const message = "the request did not arrive in time";
    this.call.fail(new ServiceError("deadline_exceeded", "DEADLINE_EXCEEDED", message));
  }

  protected onRevoke(error: ServiceError): void {
    this.call.fail(error);
  }

  /** Calls `whole` at once if the message was not compressed, else `decompressed` later. */
  protected decompress(
    message: Buffer,
    whole: (bytes: Buffer) => void,
    decompressed: (bytes: Buffer) => void,
  ): void {
    const encoding = this.#encoding;
    if (encoding === undefined || !isCompressed(message)) return whole(message);
    void this.#decompressor.decompress(message, { encoding, call: this.call }, decompressed);
  }
}

/** The request of a call with a single request: its memory is freed after the handler. */
export class OneRequest extends CallRequests {
  #isAcquired = false;
  /** True when the call has ended for the caller, and no byte is held below. */
  #isClosed = false;

  constructor(parts: RequestParts, arrived: IncomingCall, call: ServedCall) {
    super(parts, arrived, call);
    this.partialRequests.requests.begin(this);
  }

  /** Calls `then` with the decompressed message, at once if it was not compressed. */
  decompressed(message: Buffer, then: (bytes: Buffer) => void): void {
    this.decompress(message, then, (bytes) => {
      this.keep(bytes.length);
      if (this.hasRoom()) then(bytes);
    });
  }

  /** A handler has the request, and continues with it even when the caller leaves. */
  acquire({ canEnd }: { readonly canEnd: boolean }): void {
    this.#isAcquired = true;
    this.memory.lease.canRevoke = canEnd;
  }

  release(): void {
    this.#isAcquired = false;
    this.memory.lease.canRevoke = true;
    if (this.#isClosed) this.memory.release();
  }

  /** The answer stays with the stream until the caller has read it. */
  holdAnswer(bytes: number): void {
    this.memory.lease.awaitsCaller = true;
    this.memory.answer(bytes);
  }

  /** The call has ended for its caller. */
  close(): void {
    this.partialRequests.requests.end(this);
    this.closeStream();
  }

  /** False: no room is free for it, and the call has ended. */
  hasRoom(): boolean {
    if (this.memory.lease.hasRoom) return true;
    this.call.fail(serverBusy());
    return false;
  }

  protected onChunk(): boolean {
    return this.hasRoom();
  }

  protected onEnd(): void {
    this.partialRequests.requests.end(this);
  }

  protected override onClosed(): void {
    this.#isClosed = true;
    if (!this.#isAcquired) this.memory.release();
  }
}

/**
 * The requests of a stream. Three amounts are held: the next request from its first byte, the
 * decoded message until the handler has taken it, and the bytes of earlier messages that the
 * handler reports as held.
 *
 *   idle ── asked, room ──► awaited ── message ──► handed ── taken ──► idle
 *             │ no room       │ no room: paused, until room is free
 *             ▼               └─ incomplete for too long ──► the call is refused
 *          waiting until room is free
 */
export class ManyRequests extends CallRequests {
  #isAwaited = false;
  #isPaused = false;
  #messageBytes = 0;
  #bufferedBytes = 0;

  constructor(parts: RequestParts, arrived: IncomingCall, call: ServedCall) {
    super(parts, arrived, call);
    this.memory.lease.canWait = true;
  }

  /** True: the next message may be requested. False: `go` is called when it may be. */
  canRequest(go: () => void): boolean {
    const { lease } = this.memory;
    if (lease.hasRoom) return true;
    lease.wait(go);
    return false;
  }

  /** The message was requested, and has not arrived. */
  onRequested(): void {
    this.#isAwaited = true;
    this.onPassed();
  }

  /** `then` gets the decompressed bytes, at once if the message was not compressed. */
  read(message: Buffer, then: (bytes: Buffer) => void): void {
    this.#isAwaited = false;
    this.partialRequests.onComplete(this);
    this.#hold(message.length, message.length + FRAME_HEAD_BYTES);
    this.decompress(message, then, (bytes) => {
      this.#hold(bytes.length);
      then(bytes);
    });
  }

  /** The handler has taken the message, if any, and buffers this number of bytes. */
  release(bufferedBytes: number): void {
    this.#bufferedBytes = bufferedBytes;
    this.#hold(0);
    this.memory.lease.stopWaiting();
  }

  setBufferedBytes(bufferedBytes: number): void {
    if (bufferedBytes === this.#bufferedBytes) return;
    this.#bufferedBytes = bufferedBytes;
    this.keep(this.#messageBytes + bufferedBytes);
  }

  /** Bytes that were sent and that the caller has not taken. */
  setUnsentBytes(bytes: number): void {
    this.memory.lease.awaitsCaller = bytes > 0;
    this.memory.answer(bytes);
  }

  /** The bytes that the handler still has move to a queue with its own limit. */
  close(): void {
    this.partialRequests.onComplete(this);
    this.closeStream();
  }

  /** Bytes that were not requested stay with the stream, at most one window. */
  protected onChunk(): boolean {
    return true;
  }

  /** Watches a message as long as it is incomplete. */
  protected override onPassed(): void {
    if (!this.#isAwaited || this.#isPaused || this.call.hasEnded) return;
    const { lease } = this.memory;
    if (this.bytes > 0) this.partialRequests.onChunk(this);
    if (lease.hasRoom) return;
    this.#isPaused = true;
    this.partialRequests.onComplete(this); // The server itself delays the message.
    this.stream.pause();
    lease.wait(() => {
      this.#isPaused = false;
      if (!this.#isAwaited || this.call.hasEnded) return;
      this.stream.resume();
      this.onPassed();
    });
  }

  protected onEnd(): void {
    this.partialRequests.onComplete(this);
  }

  protected override onClosed(): void {
    this.memory.release();
  }

  #hold(messageBytes: number, wireBytes = 0): void {
    this.#messageBytes = messageBytes;
    this.countMessage(wireBytes, { bufferedBytes: messageBytes + this.#bufferedBytes });
  }
}

/** The flag, and the length of the message. */
const FRAME_HEAD_BYTES = 5;

/**
 * grpc-js gives a view of the frame, whose flag is five bytes before the message
 * (test/e2e/rpc-requests.test.ts).
 */
export function isCompressed(message: Buffer): boolean {
  return new Uint8Array(message.buffer, message.byteOffset - FRAME_HEAD_BYTES, 1)[0] === 1;
}

/**
 * Requests that are decompressed at once: four kilobytes can become as many megabytes, and two of
 * libuv's four threads stay free. grpc-js would decompress the messages of all calls at once.
 */
const DECOMPRESSED_AT_ONCE = 2;

const DECOMPRESS = { gzip: promisify(gunzip), deflate: promisify(inflate) };

/** Decompresses messages in the order of their arrival; the others wait compressed. */
export class Decompressor {
  readonly #bytesMax: number;
  // Each waiting message belongs to a different call, and calls are limited.
  readonly #slots = new Semaphore({ atOnce: DECOMPRESSED_AT_ONCE });

  /** `bytesMax` is the limit of one message. */
  constructor({ bytesMax }: { readonly bytesMax: number }) {
    this.#bytesMax = bytesMax;
  }

  /** Calls `done`, unless the call has ended; fails the call when the message is broken. */
  async decompress(
    message: Buffer,
    { encoding, call }: { readonly encoding: Encoding; readonly call: ServedCall },
    done: (decompressed: Buffer) => void,
  ): Promise<void> {
    const decompressed = await this.#slots.run(async () => {
      if (call.hasEnded) return undefined;
      try {
        return await DECOMPRESS[encoding](message, { maxOutputLength: this.#bytesMax });
      } catch (error) {
        return call.fail(this.#refusal(error));
      }
    });
    if (decompressed !== undefined && !call.hasEnded) done(decompressed);
  }

  #refusal(error: unknown): ServiceError {
    if (error instanceof Error && "code" in error && error.code === "ERR_BUFFER_TOO_LARGE") {
      const message = `the request decompresses to more than ${this.#bytesMax} bytes`;
      return new ServiceError("overloaded", "REQUEST_TOO_LARGE", message);
    }
    return invalidArgument([
      { field: "", description: "the request cannot be decompressed by its grpc-encoding" },
    ]);
  }
}
