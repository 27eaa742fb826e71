/** Memory of the service, idle and after more and more pushes: any growth with them would show. */
import type { Bench, Findings } from "./bench.ts";
import { rounded } from "./figures.ts";
import { runLoad } from "./load.ts";
import { startLedger } from "./servers.ts";
import { SHAPES } from "./shapes.ts";
import { type Memory, memoryOf } from "./usage.ts";

const PUSHES = 1_000_000;
const PUSHES_QUICK = 10_000;
const STEPS = 10;

export async function benchMemory(bench: Bench): Promise<Findings> {
  const ledger = await startLedger(bench);
  const pushes = bench.options.calls ?? (bench.options.quick ? PUSHES_QUICK : PUSHES);
  const idle = await memoryOf(ledger.pid);
  const steps: (Memory & { readonly rows: number; readonly notCounted: number })[] = [];
  let rows = 0;
  for (let step = 1; step <= STEPS; step += 1) {
    const load = await runLoad(bench, ledger, {
      shape: SHAPES.sessions64,
      amount: { calls: Math.ceil(pushes / STEPS) },
    });
    rows += load.rows;
    const memory = await memoryOf(ledger.pid);
    steps.push({ rows, ...memory, notCounted: load.notCounted });
    bench.progress(`${rows} rows: ${rounded(memory.residentMiB)} MiB`);
  }
  const first = steps[0]?.residentMiB ?? Number.NaN;
  const last = steps.at(-1)?.residentMiB ?? Number.NaN;
  return {
    idleMiB: rounded(idle.residentMiB),
    growthMiB: rounded(last - first),
    steps: steps.map(({ residentMiB, peakMiB, ...step }) => ({
      ...step,
      residentMiB: rounded(residentMiB),
      peakMiB: rounded(peakMiB),
    })),
  };
}
