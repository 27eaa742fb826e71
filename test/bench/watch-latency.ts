/** From the call of a push to its row at a watcher, on the same replica and on another. */
import { randomUUID } from "node:crypto";
import type { Bench, Findings } from "./bench.ts";
import { type Latency, latencyOf, median, ratioOf, rounded } from "./figures.ts";
import { runLoad } from "./load.ts";
import { pushPaced } from "./paced.ts";
import { pushAmount } from "./push.ts";
import { startLedger, startReplica } from "./servers.ts";
import { SHAPES } from "./shapes.ts";
import { Watchers } from "./watchers.ts";

const ROWS_PER_SECOND = 1_000;
const SESSIONS = 10;
const SECONDS = 10;

export async function watchLatency(bench: Bench): Promise<Findings> {
  const seconds = bench.options.quick ? 1 : (bench.options.seconds ?? SECONDS);
  const ledger = await startLedger(bench);
  const replica = await startReplica(bench, ledger);
  const rounds: Record<"push" | "same" | "other", Latency>[] = [];
  for (let round = 0; round <= bench.options.rounds; round += 1) {
    const sessionIds = Array.from({ length: SESSIONS }, () => `bench-${randomUUID()}`);
    const watchers = { same: new Watchers(bench), other: new Watchers(bench) };
    const attach = { sessionIds, connections: 2, pace: "fast", timed: true } as const;
    await watchers.same.attach({ ...attach, address: ledger.address });
    await watchers.other.attach({ ...attach, address: replica.address });
    const rows = ROWS_PER_SECOND * seconds;
    const load = { address: ledger.address, sessionIds, rows, rowsPerSecond: ROWS_PER_SECOND };
    const pushed = await pushPaced(bench, load);
    const same = await watchers.same.complete(rows / SESSIONS);
    const other = await watchers.other.complete(rows / SESSIONS);
    await watchers.same.close();
    await watchers.other.close();
    if (round === 0) continue; // Warms up.
    const found = {
      push: latencyOf(pushed),
      same: latencyOf(same.tookMs),
      other: latencyOf(other.tookMs),
    };
    rounds.push(found);
    bench.progress(
      `round ${round}: same ${found.same.p50Ms}/${found.same.p99Ms} ms, other ${found.other.p50Ms}/${found.other.p99Ms} ms (p50/p99)`,
    );
  }
  const all = (of: "push" | "same" | "other") => ({
    p50Ms: rounded(median(rounds.map((round) => round[of].p50Ms))),
    p99Ms: rounded(median(rounds.map((round) => round[of].p99Ms))),
  });
  return {
    load: { rowsPerSecond: ROWS_PER_SECOND, seconds, sessions: SESSIONS, watchers: 2 * SESSIONS },
    push: all("push"),
    sameReplica: all("same"),
    otherReplica: all("other"),
    rounds,
  };
}

/** Pushes under full load with wake-ups and without, on one PostgreSQL, by turns. */
export async function wakeUpCost(bench: Bench): Promise<Findings> {
  const off = await startLedger(bench, { env: { LISTEN_DATABASE_URL: "off" } });
  const on = await startReplica(bench, off);
  const speeds: Record<"on" | "off", number[]> = { on: [], off: [] };
  const load = { shape: SHAPES.sessions64, amount: pushAmount(bench) };
  for (const target of [off, on]) {
    await runLoad(bench, target, { ...load, amount: { calls: 2_000 } });
  }
  // Twice the rounds: what is asked for is a difference of three in a hundred.
  for (let round = 0; round < bench.options.rounds * 2; round += 1) {
    const turns = [
      ["on", on],
      ["off", off],
    ] as const;
    for (const [name, target] of round % 2 === 0 ? turns : turns.toReversed()) {
      const { callsPerSecond } = await runLoad(bench, target, load);
      speeds[name].push(callsPerSecond);
      bench.progress(`round ${round + 1}, ${name}: ${Math.round(callsPerSecond)} calls/s`);
    }
  }
  return {
    ratios: { "wake-ups on / off": ratioOf(speeds.on, speeds.off) },
    callsPerSecond: speeds,
  };
}
