import type { DescMethod, Message } from "@bufbuild/protobuf";
import type { ServerInterceptingCallInterface } from "@grpc/grpc-js";
import type { CallContext } from "../contract/context.ts";
import type { MethodDeps } from "./admit.ts";
import { decoderOf } from "./decode.ts";
import { sharedEncoderOf } from "./encode.ts";
import type { Arrived, OneRequest } from "./incoming/one-request.ts";
import { receiveOne } from "./receive-one.ts";
import { Room, sendAll } from "./send-all.ts";
import type { ServedCall } from "./served-call.ts";

export type ServerStreamHandler = (
  request: Message,
  context: CallContext,
) => AsyncIterable<Message>;

/** Answers the calls of one method that has one request and a stream of answers. */
export function serverStream(
  deps: MethodDeps,
  method: DescMethod,
  handle: ServerStreamHandler,
): (wire: ServerInterceptingCallInterface, arrived: Arrived) => void {
  const { openCalls } = deps;
  const decode = decoderOf(method.input);
  const encode = sharedEncoderOf(method.output);

  const answer = async (call: ServedCall, from: OneRequest, bytes: Buffer): Promise<void> => {
    const room = new Room(call);
    try {
      openCalls.enter(room);
    } catch (error) {
      return call.fail(error);
    }
    from.handed({ canEnd: true });
    try {
      const request = call.accept(decode(bytes));
      call.sendHeaders(); // Sent at once: the headers tell a watcher that it is attached.
      await sendAll(call, handle(request, call), { encode, room });
      call.succeed();
    } catch (error) {
      call.fail(error);
    } finally {
      openCalls.leave(room);
      from.handled();
    }
  };

  return (wire, arrived) => receiveOne(deps, { wire, arrived }, answer);
}
