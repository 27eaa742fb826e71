import type { DescMethod, Message } from "@bufbuild/protobuf";
import type { ServerInterceptingCallInterface } from "@grpc/grpc-js";
import type { CallContext } from "../contract/context.ts";
import { answerEncoderOf, decoderOf } from "./codec.ts";
import { type IncomingCall, type MethodDeps, OneRequestCall } from "./serve.ts";

export function unary(
  deps: MethodDeps,
  method: DescMethod,
  handle: (request: Message, context: CallContext) => Promise<Message>,
): (wire: ServerInterceptingCallInterface, arrived: IncomingCall) => void {
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
