/** Failures of calls: their codes and details, and the reason of a connection that cannot be made. */
import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack, durationMs } from "@bufbuild/protobuf/wkt";
import { status } from "@grpc/grpc-js";
import type { Violation } from "@session-ledger/base/errors";
import {
  BadRequestSchema,
  ErrorInfoSchema,
  RetryInfoSchema,
} from "@session-ledger/proto/google/rpc/error_details_pb";
import { type Status, StatusSchema } from "@session-ledger/proto/google/rpc/status_pb";

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
  /** A name of the service's closed list; undefined when another server answered. */
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

/** The failure of one event of a stream: the status that a call would have failed with. */
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
    return "the error cannot be read";
  }
}

/** The error of grpc-js; its `metadata` holds the details of the status. */
interface GrpcFailure {
  readonly code: number;
  readonly details: string;
  readonly metadata: { get(key: string): readonly (string | Uint8Array)[] };
}

/** For the errors of a grpc-js call. A value without a status is a defect, and unchanged. */
export function failureFrom(cause: unknown): unknown {
  if (!isGrpcFailure(cause)) return cause;
  const [encoded] = cause.metadata.get("grpc-status-details-bin");
  // A printed failure has these details already, and the metadata as bytes would be forty lines more.
  Object.defineProperty(cause, "metadata", { enumerable: false });
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

/**
 *   untrusted    the service's certificate is of no authority that is trusted here
 *   out_of_date  the certificate has expired, or is not valid yet
 *   other_name   the certificate is for another host
 *   asks         the service requires a certificate of the client
 *   refuses      the service does not accept the client's certificate
 *   no_tls       the service answers without TLS
 *   no_grpc      a server answers, but without HTTP/2: another port of the service, for example
 *   nobody       no program listens at the address
 *   closed       the server closed the connection before any HTTP/2, without a reason
 */
export type NoConnection =
  | "untrusted"
  | "out_of_date"
  | "other_name"
  | "asks"
  | "refuses"
  | "no_tls"
  | "no_grpc"
  | "nobody"
  | "closed";

const SAYS: Readonly<Record<NoConnection, string>> = {
  untrusted: "the service's certificate is of no authority that is trusted here",
  out_of_date: "the service's certificate is not valid now",
  other_name: "the service's certificate is for another name",
  asks: "the service asks for a certificate of the client",
  refuses: "the service does not accept the client's certificate",
  no_tls: "the service answers without TLS",
  no_grpc: "the server at this address does not speak gRPC",
  nobody: "no program listens at this address",
  closed:
    "the service closed the connection at once: it may expect TLS, or another certificate of the client",
};

/** Texts of Node 24 (OpenSSL 3) and grpc-js 1.14; test/e2e/runner-doors.test.ts provokes them. */
const SIGNS: readonly (readonly [RegExp, NoConnection])[] = [
  [/unable to (?:verify|get)|self[- ]signed/i, "untrusted"],
  [/certificate (?:has expired|is not yet valid)/i, "out_of_date"],
  [/does not match certificate/i, "other_name"],
  [/alert certificate required/i, "asks"],
  [/alert (?:unknown ca|bad certificate|certificate (?:unknown|expired|revoked))/i, "refuses"],
  [/wrong version number|packet length too long/i, "no_tls"],
  [/Protocol error/, "no_grpc"],
  [/ECONNREFUSED/, "nobody"],
  [/Failed to connect|Connection closed before|socket disconnected before/i, "closed"],
];

const NONE = "No connection established";

/** Undefined: a connection existed, or the failure needs no other words (ETIMEDOUT). */
export function noConnectionOf({ cause }: Error): NoConnection | undefined {
  const isGrpcs = cause instanceof Error && "details" in cause;
  return isGrpcs && typeof cause.details === "string" ? kindOf(cause.details) : undefined;
}

function kindOf(details: string): NoConnection | undefined {
  if (!details.startsWith(NONE)) return undefined;
  return SIGNS.find(([sign]) => sign.test(details))?.[1];
}

/** One line for display; a text about something else is returned unchanged. */
function connectionText(details: string): string {
  // grpc-js reports why no address could be resolved, also when one could be.
  const text = details.replace(/\.?\s*Resolution note:\s*$/, "");
  const kind = kindOf(text);
  if (kind === undefined) return text;
  const original = text
    .slice(NONE.length)
    .replace(/^\. Last error: (?:Error: )?/, "")
    .replace(/\s*\(\d{4}-[^)]*Z\)\s*$/, "")
    .replace(/; if the root CA is installed locally.*$/s, "")
    .replace(/^.*:SSL routines:[^:]*:([^:]*):.*$/s, "$1")
    .trim();
  return `${NONE}: ${SAYS[kind]} (${original})`;
}
