import type { DescMethod } from "@bufbuild/protobuf";
import type { ServerInterceptingCallInterface } from "@grpc/grpc-js";
import { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import type { Clock } from "../base/clock.ts";
import { ServiceError } from "../base/errors.ts";
import type { Handlers } from "../handlers/context.ts";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";
import { type BidiStreamHandler, bidiStream } from "./bidi-stream.ts";
import { CallRecords, type LoggedCalls } from "./call-records.ts";
import { methodDefinitionOf } from "./definition.ts";
import type { OpenCalls } from "./open-calls.ts";
import { ServedCall } from "./served-call.ts";
import { type ServerStreamHandler, serverStream } from "./server-stream.ts";
import { type UnaryHandler, unary } from "./unary.ts";

/** Takes a call over from grpc-js, from its first byte to its status. */
type Answer = (wire: ServerInterceptingCallInterface) => void;

/** A method without a handler answers UNIMPLEMENTED. */
export type SessionHandlers = Partial<Handlers<typeof SessionService>>;

export interface AnswerDeps {
  readonly log: Log;
  readonly metrics: Metrics;
  readonly clock: Clock;
  readonly openCalls: OpenCalls;
}

/** How each method of the service is answered, by its path. */
export function answersOf(
  deps: AnswerDeps,
  handlers: SessionHandlers,
  options: { readonly logCalls: LoggedCalls },
): ReadonlyMap<string, Answer> {
  return new Map(
    SessionService.methods.map((method) => {
      const isUnary = method.methodKind === "unary";
      const okLevel = isUnary && options.logCalls === "failures" ? "debug" : "info";
      const records = new CallRecords(deps, { method: method.name, okLevel });
      const handler: unknown = handlers[method.localName as keyof SessionHandlers];
      const answer = answerOf({ openCalls: deps.openCalls, records }, method, handler);
      return [methodDefinitionOf(method).path, answer];
    }),
  );
}

/** `Handlers` ties each handler to its method's messages and kind; here, over all methods, that is lost. */
function answerOf(
  deps: { readonly openCalls: OpenCalls; readonly records: CallRecords },
  method: DescMethod,
  handler: unknown,
): Answer {
  if (handler === undefined) return unimplemented(deps.records, method);
  switch (method.methodKind) {
    case "unary":
      return unary(deps, method, handler as UnaryHandler);
    case "server_streaming":
      return serverStream(deps, method, handler as ServerStreamHandler);
    case "bidi_streaming":
      return bidiStream(deps, method, handler as BidiStreamHandler);
    case "client_streaming":
      throw new Error(`${method.toString()}: there is no adapter for this kind of method`);
  }
}

function unimplemented(records: CallRecords, method: DescMethod): Answer {
  return (wire) => {
    const call = new ServedCall(wire, records);
    const message = `${method.name} is not implemented in this version`;
    wire.start({
      onReceiveMetadata: () => {
        call.fail(new ServiceError("unimplemented", "NOT_IMPLEMENTED", message));
      },
      onReceiveMessage: () => undefined,
      onReceiveHalfClose: () => undefined,
      onCancel: () => call.wasLeft(),
    });
  };
}
