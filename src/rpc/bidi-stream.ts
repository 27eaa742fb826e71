import type { DescMessage, DescMethod, Message } from "@bufbuild/protobuf";
import type { ServerInterceptingCallInterface } from "@grpc/grpc-js";
import type { CallContext } from "../handlers/context.ts";
import type { CallRecords } from "./call-records.ts";
import { decoderOf } from "./decode.ts";
import { sharedEncoderOf } from "./encode.ts";
import type { OpenCalls } from "./open-calls.ts";
import { sendAll } from "./send-all.ts";
import { ServedCall } from "./served-call.ts";

export type BidiStreamHandler = (
  requests: AsyncIterable<Message>,
  context: CallContext,
) => AsyncIterable<Message>;

/** Answers the calls of one method with streams both ways; a request is read when it is asked for. */
export function bidiStream(
  deps: { readonly openCalls: OpenCalls; readonly records: CallRecords },
  method: DescMethod,
  handle: BidiStreamHandler,
): (wire: ServerInterceptingCallInterface) => void {
  const { openCalls, records } = deps;
  const encode = sharedEncoderOf(method.output);

  const converse = async (call: ServedCall, requests: AsyncIterable<Message>): Promise<void> => {
    try {
      openCalls.enter(call);
    } catch (error) {
      return call.fail(error);
    }
    try {
      call.sendHeaders();
      await sendAll(call, handle(requests, call), encode);
      call.succeed();
    } catch (error) {
      call.fail(error);
    } finally {
      openCalls.leave(call);
    }
  };

  return (wire) => {
    const call = new ServedCall(wire, records);
    const frames = new Frames(wire, call);
    wire.start({
      onReceiveMetadata: () => void converse(call, requestsOf(method.input, frames)),
      onReceiveMessage: (bytes: Buffer) => frames.came(bytes),
      // Node ends the reading side of a stream that was reset before it says that it was: for a
      // moment a caller who left looks like one who has sent everything.
      onReceiveHalfClose: () => void setImmediate(() => frames.came(undefined)),
      onCancel: () => call.wasLeft(),
    });
  };
}

async function* requestsOf(input: DescMessage, frames: Frames): AsyncGenerator<Message> {
  const decode = decoderOf(input);
  for (;;) {
    const bytes = await frames.next();
    if (bytes === undefined) return;
    yield decode(bytes);
  }
}

/** The caller's frames, one at a time: what has not been asked for stays with the caller. */
class Frames {
  readonly #wire: ServerInterceptingCallInterface;
  readonly #signal: AbortSignal;
  #asked: PromiseWithResolvers<Buffer | undefined> | undefined;

  constructor(wire: ServerInterceptingCallInterface, call: ServedCall) {
    this.#wire = wire;
    this.#signal = call.signal;
    const onAbort = (): void => this.#asked?.reject(this.#signal.reason);
    this.#signal.addEventListener("abort", onAbort, { once: true });
  }

  /** Undefined at the end; rejects with the reason when the call is over before. */
  async next(): Promise<Buffer | undefined> {
    this.#signal.throwIfAborted();
    this.#asked = Promise.withResolvers();
    this.#wire.startRead();
    return this.#asked.promise;
  }

  came(bytes: Buffer | undefined): void {
    this.#asked?.resolve(bytes);
  }
}
