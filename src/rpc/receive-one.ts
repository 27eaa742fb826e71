import type { ServerInterceptingCallInterface } from "@grpc/grpc-js";
import { invalidArgument, ServiceError } from "../base/errors.ts";
import { admit, type MethodDeps } from "./admit.ts";
import { type Arrived, OneRequest } from "./incoming/one-request.ts";
import { ServedCall } from "./served-call.ts";

const INCOMPLETE = { field: "", description: "the call ended before a whole request had come" };

/**
 * Starts a call with a single request, and passes its bytes on when the caller is known and the
 * request is complete. The memory of the request is held until `handle` reports that it is done.
 */
export function receiveOne(
  { records, callers, incoming }: Pick<MethodDeps, "records" | "callers" | "incoming">,
  { wire, arrived }: { readonly wire: ServerInterceptingCallInterface; readonly arrived: Arrived },
  handle: (call: ServedCall, request: OneRequest, bytes: Buffer) => Promise<void>,
): void {
  const call = new ServedCall(wire, records);
  const request = new OneRequest(incoming, arrived, call);
  let message: Buffer | undefined;
  const hand = (bytes: Buffer): void => void handle(call, request, bytes);
  wire.start({
    onReceiveMetadata: (metadata) => {
      call.tracedFrom(metadata);
      admit(call, { callers, metadata }, () => {
        if (request.mayStay()) wire.startRead();
      });
    },
    onReceiveMessage: (bytes: Buffer) => {
      if (message !== undefined) {
        const why = "the method takes one request, and a second one came";
        return call.fail(new ServiceError("unimplemented", "NOT_IMPLEMENTED", why));
      }
      message = bytes;
      wire.startRead(); // Needed to learn the end of the requests.
    },
    onReceiveHalfClose: () => {
      if (message !== undefined) return request.unpacked(message, hand);
      // A frame that is shorter than its stated length looks the same from here. So does, for a
      // moment, a caller who left.
      setImmediate(() => call.fail(invalidArgument([INCOMPLETE])));
    },
    onCancel: () => {
      call.wasLeft();
      request.over();
    },
  });
}
