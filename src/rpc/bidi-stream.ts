/**
 * A call with streams in both directions. The handler is called for each message and answers
 * whether the next may come. No message is read before that, so it stays with the caller.
 *
 *   started ── message ──► onMessage ── true ──► the next message is requested
 *     │                        └─── false ──► paused ── resume ──► the next message is requested
 *     ├── half-close ──► onHalfClose
 *     └── cancelled, deadline, stop ──► onClose
 *
 * grpc-js delivers an arrived message inside the request for it, so a loop requests messages:
 * nested requests would exhaust the stack.
 */
import type { DescMethod, Message } from "@bufbuild/protobuf";
import type { ServerInterceptingCallInterface } from "@grpc/grpc-js";
import type { CallMemory } from "../auth/caller-memory.ts";
import type { Principal } from "../auth/principal.ts";
import { ServiceError } from "@session-ledger/base/errors";
import type { BidiCaller, BidiReceiver } from "../contract/context.ts";
import { ServedCall } from "./call.ts";
import { decoderOf } from "./decode.ts";
import { encoderOf } from "./encode.ts";
import type { OpenCalls } from "./open-calls.ts";
import { admit, type MethodDeps } from "./receive.ts";
import { type IncomingCall, ManyRequests } from "./requests.ts";

export type BidiStreamHandler = (caller: BidiCaller<Message>) => BidiReceiver<Message>;

interface Codec {
  readonly decode: (bytes: Uint8Array) => Message;
  readonly encode: (message: Message) => Buffer;
}

/** Answers the calls of one method with streams in both directions. */
export function bidiStream(
  deps: MethodDeps,
  method: DescMethod,
  handle: BidiStreamHandler,
): (wire: ServerInterceptingCallInterface, arrived: IncomingCall) => void {
  const { openCalls, records, callers, incoming } = deps;
  const codec = { decode: decoderOf(method.input), encode: encoderOf(method.output) };
  return (wire, arrived) => {
    const call = new ServedCall(wire, arrived.stream, records);
    const requests = new ManyRequests(incoming, arrived, call);
    const bidi = new BidiCall({ wire, call, requests, openCalls }, codec);
    wire.start({
      onReceiveMetadata: (metadata) => {
        call.startSpan(metadata);
        admit(call, { callers, metadata }, () => bidi.begin(handle));
      },
      onReceiveMessage: (bytes: Buffer) => requests.read(bytes, (message) => bidi.onBytes(message)),
      // Node ends the reading side of a reset stream before it reports the reset: for a moment, a
      // caller who left looks like one who has sent everything.
      onReceiveHalfClose: () => void setImmediate(() => bidi.onHalfClose()),
      onCancel: () => {
        call.onCancel();
        requests.close();
      },
    });
  };
}

class BidiCall implements BidiCaller<Message> {
  readonly #wire: ServerInterceptingCallInterface;
  readonly #call: ServedCall;
  readonly #requests: ManyRequests;
  readonly #openCalls: OpenCalls;
  readonly #codec: Codec;
  #receiver: BidiReceiver<Message> | undefined;
  #hasEnded = false;
  #isRequesting = false;
  /** The message that arrived inside the request for it. */
  #arrived: Buffer | undefined;
  unsentBytes = 0;

  constructor(
    parts: {
      readonly wire: ServerInterceptingCallInterface;
      readonly call: ServedCall;
      readonly requests: ManyRequests;
      readonly openCalls: OpenCalls;
    },
    codec: Codec,
  ) {
    this.#wire = parts.wire;
    this.#call = parts.call;
    this.#requests = parts.requests;
    this.#openCalls = parts.openCalls;
    this.#codec = codec;
  }

  get principal(): Principal {
    return this.#call.principal;
  }

  get memory(): CallMemory | undefined {
    return this.#call.memory;
  }

  begin(handle: BidiStreamHandler): void {
    const { signal } = this.#call;
    try {
      this.#openCalls.enter(this);
    } catch (error) {
      return this.#call.fail(error);
    }
    signal.addEventListener("abort", () => this.#onAbort(ServiceError.from(signal.reason)));
    this.#call.sendHeaders();
    this.#guarded(() => {
      const receiver = handle(this);
      this.#receiver = receiver;
      this.#call.setRecord(() => receiver.record);
      this.#requestMore();
    });
  }

  onBytes(bytes: Buffer): void {
    if (this.#isRequesting) this.#arrived = bytes;
    else this.#deliver(bytes);
  }

  onHalfClose(): void {
    if (!this.#hasEnded) this.#guarded(() => this.#receiver?.onHalfClose());
  }

  send(message: Message): void {
    if (this.#hasEnded) return;
    const bytes = this.#codec.encode(message);
    this.unsentBytes += bytes.length;
    this.tick(); // The handler may have stored some of its messages meanwhile.
    this.#call.send(bytes, () => {
      this.unsentBytes -= bytes.length;
      if (!this.#hasEnded) this.#guarded(() => this.#receiver?.onDrain());
    });
  }

  resume(): void {
    this.#requests.release(this.#bufferedBytes);
    this.#requestMore();
  }

  fail(error: ServiceError): void {
    this.#call.fail(error);
  }

  /** No event reports that a handler holds fewer bytes, so its count is read regularly. */
  tick(): void {
    this.#requests.setBufferedBytes(this.#bufferedBytes);
    this.#requests.setUnsentBytes(this.unsentBytes);
  }

  end(error?: ServiceError): void {
    if (this.#hasEnded) return;
    this.#leave();
    if (error === undefined) this.#call.succeed();
    else this.#call.fail(error);
  }

  get #bufferedBytes(): number {
    return this.#receiver?.bufferedBytes ?? 0;
  }

  #deliver(first: Buffer | undefined): void {
    let bytes = first;
    while (bytes !== undefined && !this.#hasEnded && this.#deliverOne(bytes)) {
      this.#requests.release(this.#bufferedBytes);
      bytes = this.#requestNext();
    }
  }

  #requestMore(): void {
    this.#deliver(this.#requestNext());
  }

  /** Requests the next message when room is free; returns it when it has already arrived. */
  #requestNext(): Buffer | undefined {
    if (!this.#requests.canRequest(() => this.#requestMore())) return undefined;
    this.#isRequesting = true;
    this.#wire.startRead();
    this.#isRequesting = false;
    const arrived = this.#arrived;
    this.#arrived = undefined;
    if (arrived === undefined) this.#requests.onRequested();
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
      this.#call.fail(error);
      return false;
    }
  }

  /** A handler that throws is a defect; the call ends, so that its caller does not wait. */
  #guarded(act: () => void): void {
    try {
      act();
    } catch (error) {
      this.#call.fail(error);
    }
  }

  #onAbort(error: ServiceError): void {
    if (this.#hasEnded) return;
    this.#leave();
    try {
      this.#receiver?.onClose(error);
    } catch (failure) {
      this.#call.fail(failure);
    }
  }

  #leave(): void {
    this.#hasEnded = true;
    this.#openCalls.leave(this);
  }
}
