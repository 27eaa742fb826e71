/**
 * Measures the service: `npm run bench -- NAME` (options.ts has the names), `npm run bench -- profile NAME`.
 * docs/performance.md says what is compared with what. Everything that is started is ended, everything
 * that is written is deleted, also on Ctrl-C; no benchmark goes on for longer than its limit.
 */
import { cleanUp } from "../support/embedded-fixture.ts";
import type { Bench, Findings } from "./bench.ts";
import { benchAgainst } from "./against.ts";
import { benchCompression } from "./compression.ts";
import { benchFlow } from "./flow.ts";
import { benchHostile } from "./hostile.ts";
import { benchJoin } from "./join.ts";
import { benchLists } from "./lists.ts";
import { benchRetention } from "./retention.ts";
import { describeMachine } from "./machine.ts";
import { type BenchName, type BenchOptions, readOptions, USAGE } from "./options.ts";
import { benchPage } from "./page.ts";
import { profilePush, profileStream } from "./profile.ts";
import { benchPush } from "./push.ts";
import { benchRead } from "./read.ts";
import { benchStart } from "./start.ts";
import { benchStream } from "./stream.ts";
import { benchTurns } from "./turns.ts";
import { benchWatch } from "./watch.ts";

const RUN: Readonly<Record<BenchName, (bench: Bench) => Promise<Findings>>> = {
  push: benchPush,
  read: benchRead,
  watch: benchWatch,
  join: benchJoin,
  compression: benchCompression,
  stream: benchStream,
  start: benchStart,
  hostile: benchHostile,
  flow: benchFlow,
  turns: benchTurns,
  lists: benchLists,
  retention: benchRetention,
  page: benchPage,
  against: benchAgainst,
  "profile push": profilePush,
  "profile stream": profileStream,
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
    return await RUN[name]({ options: chosen, signal, undo, progress });
  } finally {
    await undo.disposeAsync();
  }
}
