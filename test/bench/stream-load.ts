/** One run of the load of `stream` on a server, and its result according to the table. */
import { z } from "zod";
import type { Bench } from "./bench.ts";
import { rounded } from "./figures.ts";
import { startProcess } from "./processes.ts";
import { type PushLoad, pushOutcomeSchema } from "./push-load.ts";
import type { Target } from "./servers.ts";
import { cpuMsOf } from "./usage.ts";

export interface StreamFigures {
  readonly eventsPerSecond: number;
  readonly framesPerSecond: number;
  readonly seconds: number;
  readonly events: number;
  readonly refused: number;
  readonly sessions: number;
  /** In the table; NaN, in JSON null, where nothing is stored. */
  readonly rows: number;
  readonly rowsPerSecond: number;
  readonly serverCpuMicrosPerEvent: number;
  /** Of the time of the run, what each was at work: 1 is one core. */
  readonly serverCpu: number;
  readonly postgresCpu: number;
  readonly generatorCpu: number;
}

const answerSchema = z.object({ outcome: pushOutcomeSchema });
/** The limit for the start of a generator, its acknowledgements and its end. */
const OUTCOME_LIMIT_MS = 60_000;

let runs = 0;

export async function runStreamLoad(
  bench: Bench,
  target: Target,
  load: Omit<PushLoad, "address" | "run">,
): Promise<StreamFigures> {
  runs += 1;
  const before = await cpuOf(target);
  const pushLoad: PushLoad = { ...load, address: target.address, run: String(runs) };
  const { ready, ...generator } = await startProcess(bench, {
    script: new URL("./stream-generator.ts", import.meta.url),
    args: [JSON.stringify(pushLoad)],
    env: {},
    readyBy: (line) => answerSchema.safeParse(line).data,
    readyLimitMs: OUTCOME_LIMIT_MS + (load.seconds ?? 0) * 1_000,
  });
  const after = await cpuOf(target);
  await generator.stop();
  const { events, refused, frames, seconds, sessionIds, cpuMs } = ready.outcome;
  const rows = await storedRows(target, { sessionIds, events: events - refused });
  const share = (ms: number): number => rounded(ms / 1_000 / seconds);
  return {
    eventsPerSecond: rounded(events / seconds),
    framesPerSecond: rounded(frames / seconds),
    seconds: rounded(seconds),
    events,
    refused,
    sessions: sessionIds.length,
    rows,
    rowsPerSecond: rounded(rows / seconds),
    serverCpuMicrosPerEvent: rounded(((after.serverMs - before.serverMs) * 1_000) / events),
    serverCpu: share(after.serverMs - before.serverMs),
    postgresCpu: share(after.postgresMs - before.postgresMs),
    generatorCpu: share(cpuMs),
  };
}

async function cpuOf({ pid, witness }: Target) {
  const serverMs = await cpuMsOf(pid, { children: false });
  if (witness === undefined) return { serverMs, postgresMs: Number.NaN };
  return { serverMs, postgresMs: await cpuMsOf(witness.postmasterPid, { children: true }) };
}

/** A server that acknowledges events without storing them would be the fastest of all. */
async function storedRows(
  { witness }: Target,
  { sessionIds, events }: { readonly sessionIds: readonly string[]; readonly events: number },
): Promise<number> {
  if (witness === undefined) return Number.NaN;
  const stored = await witness.eventsOf(sessionIds);
  if (stored !== events)
    throw new Error(`${events} events were acknowledged, ${stored} are stored`);
  return witness.rowsOf(sessionIds);
}
