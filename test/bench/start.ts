/**
 * The start of the service with a database that exists, from the call of exec to the line "serving", beside
 * a Node that only prints a line. Also the CPU time of both until then, which Linux counts in steps of 10 ms.
 */
import type { Bench, Findings } from "./bench.ts";
import { medians, ratioOf, rounded } from "./figures.ts";
import { startProcess } from "./processes.ts";
import { startLedger, startReplica } from "./servers.ts";
import { cpuMsOf } from "./usage.ts";

/** Prints a line as the service does, and waits to be stopped. */
const EMPTY_PROGRAM = "console.log('{}'); setInterval(() => {}, 60_000)";

interface Started {
  readonly pid: number;
  readonly readyMs: number;
  stop(): Promise<void>;
}

interface Start {
  readonly readyMs: number;
  readonly cpuMs: number;
}

export async function benchStart(bench: Bench): Promise<Findings> {
  const ledger = await startLedger(bench);
  const programs: Readonly<Record<"service" | "node", () => Promise<Started>>> = {
    service: () => startReplica(bench, ledger),
    node: () =>
      startProcess(bench, {
        nodeArgs: ["--eval", EMPTY_PROGRAM],
        script: new URL(import.meta.url), // Only an argument of the program.
        env: {},
        readyBy: (line) => line,
      }),
  };
  const starts: Record<keyof typeof programs, Start[]> = { service: [], node: [] };
  for (let round = 0; round <= bench.options.rounds; round += 1) {
    for (const name of ["service", "node"] as const) {
      const started = await programs[name]();
      const { readyMs } = started;
      const cpuMs = await cpuMsOf(started.pid, { children: false });
      await started.stop();
      bench.progress(`round ${round}, ${name}: ${rounded(readyMs)} ms, ${cpuMs} ms of CPU`);
      if (round > 0) starts[name].push({ readyMs, cpuMs }); // The first reads the files from disk.
    }
  }
  const readyMs = (name: keyof typeof programs): readonly number[] =>
    starts[name].map((start) => start.readyMs);
  return {
    ratios: {
      "service / empty Node, time": ratioOf(readyMs("service"), readyMs("node")),
    },
    medians: { service: medians(starts.service), node: medians(starts.node) },
    starts,
  };
}
