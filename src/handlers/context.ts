import type { DescMessage, DescService, MessageShape } from "@bufbuild/protobuf";
import type { GenServiceMethods } from "@bufbuild/protobuf/codegenv2";

/** What a handler knows of the call, whatever protocol it came by. */
export interface CallContext {
  /** Aborted when the caller left, its deadline passed, or the service stops. */
  readonly signal: AbortSignal;
  /** The same as a question: a signal is an object a call, and a push asks once. */
  readonly hasEnded: boolean;
}

type Unary<I extends DescMessage, O extends DescMessage> = (
  request: MessageShape<I>,
  context: CallContext,
) => Promise<MessageShape<O>>;

type ServerStream<I extends DescMessage, O extends DescMessage> = (
  request: MessageShape<I>,
  context: CallContext,
) => AsyncIterable<MessageShape<O>>;

type BidiStream<I extends DescMessage, O extends DescMessage> = (
  requests: AsyncIterable<MessageShape<I>>,
  context: CallContext,
) => AsyncIterable<MessageShape<O>>;

/** One function a method of the generated service, with the generated messages in and out. */
export type Handlers<S extends DescService & { readonly method: GenServiceMethods }> = {
  readonly [K in keyof S["method"]]: S["method"][K] extends {
    readonly methodKind: infer Kind;
    readonly input: infer I extends DescMessage;
    readonly output: infer O extends DescMessage;
  }
    ? Kind extends "unary"
      ? Unary<I, O>
      : Kind extends "server_streaming"
        ? ServerStream<I, O>
        : BidiStream<I, O>
    : never;
};
