import type { DescMethod, Message } from "@bufbuild/protobuf";
import type { ServerInterceptingCallInterface } from "@grpc/grpc-js";
import type { CallContext } from "../handlers/context.ts";
import type { CallRecords } from "./call-records.ts";
import { decoderOf } from "./decode.ts";
import { sharedEncoderOf } from "./encode.ts";
import type { OpenCalls } from "./open-calls.ts";
import { receiveOne } from "./receive-one.ts";
import { sendAll } from "./send-all.ts";
import { ServedCall } from "./served-call.ts";

export type ServerStreamHandler = (
  request: Message,
  context: CallContext,
) => AsyncIterable<Message>;

/** Answers the calls of one method that has one request and a stream of answers. */
export function serverStream(
  deps: { readonly openCalls: OpenCalls; readonly records: CallRecords },
  method: DescMethod,
  handle: ServerStreamHandler,
): (wire: ServerInterceptingCallInterface) => void {
  const { openCalls, records } = deps;
  const decode = decoderOf(method.input);
  const encode = sharedEncoderOf(method.output);

  const answer = async (call: ServedCall, bytes: Buffer): Promise<void> => {
    try {
      openCalls.enter(call);
    } catch (error) {
      return call.fail(error);
    }
    try {
      const request = call.accept(decode(bytes));
      call.sendHeaders(); // At once: a watcher knows by them that it is attached.
      await sendAll(call, handle(request, call), encode);
      call.succeed();
    } catch (error) {
      call.fail(error);
    } finally {
      openCalls.leave(call);
    }
  };

  return (wire) => {
    const call = new ServedCall(wire, records);
    receiveOne(wire, call, (bytes) => void answer(call, bytes));
  };
}
