/**
 * A call with streams in both directions. The handler is called for each message and answers
 * whether the next may come. No message is read before that, so it stays with the caller.
 *
 *   started ── message ──► onMessage ── true ──► the next message is requested
 *     │                        └─── false ──► paused ── resume ──► the next message is requested
 *     ├── half-close ──► onHalfClose
 *     └── cancelled, deadline, stop ──► onClose
 *
 * The memory of a window is reserved with the call. A larger message is reserved when its head has
 * arrived, until the handler has it; then the bytes count that the handler reports. Without room the
 * stream is not read on, until it has.
 *
 * grpc-js delivers an arrived message inside the request for it, so a loop requests messages:
 * nested requests would exhaust the stack.
 */
import type { DescMethod, Message } from "@bufbuild/protobuf";
import type { ServerInterceptingCallInterface } from "@grpc/grpc-js";
import { CALL_BYTES, type CallMemory, SMALL_BYTES } from "../base/budget.ts";
import { ServiceError } from "@session-ledger/base/errors";
import type { BidiCaller, BidiReceiver } from "../contract/context.ts";
import { decoderOf, encoderOf } from "./codec.ts";
import {
  type IncomingCall,
  LATE_TICKS,
  type MethodDeps,
  ServedCall,
  type WireCall,
} from "./serve.ts";

export type BidiStreamHandler = (caller: BidiCaller<Message>) => BidiReceiver<Message>;

interface Codec {
  readonly decode: (bytes: Uint8Array) => Message;
  readonly encode: (message: Message) => Buffer;
}

/** The bytes that a stream may receive before they are read: HTTP/2's default window. */
const WINDOW_BYTES = 64 * 1024;

/** https://zlib.net/zlib_tech.html: no more than 1032 to 1. */
const DEFLATE_RATIO_MAX = 1_032;

/** Answers the calls of one method with streams in both directions. */
export function bidiStream(
  deps: MethodDeps,
  method: DescMethod,
  handle: BidiStreamHandler,
): (wire: ServerInterceptingCallInterface, arrived: IncomingCall) => void {
  const codec = { decode: decoderOf(method.input), encode: encoderOf(method.output) };
  return (wire, arrived) => wire.start(new BidiCall(deps, { wire, arrived }, { codec, handle }));
}

class BidiCall extends ServedCall implements BidiCaller<Message> {
  readonly isStream = true;
  readonly #codec: Codec;
  readonly #handle: BidiStreamHandler;
  #receiver: BidiReceiver<Message> | undefined;
  /** True when the handler may hear nothing more. */
  #hasLeft = false;
  #isRequesting = false;
  /** The next message was requested, and has not arrived. */
  #isAwaited = false;
  /** No room is free for the bytes that the stream needs. */
  #isPaused = false;
  /** The handler wants a message, which waits for room. */
  #isBlocked = false;
  /** The message that arrived inside the request for it. */
  #arrived: Buffer | undefined;
  /** Stated sizes of messages that the handler does not have yet, the next one first. */
  readonly #sizes: number[] = [];
  #lateTicks = 0;
  #unsentTicks = 0;
  unsentBytes = 0;

  constructor(
    deps: MethodDeps,
    call: WireCall,
    { codec, handle }: { readonly codec: Codec; readonly handle: BidiStreamHandler },
  ) {
    super(deps, call);
    this.#codec = codec;
    this.#handle = handle;
  }

