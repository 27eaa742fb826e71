import { type ServerInterceptingCallInterface, status } from "@grpc/grpc-js";
import { invalidArgument, ServiceError } from "../base/errors.ts";

/** A status as grpc-js sends it. */
export type OwnStatus = Parameters<ServerInterceptingCallInterface["sendStatus"]>[0];

/**
 * Turns refusals that grpc-js makes itself into errors of ours, so that they are counted, logged
 * and explained like any other error. The texts are grpc-js 1.14's (server-interceptors.js); an
 * unknown text is a defect. test/e2e/rpc-server.test.ts provokes each of them.
 */
export function transportRefusal(own: OwnStatus): ServiceError {
  if (own.code === status.DEADLINE_EXCEEDED) {
    return new ServiceError("deadline_exceeded", "DEADLINE_EXCEEDED", "the deadline has passed");
  }
  if (own.code === status.RESOURCE_EXHAUSTED) {
    // The frame, or its decompressed message, is over grpc.max_receive_message_length.
    return new ServiceError("overloaded", "REQUEST_TOO_LARGE", own.details);
  }
  if (own.code === status.UNIMPLEMENTED) {
    // The grpc-encoding is unknown here.
    return new ServiceError("unimplemented", "NOT_IMPLEMENTED", own.details);
  }
  return own.code === status.INTERNAL ? internalRefusal(own) : unknownRefusal(own);
}

function internalRefusal(own: OwnStatus): ServiceError {
  if (own.details === "Failed to decompress message") {
    return invalidArgument([
      { field: "", description: "the request cannot be decompressed by its grpc-encoding" },
    ]);
  }
  if (own.details.startsWith("Invalid grpc-timeout")) {
    return invalidArgument([
      { field: "", description: "the grpc-timeout header is not a timeout" },
    ]);
  }
  if (own.details === "Internal server error") {
    // A write failed: the connection broke before its close was seen.
    return new ServiceError("cancelled", "CANCELLED", "the connection broke");
  }
  return unknownRefusal(own);
}

function unknownRefusal(own: OwnStatus): ServiceError {
  return ServiceError.from(new Error(`grpc-js answered ${own.code}: ${own.details}`));
}
