/** Watching: the latency of a row, the cost of wake-ups, fan-out, slow watchers, idle ones. */
import type { Bench, Findings } from "./bench.ts";
import { watchFanOut } from "./watch-fan-out.ts";
import { watchIdle } from "./watch-idle.ts";
import { watchLatency, wakeUpCost } from "./watch-latency.ts";
import { watchSlow } from "./watch-slow.ts";

export async function benchWatch(bench: Bench): Promise<Findings> {
  const parts = [
    ["latency", watchLatency],
    ["wakeUps", wakeUpCost],
    ["fanOut", watchFanOut],
    ["idle", watchIdle],
    ["slow", watchSlow],
  ] as const;
  const wanted = bench.options.parts;
  const findings: Record<string, Findings> = {};
  for (const [name, measure] of parts) {
    if (wanted !== undefined && !wanted.includes(name)) continue;
    // Each part has servers of its own, gone before the next: two cores carry no bystanders.
    await using undo = new AsyncDisposableStack();
    findings[name] = await measure({
      ...bench,
      undo,
      progress: (line) => bench.progress(`${name}: ${line}`),
    });
  }
  return findings;
}
