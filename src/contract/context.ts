import type { DescMessage, DescService, MessageShape } from "@bufbuild/protobuf";
import type { GenServiceMethods } from "@bufbuild/protobuf/codegenv2";
import { actorOf, ANONYMOUS, type Principal } from "../auth/principal.ts";
import type { Budget, Caller, CallMemory, Reservation } from "../base/budget.ts";
import { ServiceError } from "@session-ledger/base/errors";
import type { Span } from "../observability/trace.ts";

/** The facts about a call that a handler needs, for every protocol. */
export interface CallContext {
  readonly principal: Principal;
  /** Aborted when the caller leaves, its deadline passes, or the service stops. */
  readonly signal: AbortSignal;
  /** The same fact without a signal, which costs one object per call; a push reads it once. */
  readonly hasEnded: boolean;
  /** The span of the call; undefined where no trace is recorded. */
  readonly span?: Span | undefined;
  /** Counts the memory held for the call; undefined where memory is not counted. */
  readonly memory?: CallMemory | undefined;
}

/** One call of either edge. It ends once; both edges add their way to answer it. */
export class Call implements CallContext {
  memory: CallMemory | undefined;
  span: Span | undefined;
  /** Set before the handler runs. */
  principal: Principal = ANONYMOUS;
  hasEnded = false;
  #abortedBy: ServiceError | undefined;
  #controller: AbortController | undefined;

  /** Made on first use; most unary calls are over before any code could wait on it. */
  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.#abortedBy !== undefined) this.#controller.abort(this.#abortedBy);
    return this.#controller.signal;
  }

  /** With an error, the handler may still run, and `signal` aborts; only the first one counts. */
  protected markEnded(error?: ServiceError): void {
    this.hasEnded = true;
    if (error === undefined || this.#abortedBy !== undefined) return;
    this.#abortedBy = error;
    this.#controller?.abort(error);
  }
}

/** The caller as the shared limits know it: its name, or without tokens its connection. */
export function callerOf({ principal, memory }: Pick<CallContext, "principal" | "memory">): Caller {
  return actorOf(principal) ?? memory?.caller;
}

/** Reserves a part of a limit for the caller, or throws the refusal. */
export function reserveFor(context: Pick<CallContext, "principal" | "memory">) {
  return (limit: Budget, refusal: () => ServiceError): Reservation =>
    limit.mustReserve(callerOf(context), refusal);
}

/** The caller of a stream in both directions, as a handler sees it. */
export interface BidiCaller<M> {
  readonly principal: Principal;
  /** Counts the memory held for the call; undefined where memory is not counted. */
  readonly memory?: CallMemory | undefined;
  /** Does nothing after the end of the call. */
  send(message: M): void;
  /** Bytes that were sent and that the connection has not taken: the reader is slow. */
  readonly unsentBytes: number;
  /** Call this after `onMessage` returned false: the next message may come. */
  resume(): void;
  /** Ends the call, with OK or with the status of the error; `onClose` is not called then. */
  end(error?: ServiceError): void;
}

/** Receives the messages of one call with streams in both directions. Nothing here may throw. */
export interface BidiReceiver<M> {
  /** Takes the next message. False: none may come until `resume`; they stay with the caller. */
  onMessage(message: M): boolean;
  /** Takes a message that cannot be decoded. No message comes after it. */
  onDecodeError(error: ServiceError): void;
  /** The caller has sent everything. */
  onHalfClose(): void;
  /** The connection has taken some bytes: `unsentBytes` is lower. */
  onDrain(): void;
  /** The caller left, its deadline passed, or the service stops. Nothing comes after it. */
  onClose(error: ServiceError): void;
  /** Bytes of received messages that are still in memory; absent: nothing that counts. */
  readonly bufferedBytes?: number;
  /** The session and the counts for the record of the call. */
  readonly record: BidiRecord;
}

export interface BidiRecord {
  readonly sessionId: string;
  readonly counts: Readonly<Record<string, number>>;
}

/**
 * One function per method of the generated service, with its generated messages. Streams in both directions
 * are callbacks: two promises per small message cost too much.
 */
export type Handlers<S extends DescService & { readonly method: GenServiceMethods }> = {
  readonly [K in keyof S["method"]]: S["method"][K] extends {
    readonly methodKind: infer Kind;
    readonly input: infer I extends DescMessage;
    readonly output: infer O extends DescMessage;
  }
    ? Kind extends "unary"
      ? (request: MessageShape<I>, context: CallContext) => Promise<MessageShape<O>>
      : Kind extends "server_streaming"
        ? (request: MessageShape<I>, context: CallContext) => AsyncIterable<MessageShape<O>>
        : (caller: BidiCaller<MessageShape<O>>) => BidiReceiver<MessageShape<I>>
    : never;
};

/** The error with which Node's timers and streams reject when their signal is aborted. */
export function isAbort(error: unknown): boolean {
  return error instanceof Error && error.name === "AbortError";
}

export function shuttingDown(): ServiceError {
  return new ServiceError("unavailable", "SHUTTING_DOWN", "the service is shutting down");
}
