import { status } from "@grpc/grpc-js";
import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack, durationMs } from "@bufbuild/protobuf/wkt";
import type { Violation } from "../base/errors.ts";
import { connectionText } from "./no-connection.ts";
import {
  BadRequestSchema,
  ErrorInfoSchema,
  RetryInfoSchema,
} from "../../gen/google/rpc/error_details_pb.ts";
import { type Status, StatusSchema } from "../../gen/google/rpc/status_pb.ts";

export type RpcCode = keyof typeof status;

interface Details {
  readonly reason?: string | undefined;
  readonly violations?: readonly Violation[] | undefined;
  readonly retryAfterMs?: number | undefined;
}

/** A call that did not return OK, with the details of its status. */
export class RpcFailure extends Error {
  override readonly name = "RpcFailure";
  readonly code: RpcCode;
  /**
   * The reason, for programs: a name of the service's closed list; undefined when another server
   * answered.
   */
  readonly reason: string | undefined;
  readonly violations: readonly Violation[];
  /** Set when the service states that the same call can succeed later. */
  readonly retryAfterMs: number | undefined;

  constructor(code: RpcCode, message: string, { cause, ...details }: Details & ErrorOptions = {}) {
    super(message, { cause });
    this.code = code;
    this.reason = details.reason;
    this.violations = details.violations ?? [];
    this.retryAfterMs = details.retryAfterMs;
  }

  /** True when the service stated with a RetryInfo that the call had no effect. */
  get wasRefusedForNow(): boolean {
    return this.code === "RESOURCE_EXHAUSTED" && this.retryAfterMs !== undefined;
  }

  /** The service did not answer, or not in time. The effect of the call is unknown. */
  get wasLost(): boolean {
    return this.code === "UNAVAILABLE" || this.code === "DEADLINE_EXCEEDED";
  }

  /** The same call can succeed later. */
  get mayPass(): boolean {
    return this.wasLost || this.wasRefusedForNow;
  }
}

/**
 * The failure of one event in a frame of a stream: the status that a call would have failed with.
 */
export function failureOfStatus(refused: Status | undefined): RpcFailure {
  const code = codeName(refused?.code ?? status.UNKNOWN);
  const details = refused === undefined ? {} : detailsOf(refused);
  return new RpcFailure(code, refused?.message || code, details);
}

/** For any thrown value; a value that is not a failure of a call is a defect, and INTERNAL. */
export function asRpcFailure(cause: unknown): RpcFailure {
  if (cause instanceof RpcFailure) return cause;
  return new RpcFailure("INTERNAL", textOf(cause), { cause });
}

/** A caller's own code may throw any value, even one that throws when it is read. */
export function textOf(error: unknown): string {
  try {
    return String(error instanceof Error ? error.message : error);
  } catch {
    return "it cannot be read";
  }
}

/** The error of grpc-js; its `metadata` holds the details of the status. */
interface GrpcFailure {
  readonly code: number;
  readonly details: string;
  readonly metadata: { get(key: string): readonly (string | Uint8Array)[] };
}

/**
 * Converts the errors of a grpc-js call. A value without a status is a defect and is returned
 * unchanged.
 */
export function failureFrom(cause: unknown): unknown {
  if (!isGrpcFailure(cause)) return cause;
  const [encoded] = cause.metadata.get("grpc-status-details-bin");
  const code = codeName(cause.code);
  return new RpcFailure(code, connectionText(cause.details) || code, {
    ...decodeDetails(encoded),
    cause,
  });
}

function isGrpcFailure(cause: unknown): cause is GrpcFailure {
  return (
    cause instanceof Error &&
    "code" in cause &&
    typeof cause.code === "number" &&
    "details" in cause &&
    typeof cause.details === "string" &&
    "metadata" in cause
  );
}

function codeName(code: number): RpcCode {
  const name: unknown = status[code];
  return isRpcCode(name) ? name : "UNKNOWN";
}

function isRpcCode(name: unknown): name is RpcCode {
  return typeof name === "string" && Object.hasOwn(status, name);
}

function decodeDetails(encoded: string | Uint8Array | undefined): Details {
  if (!(encoded instanceof Uint8Array)) return {};
  try {
    return detailsOf(fromBinary(StatusSchema, encoded));
  } catch {
    return {}; // The status is from a proxy or another server; its code is still valid.
  }
}

function detailsOf({ details }: Status): Details {
  const [info] = details.flatMap((any) => anyUnpack(any, ErrorInfoSchema) ?? []);
  const [request] = details.flatMap((any) => anyUnpack(any, BadRequestSchema) ?? []);
  const [delay] = details.flatMap((any) => anyUnpack(any, RetryInfoSchema)?.retryDelay ?? []);
  return {
    reason: info?.reason,
    violations: request?.fieldViolations.map(({ field, description }) => ({ field, description })),
    retryAfterMs: delay && durationMs(delay),
  };
}
