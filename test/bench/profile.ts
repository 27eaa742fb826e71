/**
 * The CPU profile of the service's own thread while it takes pushes, once it is warm; PostgreSQL is not
 * in it.
 */
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Bench, Findings } from "./bench.ts";
import { readCorpus } from "./corpus.ts";
import { summariseProfile } from "./cpu-profile.ts";
import { runLoad } from "./load.ts";
import { pushAmount } from "./push.ts";
import { type Ledger, startLedger } from "./servers.ts";
import { SHAPES } from "./shapes.ts";
import { streamLoad } from "./stream.ts";
import { runStreamLoad } from "./stream-load.ts";

const ROOT = new URL("../../", import.meta.url).href;

/** Of unary pushes. */
export function profilePush(bench: Bench): Promise<Findings> {
  const shape = SHAPES.sessions64;
  const amount = pushAmount(bench);
  return profileOf(bench, async (ledger) => ({
    shape,
    ...(await runLoad(bench, ledger, { shape, amount })),
  }));
}

/** Of push streams, with one event a frame and with many; each with a service of its own. */
export async function profileStream(bench: Bench): Promise<Findings> {
  readCorpus(bench.options);
  const findings: Record<string, Findings> = {};
  for (const eventsPerFrame of [1, 50] as const) {
    await using undo = new AsyncDisposableStack();
    findings[`${eventsPerFrame} a frame`] = await profileOf({ ...bench, undo }, async (ledger) => {
      const load = streamLoad(bench, { eventsPerFrame, isWarmUp: false });
      return { load, ...(await runStreamLoad(bench, ledger, load)) };
    });
  }
  return findings;
}

async function profileOf(
  bench: Bench,
  load: (ledger: Ledger) => Promise<Findings>,
): Promise<Findings> {
  const directory = await mkdtemp(join(tmpdir(), "session-ledger-profile-"));
  bench.undo.defer(() => rm(directory, { recursive: true, force: true }));
  const ledger = await startLedger(bench, {
    nodeArgs: ["--cpu-prof", `--cpu-prof-dir=${directory}`],
  });
  await load(ledger);
  const fromMicros = monotonicMicros();
  const loaded = await load(ledger);
  const toMicros = monotonicMicros();
  bench.progress("writing the profile");
  await ledger.stop(); // Node writes the profile when the process ends by itself.
  // The entry runs Node again in its process, and that has a profile too, of an earlier second or the same.
  const files = (await readdir(directory)).filter((file) => file.endsWith(".cpuprofile"));
  const name = files.toSorted().at(-1);
  if (name === undefined) throw new Error("the service left no profile");
  const profile = await readFile(join(directory, name), "utf8");
  const summary = summariseProfile(profile, { root: ROOT, fromMicros, toMicros });
  if (summary.busyMs === 0) throw new Error("the profile has another clock than this process");
  return { load: loaded, profile: summary };
}

/** On Linux V8 and libuv both read CLOCK_MONOTONIC, so one process can date what another has sampled. */
function monotonicMicros(): number {
  return Number(process.hrtime.bigint() / 1_000n);
}
