/** Errors as the status of a call, and refusals of grpc-js as errors. */
import { toBinary } from "@bufbuild/protobuf";
import {
  Metadata,
  type ServerInterceptingCallInterface,
  type StatusObject,
  status,
} from "@grpc/grpc-js";
import { StatusSchema } from "@session-ledger/proto/google/rpc/status_pb";
import { type ErrorCode, invalidArgument, ServiceError } from "@session-ledger/base/errors";
import { googleStatusOf, STATUS_CODES } from "../contract/google-status.ts";

/** A status as grpc-js sends it. */
export type OwnStatus = Parameters<ServerInterceptingCallInterface["sendStatus"]>[0];

export const OK: OwnStatus = { code: status.OK, details: "OK" };

const STATUS_DETAILS_HEADER = "grpc-status-details-bin";

/** google.rpc.Code and grpc-js's status are one list of numbers. */
export const GRPC_STATUS: Readonly<Record<ErrorCode, status>> = STATUS_CODES;

/** An error as the end of a call: its status, and google.rpc details in the trailers. */
export function statusOf(error: ServiceError): StatusObject {
  const answer = googleStatusOf(error);
  const metadata = new Metadata();
  metadata.set(STATUS_DETAILS_HEADER, Buffer.from(toBinary(StatusSchema, answer)));
  return { code: answer.code, details: answer.message, metadata };
}

/**
 * Turns refusals of grpc-js into errors of ours, to count and log them. The texts are those of
 * grpc-js 1.14 (server-interceptors.js; test/e2e/rpc-server.test.ts); another one is a defect.
 */
export function transportRefusal({ code, details }: OwnStatus): ServiceError {
  if (code === status.DEADLINE_EXCEEDED) {
    return new ServiceError("deadline_exceeded", "DEADLINE_EXCEEDED", "the deadline has passed");
  }
  if (code === status.RESOURCE_EXHAUSTED) {
    // The frame, or its decompressed message, is over grpc.max_receive_message_length.
    return new ServiceError("overloaded", "REQUEST_TOO_LARGE", details);
  }
  if (code === status.UNIMPLEMENTED) {
    // The grpc-encoding is unknown here.
    return new ServiceError("unimplemented", "NOT_IMPLEMENTED", details);
  }
  if (code === status.INTERNAL) {
    if (details === "Failed to decompress message") return notDecompressed();
    if (details.startsWith("Invalid grpc-timeout")) {
      const description = "the grpc-timeout header is not a timeout";
      return invalidArgument([{ field: "", description }]);
    }
    if (details === "Internal server error") {
      // A write failed: the connection broke before its close was seen.
      return new ServiceError("cancelled", "CANCELLED", "the connection broke");
    }
  }
  return ServiceError.from(new Error(`grpc-js answered ${code}: ${details}`));
}

export function notDecompressed(): ServiceError {
  const description = "the request cannot be decompressed by its grpc-encoding";
  return invalidArgument([{ field: "", description }]);
}
