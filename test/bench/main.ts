/**
 * Measures the service: `npm run bench -- NAME` (options.ts has the names), `npm run bench -- profile NAME`.
 * docs/performance.md says what is compared with what. Everything that is started is ended, everything
 * that is written is deleted, also on Ctrl-C; no benchmark goes on for longer than its limit.
 */
import { cleanUp } from "../support/embedded-fixture.ts";
import type { Bench, Findings } from "./bench.ts";
import { describeMachine } from "./machine.ts";
import { type BenchName, type BenchOptions, readOptions, USAGE } from "./options.ts";

/** Each is loaded when it runs: the modules of all take a second. */
const RUN: Readonly<Record<BenchName, () => Promise<(bench: Bench) => Promise<Findings>>>> = {
  push: async () => (await import("./push.ts")).benchPush,
  read: async () => (await import("./read.ts")).benchRead,
  watch: async () => (await import("./watch.ts")).benchWatch,
  join: async () => (await import("./join.ts")).benchJoin,
  compression: async () => (await import("./compression.ts")).benchCompression,
  stream: async () => (await import("./stream.ts")).benchStream,
  start: async () => (await import("./start.ts")).benchStart,
  hostile: async () => (await import("./hostile.ts")).benchHostile,
  flow: async () => (await import("./flow.ts")).benchFlow,
  turns: async () => (await import("./turns.ts")).benchTurns,
  lists: async () => (await import("./lists.ts")).benchLists,
  retention: async () => (await import("./retention.ts")).benchRetention,
  page: async () => (await import("./page.ts")).benchPage,
  against: async () => (await import("./against.ts")).benchAgainst,
  "profile push": async () => (await import("./profile.ts")).profilePush,
  "profile stream": async () => (await import("./profile.ts")).profileStream,
};

/** Of one benchmark; far above what any of them needs. */
const BENCH_LIMIT_MS = 30 * 60_000;
const EXIT_USAGE = 2;
const EXIT_INTERRUPTED = 130;

const interrupted = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  // Once or often: the cleaning up is bounded, and to leave in its middle would leave servers behind.
  process.on(signal, () => interrupted.abort(new Error(`ended by ${signal}`)));
}

const options = readOptions(process.argv.slice(2));
if (options === undefined) {
  process.stderr.write(USAGE);
  process.exitCode = EXIT_USAGE;
} else {
  await runAll(options);
}

async function runAll(chosen: BenchOptions): Promise<void> {
  try {
    const machine = await describeMachine();
    const benches: Record<string, Findings> = {};
    for (const name of chosen.benches) benches[name] = await runOrSay(name, chosen);
    process.stdout.write(`${JSON.stringify({ machine, benches }, undefined, 2)}\n`);
  } catch (error) {
    const reason: unknown = interrupted.signal.aborted ? interrupted.signal.reason : error;
    process.stderr.write(`bench: ${reason instanceof Error ? reason.message : String(reason)}\n`);
    process.exitCode = interrupted.signal.aborted ? EXIT_INTERRUPTED : 1;
  }
}

/** One that fails does not take the figures of the others. */
async function runOrSay(name: BenchName, chosen: BenchOptions): Promise<Findings> {
  try {
    return await runOne(name, chosen);
  } catch (error) {
    if (interrupted.signal.aborted || chosen.benches.length === 1) throw error;
    const failed = error instanceof Error ? error.message : String(error);
    process.stderr.write(`bench: ${name}: ${failed}\n`);
    process.exitCode = 1;
    return { failed };
  }
}

async function runOne(name: BenchName, chosen: BenchOptions): Promise<Findings> {
  const undo = new AsyncDisposableStack();
  undo.defer(cleanUp);
  const signal = AbortSignal.any([interrupted.signal, AbortSignal.timeout(BENCH_LIMIT_MS)]);
  const progress = (line: string): void => {
    process.stderr.write(`${name}: ${line}\n`);
  };
  try {
    const run = await RUN[name]();
    return await run({ options: chosen, signal, undo, progress });
  } finally {
    await undo.disposeAsync();
  }
}
