import type { DescMethod, Message } from "@bufbuild/protobuf";
import type { ServerInterceptingCallInterface } from "@grpc/grpc-js";
import type { CallContext } from "../contract/context.ts";
import { decoderOf } from "./decode.ts";
import { answerEncoderOf } from "./encode.ts";
import { type IncomingCall, type MethodDeps, OneRequestCall } from "./serve.ts";

/** Answers the unary calls of one method. */
export function unary(
  deps: MethodDeps,
  method: DescMethod,
  handle: (request: Message, context: CallContext) => Promise<Message>,
): (wire: ServerInterceptingCallInterface, arrived: IncomingCall) => void {
  const decode = decoderOf(method.input);
  const encode = answerEncoderOf(method.output);

  const answer = async (call: OneRequestCall, bytes: Buffer): Promise<void> => {
    try {
      call.startHandling();
    } catch (error) {
      return call.fail(error);
    }
    try {
      call.answer(encode(await handle(call.accept(decode(bytes)), call)));
    } catch (error) {
      call.fail(error);
    } finally {
      call.stopHandling();
    }
  };

  return (wire, arrived) => {
    const call = new OneRequestCall(deps, { wire, arrived }, { isStream: false });
    call.receive((bytes) => void answer(call, bytes));
  };
}
