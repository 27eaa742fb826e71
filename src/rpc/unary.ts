import type { DescMethod, Message } from "@bufbuild/protobuf";
import type { ServerInterceptingCallInterface } from "@grpc/grpc-js";
import type { CallContext } from "../contract/context.ts";
import type { ServedCall } from "./call.ts";
import { decoderOf } from "./decode.ts";
import { encoderOf } from "./encode.ts";
import { type MethodDeps, receiveOne } from "./receive.ts";
import type { IncomingCall, OneRequest } from "./requests.ts";

/** Answers the unary calls of one method. */
export function unary(
  deps: MethodDeps,
  method: DescMethod,
  handle: (request: Message, context: CallContext) => Promise<Message>,
): (wire: ServerInterceptingCallInterface, arrived: IncomingCall) => void {
  const { openCalls } = deps;
  const decode = decoderOf(method.input);
  const encode = encoderOf(method.output);

  const answer = async (call: ServedCall, from: OneRequest, bytes: Buffer): Promise<void> => {
    try {
      openCalls.enter();
    } catch (error) {
      return call.fail(error);
    }
    from.acquire({ canEnd: false });
    try {
      const response = await handle(call.accept(decode(bytes)), call);
      const answered = encode(response);
      from.holdAnswer(answered.length);
      call.send(answered, ignoreFlush);
      call.succeed();
    } catch (error) {
      call.fail(error);
    } finally {
      openCalls.leave();
      from.release();
    }
  };

  return (wire, arrived) => receiveOne(deps, { wire, arrived }, answer);
}

function ignoreFlush(): void {}
