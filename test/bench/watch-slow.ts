/**
 * A hundred fast watchers, beside one that stops reading for half a minute and one that reads a hundred
 * rows a second until the load is over: their effect on the fast ones, and the memory.
 */
import { randomUUID } from "node:crypto";
import { setInterval } from "node:timers";
import type { Bench, Findings } from "./bench.ts";
import { type Latency, latencyOf, ratioOf, rounded } from "./figures.ts";
import { pushPaced } from "./paced.ts";
import { type Ledger, startLedger } from "./servers.ts";
import { memoryOf } from "./usage.ts";
import { Watchers } from "./watchers.ts";

const SESSIONS = 10;
const FAST = 100;
const ROWS = 100_000;
const ROWS_PER_SECOND = 2_500;
const STOPS_FOR_MS = 30_000;
/** A row of this load is 0.7 KB on the wire, near enough. */
const SIP_BYTES_PER_SECOND = 100 * 700;
const MEMORY_INTERVAL_MS = 200;

interface Turn {
  readonly fast: Latency;
  readonly peakMiB: number;
  readonly slowRows: number;
}

export async function watchSlow(bench: Bench): Promise<Findings> {
  const rows = bench.options.quick ? 5_000 : ROWS;
  const ledger = await startLedger(bench);
  const idle = await memoryOf(ledger.pid);
  await turn(bench, ledger, { rows: Math.min(rows, 20_000), slow: false }); // Warms up.
  const warm = await memoryOf(ledger.pid);
  const turns: Record<"without" | "with", Turn[]> = { without: [], with: [] };
  for (let round = 0; round < Math.min(2, bench.options.rounds); round += 1) {
    for (const name of ["without", "with"] as const) {
      const found = await turn(bench, ledger, { rows, slow: name === "with" });
      turns[name].push(found);
      bench.progress(`${name} slow ones: p99 ${found.fast.p99Ms} ms, ${found.peakMiB} MiB`);
    }
  }
  const p99s = (name: "without" | "with") => turns[name].map(({ fast }) => fast.p99Ms);
  return {
    load: { rows, rowsPerSecond: ROWS_PER_SECOND, sessions: SESSIONS, fast: FAST, slow: 2 },
    ratios: {
      "p99 of the fast ones, with / without slow ones": ratioOf(p99s("with"), p99s("without")),
    },
    residentMiB: { idle: rounded(idle.residentMiB), warm: rounded(warm.residentMiB) },
    turns,
  };
}

async function turn(
  bench: Bench,
  ledger: Ledger,
  { rows, slow }: { readonly rows: number; readonly slow: boolean },
): Promise<Turn> {
  const { address } = ledger;
  const sessionIds = Array.from({ length: SESSIONS }, () => `bench-${randomUUID()}`);
  const [first = ""] = sessionIds;
  const fast = new Watchers(bench);
  await fast.attach({
    address,
    sessionIds: Array.from({ length: FAST }, (_, at) => sessionIds[at % SESSIONS] ?? ""),
    connections: 4,
    pace: "fast",
    timed: true,
  });
  const slowOnes = new Watchers(bench);
  if (slow) {
    const attach = { address, sessionIds: [first], connections: 1, timed: false };
    await slowOnes.attach({ ...attach, pace: { kind: "stops", forMs: STOPS_FOR_MS } });
    await slowOnes.attach({
      ...attach,
      pace: { kind: "sips", bytesPerSecond: SIP_BYTES_PER_SECOND },
    });
  }
  let peakMiB = 0;
  const sample = async (): Promise<void> => {
    const { residentMiB } = await memoryOf(ledger.pid);
    peakMiB = Math.max(peakMiB, residentMiB);
  };
  const sampling = setInterval(() => void sample(), MEMORY_INTERVAL_MS);
  try {
    await pushPaced(bench, { address, sessionIds, rows, rowsPerSecond: ROWS_PER_SECOND });
    slowOnes.hurry();
    const { tookMs } = await fast.complete(rows / SESSIONS);
    const late = slow ? await slowOnes.complete(rows / SESSIONS) : undefined;
    return { fast: latencyOf(tookMs), peakMiB: rounded(peakMiB), slowRows: late?.rows ?? 0 };
  } finally {
    clearInterval(sampling);
    await fast.close();
    await slowOnes.close();
  }
}
