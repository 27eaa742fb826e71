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

/** A call with streams both ways, from the side that made it. */
export interface Conversation<I extends DescMessage, O extends DescMessage> {
  /** False: the transport has enough for now, and more is only kept in memory until `drained`. */
  send(request: MessageInitShape<I>): boolean;
  /** Resolves when the transport takes more, and when the conversation is over. */
  drained(): Promise<void>;
  /** Nothing more will be sent; what the service has to say still comes. */
  end(): void;
  cancel(): void;
  /** To be read once, to its end. Throws an RpcFailure when the service ends with one. */
  readonly responses: AsyncGenerator<MessageShape<O>, void, undefined>;
}

export function conversationOn<I extends DescMessage, O extends DescMessage>(
  stream: ClientDuplexStream<Buffer, Buffer>,
  method: { readonly input: I; readonly output: O },
  signal: AbortSignal | undefined,
): Conversation<I, O> {
  let failure: unknown; // One that comes before the first read would be lost.
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
      if (isOver) return true; // Whoever reads the responses is told why.
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
