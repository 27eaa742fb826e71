/** One session, a thousand watchers: rows a second, against grpc-js that only sends. */
import { randomUUID } from "node:crypto";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { RpcClient } from "../support/grpc-client.ts";
import type { Bench, Findings } from "./bench.ts";
import { payloadOf } from "./bodies.ts";
import { ratioOf, rounded } from "./figures.ts";
import { startLedger, startNoopStreams, type Target, watchersOfOneSession } from "./servers.ts";
import { cpuMsOf } from "./usage.ts";
import { type Delivered, Watchers } from "./watchers.ts";

const WATCHERS = 1_000;
const CONNECTIONS = 10;
const ROWS = 1_000;
const PUSHES_IN_FLIGHT = 64;

export interface FanOutFigures {
  readonly rowsPerSecond: number;
  readonly cpuMicrosPerRow: number;
}

export async function watchFanOut(bench: Bench): Promise<Findings> {
  const watchers = bench.options.quick ? 50 : WATCHERS;
  const rows = bench.options.quick ? 100 : ROWS;
  const ledger = await startLedger(bench, {
    env: watchersOfOneSession(WATCHERS),
  });
  const noop = await startNoopStreams(bench, { watchers, rows });
  const turns: Record<"service" | "noop", FanOutFigures[]> = { service: [], noop: [] };
  for (let round = 0; round <= bench.options.rounds; round += 1) {
    for (const name of round % 2 === 0
      ? (["noop", "service"] as const)
      : (["service", "noop"] as const)) {
      const target = name === "noop" ? noop : ledger;
      const turn = await fanOut(bench, target, { watchers, rows });
      if (round > 0) turns[name].push(turn); // The first warms up.
      bench.progress(`round ${round}, ${name}: ${Math.round(turn.rowsPerSecond)} rows/s`);
    }
  }
  const speeds = (name: "service" | "noop") => turns[name].map((turn) => turn.rowsPerSecond);
  const cpu = (name: "service" | "noop") => turns[name].map((turn) => turn.cpuMicrosPerRow);
  return {
    load: { watchers, rows, connections: CONNECTIONS, payloadBytes: 600 },
    ratios: {
      "service / no-op, rows delivered a second": ratioOf(speeds("service"), speeds("noop")),
      "service / no-op, CPU a row": ratioOf(cpu("service"), cpu("noop")),
    },
    turns,
  };
}

export async function fanOut(
  bench: Bench,
  target: Target,
  { watchers: count, rows }: { readonly watchers: number; readonly rows: number },
): Promise<FanOutFigures> {
  const sessionId = `bench-${randomUUID()}`;
  await using undo = new AsyncDisposableStack();
  const watchers = new Watchers({ ...bench, undo });
  const cpuBeforeMs = await cpuMsOf(target.pid, { children: false });
  await watchers.attach({
    address: target.address,
    sessionIds: Array.from({ length: count }, () => sessionId),
    connections: CONNECTIONS,
    pace: "fast",
    timed: false,
  });
  if (target.witness !== undefined) await pushAll(bench, target, { sessionId, rows });
  const delivered: Delivered = await watchers.complete(rows);
  const cpuMs = (await cpuMsOf(target.pid, { children: false })) - cpuBeforeMs;
  await watchers.close();
  return {
    rowsPerSecond: rounded(delivered.rows / ((delivered.lastMs - delivered.firstMs) / 1_000)),
    cpuMicrosPerRow: rounded((cpuMs * 1_000) / delivered.rows),
  };
}

export async function pushAll(
  { signal }: Bench,
  { address }: Target,
  { sessionId, rows }: { readonly sessionId: string; readonly rows: number },
): Promise<void> {
  const client = new RpcClient(address);
  const eventType = "TEXT_MESSAGE_CONTENT";
  const request = { sessionId, eventType, payload: payloadOf(eventType) };
  let left = rows;
  const push = async (): Promise<void> => {
    while (left > 0) {
      left -= 1;
      signal.throwIfAborted();
      await client.unary(SessionService.method.pushSessionEvent, request, { deadlineMs: 60_000 });
    }
  };
  await Promise.all(Array.from({ length: PUSHES_IN_FLIGHT }, push));
  client.close();
}
