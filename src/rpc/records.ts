import type { DescMethod } from "@bufbuild/protobuf";
import { type Metadata, status } from "@grpc/grpc-js";
import type { Clock } from "@session-ledger/base/clock";
import type { ServiceError } from "@session-ledger/base/errors";
import type { CallRecords } from "../observability/call-records.ts";
import type { CallMetrics, Metrics } from "../observability/metrics.ts";
import type { Attributes, Span, Tracer } from "../observability/trace.ts";
import { GRPC_STATUS } from "./status.ts";

export interface RpcEnd {
  readonly startedMs: number;
  readonly request: unknown;
  /** Undefined means OK. */
  readonly error: ServiceError | undefined;
  /** The counts that a stream reports. */
  readonly counts?: Readonly<Record<string, number>> | undefined;
  readonly span?: Span | undefined;
}

export class MethodRecords {
  readonly #records: CallRecords;
  readonly clock: Clock;
  /** Undefined where no trace is recorded. */
  readonly tracer: Tracer | undefined;
  readonly #metrics: CallMetrics;
  readonly #method: string;
  readonly #isStream: boolean;
  readonly #spanName: string;
  readonly #spanAttributes: Attributes;

  constructor(
    { records, metrics }: { readonly records: CallRecords; readonly metrics: Metrics },
    { name, parent, methodKind }: DescMethod,
  ) {
    this.#records = records;
    this.clock = records.clock;
    this.tracer = records.tracer;
    this.#metrics = metrics.callsOf(name);
    this.#method = name;
    this.#isStream = methodKind !== "unary";
    this.#spanName = `${parent.typeName}/${name}`;
    this.#spanAttributes = {
      "rpc.system": "grpc",
      "rpc.service": parent.typeName,
      "rpc.method": name,
    };
  }

  span(tracer: Tracer, metadata: Metadata): Span | undefined {
    const given = metadata.get("traceparent");
    const traceparent = given.length === 1 ? String(given[0]) : undefined;
    return tracer.span(this.#spanName, traceparent, this.#spanAttributes);
  }

  recordEnd({ startedMs, request, error, counts, span }: RpcEnd): void {
    if (error === undefined && span === undefined && !this.#isStream && this.#records.isQuiet) {
      return this.#metrics.recordEnd("OK", this.clock.monotonicMs() - startedMs);
    }
    const code = error === undefined ? "OK" : status[GRPC_STATUS[error.code]];
    const durationMs = this.#records.recordEnd({
      startedMs,
      where: this.#method,
      isStream: this.#isStream,
      error,
      span,
      failure: code,
      sessionId: () => sessionIdOf(request),
      fields: () => ({ method: this.#method, code, ...counts }),
      attributes: () => ({
        "rpc.grpc.status_code": error === undefined ? status.OK : GRPC_STATUS[error.code],
        ...attributesOf(counts),
      }),
    });
    this.#metrics.recordEnd(code, durationMs);
  }

  failedAfterEnd(error: ServiceError): void {
    this.#records.failedAfterEnd(this.#method, error);
  }
}

function attributesOf(counts: RpcEnd["counts"] = {}): Attributes {
  const named = Object.entries(counts).map(([name, count]) => [`session_ledger.${name}`, count]);
  return Object.fromEntries(named);
}

function sessionIdOf(request: unknown): string | undefined {
  if (typeof request !== "object" || request === null) return undefined;
  const named = "sessionId" in request ? request.sessionId : "id" in request && request.id;
  return typeof named === "string" && named !== "" ? named : undefined;
}
