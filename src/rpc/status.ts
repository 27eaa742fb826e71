import { toBinary } from "@bufbuild/protobuf";
import { Metadata, type StatusObject, type status } from "@grpc/grpc-js";
import { StatusSchema } from "../../gen/google/rpc/status_pb.ts";
import type { ErrorCode, ServiceError } from "../base/errors.ts";
import { googleStatusOf, STATUS_CODES } from "../contract/google-status.ts";

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
