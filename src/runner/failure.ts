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

/** A call that did not return OK, with what its status carried. */
export class RpcFailure extends Error {
  override readonly name = "RpcFailure";
  readonly code: RpcCode;
  /** Why, for programs: a name of the service's closed list; undefined when it was not the service that answered. */
  readonly reason: string | undefined;
  readonly violations: readonly Violation[];
  /** Set when the service says that the same call can succeed later. */
  readonly retryAfterMs: number | undefined;

  constructor(code: RpcCode, message: string, { cause, ...details }: Details & ErrorOptions = {}) {
    super(message, { cause });
    this.code = code;
    this.reason = details.reason;
    this.violations = details.violations ?? [];
    this.retryAfterMs = details.retryAfterMs;
  }

  /** The call did nothing that a repetition could double: the service said so with a RetryInfo. */
  get wasRefusedForNow(): boolean {
    return this.code === "RESOURCE_EXHAUSTED" && this.retryAfterMs !== undefined;
  }

  /** Nobody answered, or not in time. Whether the call had an effect is unknown. */
  get wasLost(): boolean {
    return this.code === "UNAVAILABLE" || this.code === "DEADLINE_EXCEEDED";
  }

  /** The same call can succeed later. */
  get mayPass(): boolean {
    return this.wasLost || this.wasRefusedForNow;
  }
}

/** What a frame of a stream says of one event: the status that a call would have failed with. */
export function failureOfStatus(refused: Status | undefined): RpcFailure {
  const code = codeName(refused?.code ?? status.UNKNOWN);
  const details = refused === undefined ? {} : detailsOf(refused);
  return new RpcFailure(code, refused?.message || code, details);
}

/** Of anything thrown; what is no failure of a call is a defect, and INTERNAL. */
export function asRpcFailure(cause: unknown): RpcFailure {
  if (cause instanceof RpcFailure) return cause;
  return new RpcFailure("INTERNAL", textOf(cause), { cause });
}

/** What a caller's own code throws may be anything, also what cannot be looked at without throwing. */
export function textOf(error: unknown): string {
  try {
    return String(error instanceof Error ? error.message : error);
  } catch {
    return "it cannot be read";
  }
}

/** What grpc-js reports; its `metadata` holds the details of the status. */
interface GrpcFailure {
  readonly code: number;
  readonly details: string;
  readonly metadata: { get(key: string): readonly (string | Uint8Array)[] };
}

/** Anything that a call of grpc-js can fail with. What is no status at all is a defect and comes back as it is. */
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
    return {}; // Of a proxy or another server; the code alone still says what happened.
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
