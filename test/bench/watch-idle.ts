/** Five thousand idle watchers: their memory, and the latency of a push beside them. */
import { randomUUID } from "node:crypto";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { RpcClient } from "../support/grpc-client.ts";
import type { Bench, Findings } from "./bench.ts";
import { payloadOf } from "./bodies.ts";
import { latencyOf, rounded } from "./figures.ts";
import { startLedger, type Target, watchersOfOneSession } from "./servers.ts";
import { memoryOf } from "./usage.ts";
import { Watchers } from "./watchers.ts";

/** 16 times these fit WATCHERS_MAX. */
const WATCHERS = 5_000;
const PER_CONNECTION = 500;
const CALLS = 2_000;

export async function watchIdle(bench: Bench): Promise<Findings> {
  const count = bench.options.quick ? 500 : WATCHERS;
  const findings: Record<string, Findings> = {};
  for (const spread of ["sessions of their own", "one session"] as const) {
    const ledger = await startLedger(bench, {
      env: watchersOfOneSession(count),
    });
    await pushes(bench, ledger, CALLS); // Warms up.
    const without = latencyOf(await pushes(bench, ledger, CALLS));
    const before = await memoryOf(ledger.pid);
    const watchers = new Watchers(bench);
    const of = `bench-${randomUUID()}`;
    await watchers.attach({
      address: ledger.address,
      sessionIds: Array.from({ length: count }, (_, at) =>
        spread === "one session" ? of : `${of}-${at}`,
      ),
      connections: Math.ceil(count / PER_CONNECTION),
      pace: "fast",
      timed: false,
    });
    const beside = latencyOf(await pushes(bench, ledger, CALLS));
    const after = await memoryOf(ledger.pid);
    bench.progress(`${spread}: ${rounded(after.residentMiB - before.residentMiB)} MiB`);
    findings[spread] = {
      residentMiB: { without: rounded(before.residentMiB), with: rounded(after.residentMiB) },
      kibibytesEach: rounded(((after.residentMiB - before.residentMiB) * 1_024) / count),
      push: { without, beside },
    };
    await watchers.close();
    await ledger.stop();
  }
  return { load: { watchers: count, calls: CALLS }, ...findings };
}

async function pushes(
  { signal }: Bench,
  { address }: Target,
  calls: number,
): Promise<readonly number[]> {
  const client = new RpcClient(address);
  const eventType = "TEXT_MESSAGE_CONTENT";
  const request = { sessionId: "bench-beside", eventType, payload: payloadOf(eventType) };
  const tookMs: number[] = [];
  for (let call = 0; call < calls; call += 1) {
    signal.throwIfAborted();
    const beganMs = performance.now();
    await client.unary(SessionService.method.pushSessionEvent, request, { deadlineMs: 10_000 });
    tookMs.push(performance.now() - beganMs);
  }
  client.close();
  return tookMs;
}
