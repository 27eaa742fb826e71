/**
 * Callers that make the service hold memory or a place, one way after the other, each beside a
 * well-behaved runner: resident memory before, at the peak and after they have left, the latency of the
 * runner's pushes, and whether another caller still gets the same call.
 *
 * With `--old DIR` the checkout in DIR is measured in place of this one.
 */
import { setInterval } from "node:timers";
import { setTimeout as delay } from "node:timers/promises";
import { RpcClient } from "../support/grpc-client.ts";
import {
  anotherGets,
  Holding,
  type HoldingOrder,
  prepare,
  type Way,
  WAY_NAMES,
  WAYS,
  WellBehavedRunner,
} from "../support/holding.ts";
import type { Bench, Findings } from "./bench.ts";
import { latencyOf, rounded } from "./figures.ts";
import { type Ledger, type Replica, pollOnly, startLedger, startReplica } from "./servers.ts";
import { memoryOf } from "./usage.ts";

const TOKENS = {
  hostile: "hostile-0123456789abcdef",
  runner: "runner-0123456789abcdef",
  another: "another-0123456789abcdef",
} as const;
const ENV = {
  AUTH_TOKENS: JSON.stringify({
    tokens: Object.entries(TOKENS).map(([id, token]) => ({ id, token, roles: ["admin"] })),
  }),
} as const;

/** A transcript of 40 MB; and more in each other session than a watch or a stream takes unread. */
const PREPARED = { largeRows: 40, spreadRows: 3 };
const PREPARED_QUICK = { largeRows: 4, spreadRows: 1 };
/** The largest request by default. */
const BODY_BYTES = 4_194_303;
const HOLD_SECONDS = 10;
const OPEN_LIMIT_MS = 60_000;
const WARM_MS = 2_000;
const QUICK_MS = 300;
const ALONE_MS = 5_000;
const AFTER_MS = 10_000;
const SAMPLE_MS = 50;

export async function benchHostile(bench: Bench): Promise<Findings> {
  const { quick, parts, old } = bench.options;
  const ledger = await startLedger(bench, { env: { ...ENV, ...pollOnly(old) }, checkout: old });
  const client = new RpcClient(ledger.address);
  const prepared = quick ? PREPARED_QUICK : PREPARED;
  await prepare(client, TOKENS.runner, prepared);
  client.close();
  const ways = WAY_NAMES.filter((_, at) => parts === undefined || parts.includes(String(at + 1)));
  const findings: Record<string, Findings> = {};
  for (const way of ways) {
    findings[way] = await measure(bench, ledger, way);
    bench.progress(`${way}: ${JSON.stringify(findings[way])}`);
  }
  return { prepared, ways: findings };
}

/** On a freshly started service, so that no way pays for the one before it. */
async function measure(bench: Bench, ledger: Ledger, way: Way): Promise<Findings> {
  const { quick, seconds = quick ? 1 : HOLD_SECONDS, old } = bench.options;
  const service = await startReplica(bench, ledger, { ...ENV, ...pollOnly(old) }, old);
  const calls = quick ? Math.ceil(WAYS[way] / 20) : WAYS[way];
  const addresses = { grpcAddress: service.address, httpAddress: service.httpAddress };
  const order = { ...addresses, token: TOKENS.hostile, way, calls };
  const limits = { bodyBytes: BODY_BYTES, openLimitMs: OPEN_LIMIT_MS };
  try {
    return await underHolding(bench, service, { ...order, ...limits }, seconds * 1_000);
  } finally {
    await service.stop();
  }
}

async function underHolding(
  bench: Bench,
  service: Replica,
  order: HoldingOrder,
  holdMs: number,
): Promise<Findings> {
  const client = new RpcClient(service.address);
  const runner = new WellBehavedRunner(client, TOKENS.runner);
  await runner.pushFor(bench.options.quick ? QUICK_MS : WARM_MS);
  runner.latenciesMs.length = 0;
  await runner.pushFor(bench.options.quick ? QUICK_MS : ALONE_MS);
  const alone = latencyOf(runner.latenciesMs.splice(0));
  const before = await memoryOf(service.pid);
  let peakMiB = before.residentMiB;
  const sample = async (): Promise<void> => {
    const { residentMiB } = await memoryOf(service.pid);
    peakMiB = Math.max(peakMiB, residentMiB);
  };
  const sampling = setInterval(() => void sample().catch(() => undefined), SAMPLE_MS);
  let isHolding = true;
  const pushing = runner.pushWhile(() => isHolding && !bench.signal.aborted);
  try {
    await using holding = new Holding(order);
    await holding.held;
    await delay(holdMs, undefined, { signal: bench.signal });
    const another = await anotherGets(order.way, { ...order, token: TOKENS.another });
    const held = await memoryOf(service.pid);
    isHolding = false;
    await pushing;
    const beside = latencyOf(runner.latenciesMs.splice(0));
    const { ends, sentBytes, connections } = await holding.leave();
    clearInterval(sampling);
    await runner.pushFor(bench.options.quick ? QUICK_MS : AFTER_MS);
    const after = await memoryOf(service.pid);
    const residentMiB = {
      before: rounded(before.residentMiB),
      peak: rounded(peakMiB),
      held: rounded(held.residentMiB),
      after: rounded(after.residentMiB),
    };
    const hostile = {
      calls: order.calls,
      connections,
      ends,
      sentMiB: rounded(sentBytes / 1_048_576),
    };
    const { failures } = runner;
    return {
      residentMiB,
      push: { alone, beside, refused: failures.length, refusals: failures.slice(0, 3) },
      another,
      hostile,
    };
  } finally {
    isHolding = false;
    await pushing;
    clearInterval(sampling);
    client.close();
  }
}
