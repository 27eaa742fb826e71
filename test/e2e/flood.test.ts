/**
 * A flood of pushes of the largest size beside an honest runner: memory stays within the limits, the flooding caller
 * is refused with a delay, the runner's latency stays low, and no acknowledged row is missing.
 *
 *   FLOOD_SECONDS=60 FLOOD_CONNECTIONS=200 npx vitest run … test/e2e/flood.test.ts
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { ledger } from "@session-ledger/runner/internal/client";
import { memoryOf } from "../bench/usage.ts";
import { type FloodOrder, type FloodReport, floodReportSchema } from "../support/flood.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { useService } from "../support/use-service.ts";
import { WellBehavedRunner } from "../support/holding.ts";

const WORKER = fileURLToPath(new URL("../support/flood-worker.ts", import.meta.url));
/** Asked for by hand, on a machine that does nothing else: then the runner's times count too. */
const IS_MEASURED = process.env["FLOOD_SECONDS"] !== undefined;
const SECONDS = Number(process.env["FLOOD_SECONDS"] ?? "5");
const CONNECTIONS = Number(process.env["FLOOD_CONNECTIONS"] ?? "200");
const MIB = 1_048_576;
/** What requests may hold, and what waits for a commit. */
const RECEIVED_MIB = 64;
const QUEUED_MIB = 32;
/**
 * Above what the process has before: the two limits, each held twice for a moment (a frame and what was
 * decoded of it, a row and what is sent of it), and as much again that the collector has not come to.
 */
const GROWTH_MIB_MAX = 2 * 2 * (RECEIVED_MIB + QUEUED_MIB);
const PUSH_P99_MS_MAX = 200;

const TOKENS = {
  flooder: "flooder-0123456789abcdef",
  runner: "runner-0123456789abcdef",
} as const;

const { service } = useService({
  env: {
    AUTH_TOKENS: JSON.stringify({
      tokens: Object.entries(TOKENS).map(([id, token]) => ({ id, token, roles: ["admin"] })),
    }),
    RECEIVED_BYTES_MAX: String(RECEIVED_MIB * MIB),
    QUEUE_BYTES_MAX: String(QUEUED_MIB * MIB),
    PRINCIPAL_BYTES_PER_SECOND: String(8 * MIB),
  },
});

test(`the service survives ${CONNECTIONS} connections that flood it for ${SECONDS} s`, async () => {
  const client = new RpcClient(service.grpcAddress);
  const runner = new WellBehavedRunner(client, TOKENS.runner);
  await runner.pushFor(500); // Warm, so that what grows is the flood.
  const before = await memoryOf(service.pid);
  runner.latenciesMs.length = 0;

  const sessionIds = Array.from({ length: 10 }, (_, index) => `flood-${index}`);
  const flood = startFlood({
    address: service.grpcAddress,
    token: TOKENS.flooder,
    connections: CONNECTIONS,
    callsAConnection: 2,
    payloadBytes: 4_170_000,
    sessionIds,
    seconds: SECONDS,
  });
  await runner.pushFor(SECONDS * 1_000);
  const report = await flood;
  const after = await memoryOf(service.pid);
  const p99Ms = quantile(runner.latenciesMs, 0.99);
  const runnerFigures = { pushes: runner.latenciesMs.length, p99Ms };
  const residentMiB = { before: before.residentMiB, peak: after.peakMiB, after: after.residentMiB };
  const { ends, lostConnections } = report;
  const figures = { ends, lostConnections, residentMiB, runner: runnerFigures };
  process.stdout.write(`${JSON.stringify(figures)}\n`);

  expect(report.withoutRetryInfo).toBe(0);
  expect(refusals(report)).toBeGreaterThan(0);
  expect(after.peakMiB - before.residentMiB).toBeLessThan(GROWTH_MIB_MAX);
  expect(runner.failures).toEqual([]);
  expect(p99Ms).toBeLessThan(IS_MEASURED ? PUSH_P99_MS_MAX : Number.POSITIVE_INFINITY);
  for (const [sessionId, acknowledged] of Object.entries(report.acknowledged)) {
    const stored = await storedSeqs(client, sessionId);
    expect(acknowledged.filter((seq) => !stored.has(seq))).toEqual([]);
  }
  expect(await storedSeqs(client, runner.sessionId)).toEqual(runner.acknowledged);
});

async function startFlood(order: FloodOrder): Promise<FloodReport> {
  const worker: ChildProcess = fork(WORKER);
  try {
    const said = once(worker, "message");
    worker.send(order);
    const [report]: readonly unknown[] = await said;
    return floodReportSchema.parse(report);
  } finally {
    worker.kill("SIGKILL");
  }
}

function refusals({ ends }: FloodReport): number {
  return Object.entries(ends).reduce(
    (sum, [end, count]) => (end.startsWith("8") ? sum + count : sum),
    0,
  );
}

/** By pages: a page ends at 3 MiB. */
async function storedSeqs(client: RpcClient, sessionId: string): Promise<ReadonlySet<number>> {
  const seqs = new Set<number>();
  let afterSeq = 0n;
  for (;;) {
    const page = await client.unary(
      ledger.listSessionMessages,
      { sessionId, afterSeq, pageSize: 1_000 },
      { metadata: { authorization: `Bearer ${TOKENS.runner}` }, deadlineMs: 30_000 },
    );
    for (const { seq } of page.items) seqs.add(Number(seq));
    if (!page.hasMore) return seqs;
    afterSeq = page.nextAfterSeq;
  }
}

function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}
