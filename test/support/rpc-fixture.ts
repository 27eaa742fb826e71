import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics, type Metrics } from "../../src/observability/metrics.ts";
import { systemClock } from "@session-ledger/base/clock";
import type { PushSessionEventsRequest } from "@session-ledger/proto/ambient/v1/event_stream_pb";
import type { BidiReceiver } from "../../src/contract/context.ts";
import type { SessionHandlers } from "../../src/rpc/answers.ts";
import { GrpcServer, type RpcServerDeps, type RpcServerOptions } from "../../src/rpc/server.ts";
import { ANYBODY } from "./callers.ts";
import { RpcClient } from "./grpc-client.ts";

export interface LogRecord {
  readonly level: string;
  readonly msg: string;
  readonly [field: string]: unknown;
}

/** A log, and its records. */
export function logRecords() {
  const records: LogRecord[] = [];
  let onRecord = Promise.withResolvers<void>();
  const log = createLogTo({
    write: (line) => {
      records.push(JSON.parse(line));
      onRecord.resolve();
      onRecord = Promise.withResolvers();
    },
  });
  const recorded = async (msg: string): Promise<LogRecord> => {
    for (;;) {
      const found = records.find((record) => record.msg === msg);
      if (found !== undefined) return found;
      await onRecord.promise;
    }
  };
  return { log, records, recorded };
}

/** A gRPC server over the given handlers on a free loopback port, and a client of it. */
export interface RpcFixture extends AsyncDisposable {
  readonly server: GrpcServer;
  readonly client: RpcClient;
  readonly metrics: Metrics;
  readonly records: readonly LogRecord[];
  /** The first record with that message, as soon as it exists. */
  recorded(msg: string): Promise<LogRecord>;
}

/** A handler of a bidirectional stream that does nothing by default. */
export function conversation(
  parts: Partial<BidiReceiver<PushSessionEventsRequest>>,
): BidiReceiver<PushSessionEventsRequest> {
  return {
    onMessage: () => true,
    onDecodeError: () => undefined,
    onHalfClose: () => undefined,
    onDrain: () => undefined,
    onClose: () => undefined,
    record: { sessionId: "s1", counts: { events: 7 } },
    ...parts,
  };
}

export async function startRpc(
  handlers: SessionHandlers,
  options: Partial<RpcServerOptions> = {},
  parts: Partial<RpcServerDeps> = {},
): Promise<RpcFixture> {
  const { log, ...logged } = logRecords();
  const metrics = createMetrics();
  const server = new GrpcServer(
    { log, metrics, clock: systemClock, handlers, authenticator: ANYBODY, ...parts },
    { address: "127.0.0.1:0", reflection: true, logCalls: "all", stopLimitMs: 5_000, ...options },
  );
  await server.start();
  const client = new RpcClient(server.address);
  return {
    server,
    client,
    metrics,
    ...logged,
    [Symbol.asyncDispose]: async () => {
      client.close();
      await server.stop();
    },
  };
}