  onReceiveMessage(bytes: Buffer): void {
    this.#isAwaited = false;
    this.#lateTicks = 0;
    this.decompress(bytes, (message) => {
      if (this.hasEnded) return;
      if (this.#isRequesting) this.#arrived = message;
      else this.#deliver(message);
    });
  }

  /**
   * Node ends the reading side of a reset stream before it reports the reset: for a moment, a caller who
   * left looks like one who has sent everything.
   */
  onReceiveHalfClose(): void {
    setImmediate(() => {
      if (!this.#hasLeft) this.#guarded(() => this.#receiver?.onHalfClose());
    });
  }

  protected override reserve(): CallMemory {
    return super.reserve({
      fixedBytes: CALL_BYTES + WINDOW_BYTES,
      includedBytes: SMALL_BYTES + WINDOW_BYTES,
    });
  }

  protected onAdmitted(): void {
    const { signal } = this;
    try {
      this.startHandling();
    } catch (error) {
      return this.fail(error);
    }
    signal.addEventListener("abort", () => this.#onAbort(ServiceError.from(signal.reason)));
    this.sendHeaders();
    this.#guarded(() => {
      const receiver = this.#handle(this);
      this.#receiver = receiver;
      this.setRecord(() => receiver.record);
      this.#requestMore();
    });
  }

  onMessageHead(bytes: number, isPacked: boolean): boolean {
    const { requestBytesMax } = this.deps;
    if (bytes > requestBytesMax) return true; // grpc-js refuses it.
    const unpackedMax = Math.min(requestBytesMax, bytes * DEFLATE_RATIO_MAX);
    this.#sizes.push(isPacked ? bytes + unpackedMax : bytes);
    this.#reserveMessages();
    return true;
  }

  onPieces(bytes: number): boolean {
    const last = this.#sizes.length - 1;
    this.#sizes[last] = (this.#sizes[last] ?? 0) + bytes;
    this.#reserveMessages();
    return true;
  }

  send(message: Message): void {
    if (this.#hasLeft) return;
    const bytes = this.#codec.encode(message);
    this.unsentBytes += bytes.length;
    this.sendMessage([bytes], bytes.length, () => {
      this.unsentBytes -= bytes.length;
      this.#unsentTicks = 0;
      if (!this.#hasLeft) this.#guarded(() => this.#receiver?.onDrain());
    });
  }

  resume(): void {
    this.#reserveMessages();
    this.#requestMore();
  }

  end(error?: ServiceError): void {
    if (this.#hasLeft) return;
    this.#leave();
    if (error === undefined) this.succeed();
    else this.fail(error);
  }

  /** No event reports that a handler holds fewer bytes, so its count is read regularly. */
  tick(): void {
    this.#reserveMessages();
    if (this.memory?.resize("answer", this.unsentBytes) === false) this.failBusy();
    const isLate = this.#isAwaited && this.incoming.hasPart && !this.#isPaused;
    this.#lateTicks = isLate ? this.#lateTicks + 1 : 0;
    this.#unsentTicks = this.unsentBytes > 0 || this.hasEnded ? this.#unsentTicks + 1 : 0;
    if (this.#lateTicks > LATE_TICKS) this.failLate();
    else if (this.#unsentTicks > LATE_TICKS) this.endUnread();
  }

  #deliver(first: Buffer | undefined): void {
    let bytes = first;
    while (bytes !== undefined && !this.#hasLeft) {
      const wantsMore = this.#deliverOne(bytes);
      this.#sizes.shift();
      this.#reserveMessages();
      if (!wantsMore) return;
      bytes = this.#requestNext();
    }
  }

  #requestMore(): void {
    this.#deliver(this.#requestNext());
  }

  /** Requests the next message when room is free; returns it when it has already arrived. */
  #requestNext(): Buffer | undefined {
    const hasWhole = this.#sizes.length > (this.incoming.hasPart ? 1 : 0);
    this.#isBlocked = this.#isPaused && !hasWhole;
    if (this.#isBlocked) return undefined;
    this.#isAwaited = true;
    this.#isRequesting = true;
    this.wire.startRead();
    this.#isRequesting = false;
    const arrived = this.#arrived;
    this.#arrived = undefined;
    return arrived;
  }

  #deliverOne(bytes: Buffer): boolean {
    const receiver = this.#receiver;
    if (receiver === undefined) return false;
    let message: Message;
    try {
      message = this.#codec.decode(bytes);
    } catch (error) {
      this.#guarded(() => receiver.onDecodeError(ServiceError.from(error)));
      return false;
    }
    try {
      return receiver.onMessage(message);
    } catch (error) {
      this.fail(error);
      return false;
    }
  }

  /** Reserves what has been stated and what the handler keeps, or stops reading until it is. */
  #reserveMessages(): void {
    const { memory } = this;
    if (memory === undefined) return;
    const bytes = sum(this.#sizes) + (this.#receiver?.bufferedBytes ?? 0);
    if (memory.resize("request", bytes)) return this.#onRoom();
    if (!this.#isPaused) this.stream.pause();
    this.#isPaused = true;
    memory.wait("request", bytes, () => this.#onRoom());
  }

  #onRoom(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    if (this.hasEnded) return;
    if (this.#isBlocked) this.#requestMore();
    else if (this.#isAwaited) this.stream.resume();
  }

  /** A handler that throws is a defect; the call ends, so that its caller does not wait. */
  #guarded(act: () => void): void {
    try {
      act();
    } catch (error) {
      this.fail(error);
    }
  }

  #onAbort(error: ServiceError): void {
    if (this.#hasLeft) return;
    this.#leave();
    try {
      this.#receiver?.onClose(error);
    } catch (failure) {
      this.fail(failure);
    }
  }

  #leave(): void {
    this.#hasLeft = true;
    this.stopHandling();
  }
}

function sum(sizes: readonly number[]): number {
  let bytes = 0;
  for (const size of sizes) bytes += size;
  return bytes;
}
