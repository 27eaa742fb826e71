/**
 * A call with streams in both directions. The handler is called for each message and answers
 * whether the next may come. No message is read before that, so it stays with the caller.
 *
 *   begun ── message ──► heard ── true ──► the next is asked for
 *     │                    └─── false ──► silence ── hearOn ──► the next is asked for
 *     ├── half-close ──► heardAll
 *     └── cancelled, deadline, stop ──► over
 *
 * grpc-js delivers an arrived message inside the request for it. A request for the next message
 * from there would exhaust the stack when a caller sends many small messages, so a loop requests
 * them.
 */
import type { DescMethod, Message } from "@bufbuild/protobuf";
import type { ServerInterceptingCallInterface } from "@grpc/grpc-js";
import type { CallMemory } from "../auth/caller-memory.ts";
import type { Principal } from "../auth/principal.ts";
import { ServiceError } from "@session-ledger/base/errors";
import type { Caller, Conversation } from "../contract/context.ts";
import { ServedCall } from "./call.ts";
import { decoderOf } from "./decode.ts";
import { encoderOf } from "./encode.ts";
import type { OpenCalls } from "./open-calls.ts";
import { admit, type MethodDeps } from "./receive.ts";
import { type Arrived, ManyRequests } from "./requests.ts";

export type BidiStreamHandler = (caller: Caller<Message>) => Conversation<Message>;

interface Codec {
  readonly decode: (bytes: Uint8Array) => Message;
  readonly encode: (message: Message) => Buffer;
}

/** Answers the calls of one method with streams in both directions. */
export function bidiStream(
  deps: MethodDeps,
  method: DescMethod,
  handle: BidiStreamHandler,
): (wire: ServerInterceptingCallInterface, arrived: Arrived) => void {
  const { openCalls, records, callers, incoming } = deps;
  const codec = { decode: decoderOf(method.input), encode: encoderOf(method.output) };
  return (wire, arrived) => {
    const call = new ServedCall(wire, arrived.stream, records);
    const requests = new ManyRequests(incoming, arrived, call);
    const talk = new Talk({ wire, call, requests, openCalls }, codec);
    wire.start({
      onReceiveMetadata: (metadata) => {
        call.tracedFrom(metadata);
        admit(call, { callers, metadata }, () => talk.begin(handle));
      },
      onReceiveMessage: (bytes: Buffer) => requests.read(bytes, (message) => talk.came(message)),
      // Node ends the reading side of a reset stream before it reports the reset. For a moment, a
      // caller who left looks like one who has sent everything.
      onReceiveHalfClose: () => void setImmediate(() => talk.cameAll()),
      onCancel: () => {
        call.wasLeft();
        requests.over();
      },
    });
  };
}

class Talk implements Caller<Message> {
  readonly #wire: ServerInterceptingCallInterface;
  readonly #call: ServedCall;
  readonly #requests: ManyRequests;
  readonly #openCalls: OpenCalls;
  readonly #codec: Codec;
  #conversation: Conversation<Message> | undefined;
  #isOver = false;
  #isAsking = false;
  /** The message that arrived inside the request for it. */
  #came: Buffer | undefined;
  #unsentBytes = 0;

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

  get unsentBytes(): number {
    return this.#unsentBytes;
  }

  begin(handle: BidiStreamHandler): void {
    const { signal } = this.#call;
    try {
      this.#openCalls.enter(this);
    } catch (error) {
      return this.#call.fail(error);
    }
    signal.addEventListener("abort", () => this.#over(ServiceError.from(signal.reason)));
    this.#call.sendHeaders();
    this.#guarded(() => {
      const conversation = handle(this);
      this.#conversation = conversation;
      this.#call.describedBy(() => conversation.record);
      this.#askOn();
    });
  }

  came(bytes: Buffer): void {
    if (this.#isAsking) this.#came = bytes;
    else this.#hear(bytes);
  }

  cameAll(): void {
    if (!this.#isOver) this.#guarded(() => this.#conversation?.heardAll());
  }

  send(message: Message): void {
    if (this.#isOver) return;
    const bytes = this.#codec.encode(message);
    this.#unsentBytes += bytes.length;
    this.tick(); // The handler may have stored some of its messages meanwhile.
    this.#call.send(bytes, () => {
      this.#unsentBytes -= bytes.length;
      if (!this.#isOver) this.#guarded(() => this.#conversation?.sent());
    });
  }

  hearOn(): void {
    this.#requests.taken(this.#keptBytes);
    this.#askOn();
  }

  fail(error: ServiceError): void {
    this.#call.fail(error);
  }

  /** No event tells that a handler holds fewer bytes, so it is asked regularly. */
  tick(): void {
    this.#requests.keeps(this.#keptBytes);
    this.#requests.unsent(this.#unsentBytes);
  }

  end(error?: ServiceError): void {
    if (this.#isOver) return;
    this.#leave();
    if (error === undefined) this.#call.succeed();
    else this.#call.fail(error);
  }

  get #keptBytes(): number {
    return this.#conversation?.keptBytes ?? 0;
  }

  #hear(first: Buffer | undefined): void {
    let bytes = first;
    while (bytes !== undefined && !this.#isOver && this.#isHeard(bytes)) {
      this.#requests.taken(this.#keptBytes);
      bytes = this.#asked();
    }
  }

  #askOn(): void {
    this.#hear(this.#asked());
  }

  /** Requests the next message when there is room; returns it when it has already arrived. */
  #asked(): Buffer | undefined {
    if (!this.#requests.mayAsk(() => this.#askOn())) return undefined;
    this.#isAsking = true;
    this.#wire.startRead();
    this.#isAsking = false;
    const came = this.#came;
    this.#came = undefined;
    if (came === undefined) this.#requests.awaited();
    return came;
  }

  #isHeard(bytes: Buffer): boolean {
    const conversation = this.#conversation;
    if (conversation === undefined) return false;
    let message: Message;
    try {
      message = this.#codec.decode(bytes);
    } catch (error) {
      this.#guarded(() => conversation.misheard(ServiceError.from(error)));
      return false;
    }
    try {
      return conversation.heard(message);
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

  #over(error: ServiceError): void {
    if (this.#isOver) return;
    this.#leave();
    try {
      this.#conversation?.over(error);
    } catch (failure) {
      this.#call.fail(failure);
    }
  }

  #leave(): void {
    this.#isOver = true;
    this.#openCalls.leave(this);
  }
}
