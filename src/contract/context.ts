import type { DescMessage, DescService, MessageShape } from "@bufbuild/protobuf";
import type { GenServiceMethods } from "@bufbuild/protobuf/codegenv2";
import type { CallMemory } from "../auth/caller-memory.ts";
import type { Principal } from "../auth/principal.ts";
import type { ServiceError } from "../base/errors.ts";
import type { Span } from "../observability/trace.ts";

/** What a handler knows of the call, whatever protocol it came by. */
export interface CallContext {
  readonly principal: Principal;
  /** Aborted when the caller left, its deadline passed, or the service stops. */
  readonly signal: AbortSignal;
  /** The same as a question: a signal is an object a call, and a push asks once. */
  readonly hasEnded: boolean;
  /** Of its trace; undefined where none is recorded. */
  readonly span?: Span | undefined;
  /** What is held for the call; undefined where nothing is counted. */
  readonly memory?: CallMemory | undefined;
}

type Unary<I extends DescMessage, O extends DescMessage> = (
  request: MessageShape<I>,
  context: CallContext,
) => Promise<MessageShape<O>>;

type ServerStream<I extends DescMessage, O extends DescMessage> = (
  request: MessageShape<I>,
  context: CallContext,
) => AsyncIterable<MessageShape<O>>;

/**
 * A stream both ways, as calls and not as generators: with one small message after the other, two
 * promises a message cost more than what is done with it.
 */
type BidiStream<I extends DescMessage, O extends DescMessage> = (
  caller: Caller<MessageShape<O>>,
) => Conversation<MessageShape<I>>;

/** The other side of a stream both ways, as a handler sees it. */
export interface Caller<M> {
  readonly principal: Principal;
  /** What is held for the call; undefined where nothing is counted. */
  readonly memory?: CallMemory | undefined;
  /** Does nothing once the call is over. */
  send(message: M): void;
  /** Sent, and not yet taken by the connection: its reader is slow. */
  readonly unsentBytes: number;
  /** To be called after `heard` answered false: the next message may come. */
  hearOn(): void;
  /** Ends the call, with OK or with the status of the error; `over` is not called then. */
  end(error?: ServiceError): void;
}

/** One call of a stream both ways, as its caller's messages reach it. Nothing here may throw. */
export interface Conversation<M> {
  /** The next message; false: none may come until `hearOn`. They wait with the caller meanwhile. */
  heard(message: M): boolean;
  /** A message that cannot be read. None comes after it. */
  misheard(error: ServiceError): void;
  /** The caller has sent everything. */
  heardAll(): void;
  /** The connection took something: `unsentBytes` is less. */
  sent(): void;
  /** The caller left, its deadline passed, or the service stops. Nothing comes after it. */
  over(error: ServiceError): void;
  /** Of the messages that were heard, what is still in memory; absent: nothing that counts. */
  readonly keptBytes?: number;
  /** For the record of the call: its session, and counts. */
  readonly record: ConversationRecord;
}

export interface ConversationRecord {
  readonly sessionId: string;
  readonly counts: Readonly<Record<string, number>>;
}

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
