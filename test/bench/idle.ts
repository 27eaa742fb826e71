/**
 * One push after the other on one connection: the latency of a single caller. Compared with the fsync of
 * the same disk, without which no push can be answered, and with the same call without storage.
 */
import { randomUUID } from "node:crypto";
import { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import { RpcClient } from "../support/grpc-client.ts";
import type { Bench, Findings } from "./bench.ts";
import { payloadOf } from "./bodies.ts";
import { type Latency, latencyOf, median, ratioOf, rounded } from "./figures.ts";
import { timeFsyncs } from "./fsync.ts";
import { startLedger, startNoop, type Target } from "./servers.ts";

const CALLS = 2_000;
const CALLS_QUICK = 200;
const WARM_CALLS = 500;
const CALL_LIMIT_MS = 10_000;

interface Round {
  readonly fsync: Latency;
  readonly service: Latency;
  readonly noop: Latency;
}

export async function benchIdle(bench: Bench): Promise<Findings> {
  const ledger = await startLedger(bench);
  const noop = await startNoop(bench);
  const calls = bench.options.calls ?? (bench.options.quick ? CALLS_QUICK : CALLS);
  const sessionId = `bench-${randomUUID()}`;
  for (const target of [ledger, noop]) {
    await pushes(bench, target, { sessionId: `${sessionId}-warm`, calls: WARM_CALLS });
  }
  const rounds: Round[] = [];
  for (let round = 0; round < bench.options.rounds; round += 1) {
    const fsync = await timeFsyncs(bench, { directory: ledger.clusterHome, count: calls });
    const service = await pushes(bench, ledger, { sessionId, calls });
    const without = await pushes(bench, noop, { sessionId, calls });
    const found = {
      fsync: latencyOf(fsync),
      service: latencyOf(service),
      noop: latencyOf(without),
    };
    rounds.push(found);
    bench.progress(
      `round ${round + 1}: push ${found.service.p50Ms} ms, fsync ${found.fsync.p50Ms} ms, no-op ${found.noop.p50Ms} ms`,
    );
  }
  const p50s = (of: keyof Round): readonly number[] => rounds.map((round) => round[of].p50Ms);
  return {
    load: { calls, rounds: bench.options.rounds, inFlight: 1, payloadBytes: 600 },
    stored: await ledger.witness.rowsOf([sessionId]),
    asked: calls * bench.options.rounds,
    p50Ms: {
      service: rounded(median(p50s("service"))),
      fsync: rounded(median(p50s("fsync"))),
      noop: rounded(median(p50s("noop"))),
    },
    ratios: {
      "push / fsync, p50": ratioOf(p50s("service"), p50s("fsync")),
      "push / no-op, p50": ratioOf(p50s("service"), p50s("noop")),
    },
    rounds,
  };
}

/** How long each took. */
async function pushes(
  { signal }: Bench,
  { address }: Target,
  options: { readonly sessionId: string; readonly calls: number },
): Promise<readonly number[]> {
  const client = new RpcClient(address);
  const eventType = "TEXT_MESSAGE_CONTENT";
  const request = { sessionId: options.sessionId, eventType, payload: payloadOf(eventType) };
  const tookMs: number[] = [];
  try {
    for (let call = 0; call < options.calls; call += 1) {
      signal.throwIfAborted();
      const beganMs = performance.now();
      await client.unary(SessionService.method.pushSessionEvent, request, {
        deadlineMs: CALL_LIMIT_MS,
      });
      tookMs.push(performance.now() - beganMs);
    }
    return tookMs;
  } finally {
    client.close();
  }
}
