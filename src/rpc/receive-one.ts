import type { ServerInterceptingCallInterface } from "@grpc/grpc-js";
import { invalidArgument, ServiceError } from "../base/errors.ts";
import type { ServedCall } from "./served-call.ts";

const INCOMPLETE = { field: "", description: "the call ended before a whole request had come" };

/** Starts a call that has one request, and hands its bytes over when the caller has sent all. */
export function receiveOne(
  wire: ServerInterceptingCallInterface,
  call: ServedCall,
  onRequest: (bytes: Buffer) => void,
): void {
  let request: Buffer | undefined;
  wire.start({
    onReceiveMetadata: () => wire.startRead(),
    onReceiveMessage: (bytes: Buffer) => {
      if (request !== undefined) {
        const message = "the method takes one request, and a second one came";
        return call.fail(new ServiceError("unimplemented", "NOT_IMPLEMENTED", message));
      }
      request = bytes;
      wire.startRead(); // For the end of the requests.
    },
    onReceiveHalfClose: () => {
      if (request !== undefined) return onRequest(request);
      // A frame that is shorter than its length says looks the same from here; and so does, for a
      // moment, a caller who left.
      setImmediate(() => call.fail(invalidArgument([INCOMPLETE])));
    },
    onCancel: () => call.wasLeft(),
  });
}
