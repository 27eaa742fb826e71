/**
 * The ceiling for benchmarks of pushes: the same gRPC server and adapters as the service, over a handler
 * that stores nothing and answers with the fields of a stored row.
 *
 *   node test/support/noop-server.ts 127.0.0.1:0      prints {"address":"127.0.0.1:40123"}
 */
import type {
  PushSessionEventRequest,
  SessionEvent,
} from "@session-ledger/proto/ambient/v1/events_pb";
import { WatchState } from "@session-ledger/proto/ambient/v1/common_pb";
import { systemClock } from "@session-ledger/base/clock";
import { createLog } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import { GrpcServer } from "../../src/rpc/server.ts";
import { ANYBODY } from "./callers.ts";

const [, , address = "127.0.0.1:0"] = process.argv;

let seq = 0n;

function answerTo(request: PushSessionEventRequest): SessionEvent {
  seq += 1n;
  const nowMicros = systemClock.nowMicros();
  return {
    $typeName: "ambient.v1.SessionEvent",
    id: "01900000-0000-7000-8000-000000000000",
    sessionId: request.sessionId,
    seq,
    eventType: request.eventType,
    payload: request.payload,
    createdAt: {
      $typeName: "google.protobuf.Timestamp",
      seconds: nowMicros / 1_000_000n,
      nanos: Number(nowMicros % 1_000_000n) * 1_000,
    },
    eventCount: request.eventCount === 0 ? 1 : request.eventCount,
    nonconformant: false,
    deduplicated: false,
    runId: "",
    watchState: WatchState.UNSPECIFIED,
  };
}

const server = new GrpcServer(
  {
    log: createLog({ level: "info", pretty: false, to: "stderr" }),
    metrics: createMetrics(),
    clock: systemClock,
    handlers: { pushSessionEvent: async (request) => answerTo(request) },
    authenticator: ANYBODY,
  },
  { address, reflection: false, logCalls: "failures", stopLimitMs: 1_000 },
);

await server.start();
process.stdout.write(`${JSON.stringify({ address: server.address })}\n`);
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => void server.stop());
}
