import type { DescMethod, Message } from "@bufbuild/protobuf";
import type { ServerInterceptingCallInterface } from "@grpc/grpc-js";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { ServiceError } from "@session-ledger/base/errors";
import type { CallContext, Handlers } from "../contract/context.ts";
import { CallRecords, type LoggedCalls, type RecordDeps } from "../observability/call-records.ts";
import type { Metrics } from "../observability/metrics.ts";
import { bidiStream } from "./bidi-stream.ts";
import { answerEncoderOf, decoderOf, methodDefinitionOf } from "./codec.ts";
import { MethodRecords } from "./records.ts";
import {
  type CallParts,
  type IncomingCall,
  type MethodDeps,
  OneRequestCall,
  UnservedCall,
} from "./serve.ts";
import { serverStream } from "./server-stream.ts";

/** Handles a call in place of grpc-js, from its first byte to its status. */
type CallHandler = (wire: ServerInterceptingCallInterface, arrived: IncomingCall) => void;

/** A method without a handler answers UNIMPLEMENTED. */
export type SessionHandlers = Partial<Handlers<typeof SessionService>>;

export interface AnswerDeps extends CallParts, RecordDeps {
  readonly metrics: Metrics;
}

/** The adapter of each method of the service, by its path. */
export function answersOf(
  deps: AnswerDeps,
  handlers: SessionHandlers,
  options: { readonly logCalls: LoggedCalls },
): ReadonlyMap<string, CallHandler> {
  const handlerOf = new Map<string, unknown>(Object.entries(handlers));
  const records = new CallRecords(deps, "call", options.logCalls);
  return new Map(
    SessionService.methods.map((method) => {
      const handler = handlerOf.get(method.localName);
      const adapter = handler === undefined ? undefined : ADAPTERS[method.methodKind];
      const methodRecords = new MethodRecords({ records, metrics: deps.metrics }, method);
      const methodDeps = { ...deps, records: methodRecords };
      const answer =
        adapter?.adapt(methodDeps, method, handler) ?? unimplemented(methodDeps, method);
      return [methodDefinitionOf(method).path, answer];
    }),
  );
}

/** Answers the unary calls of one method. */
function unary(
  deps: MethodDeps,
  method: DescMethod,
  handle: (request: Message, context: CallContext) => Promise<Message>,
): CallHandler {
  const decode = decoderOf(method.input);
  const encode = answerEncoderOf(method.output);

  const onRequest = async (call: OneRequestCall, bytes: Buffer): Promise<void> => {
    try {
      call.startHandling();
    } catch (error) {
      return call.fail(error);
    }
    try {
      const request = decode(bytes);
      call.request = request;
      call.answer(encode(await handle(request, call)));
    } catch (error) {
      call.fail(error);
    } finally {
      call.stopHandling();
    }
  };

  const options = { isStream: false, onRequest };
  return (wire, arrived) => wire.start(new OneRequestCall(deps, { wire, arrived }, options));
}

interface MethodAdapter {
  /** The handler fits the adapter: `SessionHandlers` ties each handler to its method. */
  adapt(deps: MethodDeps, method: DescMethod, handler: unknown): CallHandler;
}

const ADAPTERS: Readonly<Record<DescMethod["methodKind"], MethodAdapter | undefined>> = {
  unary: { adapt: unary },
  server_streaming: { adapt: serverStream },
  bidi_streaming: { adapt: bidiStream },
  client_streaming: undefined, // The contract has no such method.
};

function unimplemented(deps: MethodDeps, method: DescMethod): CallHandler {
  const message = `${method.name} is not implemented in this version`;
  const refusal = new ServiceError("unimplemented", "NOT_IMPLEMENTED", message);
  return (wire, arrived) => wire.start(new UnservedCall(deps, { wire, arrived }, refusal));
}
