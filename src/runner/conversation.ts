import {
  create,
  type DescMessage,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import type { ClientDuplexStream } from "@grpc/grpc-js";
import { failureFrom } from "./failure.ts";

/** A call with streams in both directions, from its caller's side. */
export interface Conversation<I extends DescMessage, O extends DescMessage> {
  /**
   * False: the transport is full for now, and further messages are kept in memory until `drained`.
   */
  send(request: MessageInitShape<I>): boolean;
  /** Resolves when the transport has room, or when the conversation is over. */
  drained(): Promise<void>;
  /** The caller sends nothing more; responses still arrive. */
  end(): void;
  cancel(): void;
  /** May be read once, to its end. Throws an RpcFailure when the service ends with an error. */
  readonly responses: AsyncGenerator<MessageShape<O>, void, undefined>;
}

export function conversationOn<I extends DescMessage, O extends DescMessage>(
  stream: ClientDuplexStream<Buffer, Buffer>,
  method: { readonly input: I; readonly output: O },
  signal: AbortSignal | undefined,
): Conversation<I, O> {
  let failure: unknown; // A failure before the first read would be lost otherwise.
  let isOver = false;
  const waiting = new Set<() => void>();
  const wake = (): void => {
    for (const resolve of waiting) resolve();
    waiting.clear();
  };
  const cancel = (): void => stream.cancel();
  signal?.addEventListener("abort", cancel, { once: true });
  stream.on("drain", wake);
  stream.on("error", (error) => (failure = error));
  stream.on("status", () => {
    isOver = true;
    signal?.removeEventListener("abort", cancel);
    wake();
  });
  return {
    send: (request) => {
      if (isOver) return true; // The reader of the responses gets the reason.
      return stream.write(Buffer.from(toBinary(method.input, create(method.input, request))));
    },
    drained: () =>
      isOver || !stream.writableNeedDrain
        ? Promise.resolve()
        : new Promise((resolve) => waiting.add(resolve)),
    end: () => void stream.end(),
    cancel,
    responses: responsesOf(stream, method.output, () => failure),
  };
}

async function* responsesOf<O extends DescMessage>(
  stream: ClientDuplexStream<Buffer, Buffer>,
  output: O,
  failure: () => unknown,
): AsyncGenerator<MessageShape<O>, void, undefined> {
  try {
    for await (const bytes of stream) yield fromBinary(output, bytes);
  } catch (error) {
    throw failureFrom(error);
  } finally {
    stream.cancel();
  }
  if (failure() !== undefined) throw failureFrom(failure());
}
