import type { DescMethod } from "@bufbuild/protobuf";
import type { ServerInterceptingCallInterface } from "@grpc/grpc-js";
import { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import type { Clock } from "../base/clock.ts";
import { ServiceError } from "../base/errors.ts";
import type { Handlers } from "../handlers/context.ts";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";
import { bidiStream } from "./bidi-stream.ts";
import { CallRecords, type LoggedCalls } from "./call-records.ts";
import { methodDefinitionOf } from "./definition.ts";
import type { OpenCalls } from "./open-calls.ts";
import { ServedCall } from "./served-call.ts";
import { serverStream } from "./server-stream.ts";
import { unary } from "./unary.ts";

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
  const handlerOf = new Map<string, unknown>(Object.entries(handlers));
  return new Map(
    SessionService.methods.map((method) => {
      const isUnary = method.methodKind === "unary";
      const okLevel = isUnary && options.logCalls === "failures" ? "debug" : "info";
      const records = new CallRecords(deps, { method: method.name, okLevel });
      const handler = handlerOf.get(method.localName);
      const adapter = handler === undefined ? undefined : ADAPTERS[method.methodKind];
      const answer =
        adapter?.adapt({ openCalls: deps.openCalls, records }, method, handler) ??
        unimplemented(records, method);
      return [methodDefinitionOf(method).path, answer];
    }),
  );
}

interface Adapter {
  /** The handler is one of the adapter's kind: `SessionHandlers` ties each to its method. */
  adapt(
    deps: { readonly openCalls: OpenCalls; readonly records: CallRecords },
    method: DescMethod,
    handler: unknown,
  ): Answer;
}

const ADAPTERS: Readonly<Record<DescMethod["methodKind"], Adapter | undefined>> = {
  unary: { adapt: unary },
  server_streaming: { adapt: serverStream },
  bidi_streaming: { adapt: bidiStream },
  client_streaming: undefined, // The contract has none.
};

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
