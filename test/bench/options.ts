/** The command line: which benchmarks, and how much of each. */
import { parseArgs } from "node:util";

const BENCHES = [
  "push",
  "read",
  "watch",
  "join",
  "compression",
  "stream",
  "start",
  "hostile",
  "flow",
  "turns",
  "lists",
  "retention",
  "page",
] as const;
/** Needs `--old`, so `all` omits it. */
const AGAINST = "against";
const TAKE_OLD: readonly string[] = [AGAINST, "hostile"];
/** Of which there are profiles. */
const PROFILED = ["push", "stream"] as const;
export type BenchName =
  | (typeof BENCHES)[number]
  | typeof AGAINST
  | `profile ${(typeof PROFILED)[number]}`;

export interface BenchOptions {
  readonly benches: readonly BenchName[];
  /** The length of one run of load, in calls or seconds. Undefined: the benchmark's own. */
  readonly calls: number | undefined;
  readonly seconds: number | undefined;
  readonly rounds: number;
  /** Everything small: shows only that it works. */
  readonly quick: boolean;
  /** Of a benchmark in parts; undefined: all. */
  readonly parts: readonly string[] | undefined;
  /** A folder of recorded streams; undefined: what CORPUS names, or the project's own. */
  readonly corpus: string | undefined;
  /** A folder with another checkout, for `against` and `hostile`. */
  readonly old: string | undefined;
}

export const USAGE = `usage: npm run bench -- ${BENCHES.join("|")}|all [options]
       npm run bench -- against --old DIR [options]
       npm run bench -- profile ${PROFILED.join("|")} [options]

  --seconds N   how long one run of load takes
  --calls N     how many calls (rows, for read) it has instead
  --rounds N    how often each server gets its turn
  --parts A,B   of watch: latency, wakeUps, fanOut, idle, slow;
                of against: push, doors, keyed, idle, stream1, stream50, read, replay,
                watch, join, claim, upgrade
                of hostile: 1 to 10
  --old DIR     another checkout with its node_modules, for against: old and new by turns;
                for hostile: that one alone
  --corpus DIR  recorded streams, for compression and stream
  --quick       everything small: shows that it works, its figures mean nothing

One JSON document on stdout, progress on stderr.
`;

/** Undefined for a wrong command line. */
export function readOptions(args: readonly string[]): BenchOptions | undefined {
  try {
    const { values, positionals } = parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        calls: { type: "string" },
        seconds: { type: "string" },
        rounds: { type: "string" },
        parts: { type: "string" },
        corpus: { type: "string" },
        old: { type: "string" },
        quick: { type: "boolean", default: false },
      },
    });
    const benches = benchesOf(positionals);
    const amount = { calls: countOf(values.calls), seconds: countOf(values.seconds) };
    const rounds = countOf(values.rounds) ?? (values.quick ? 1 : 3);
    const parts = values.parts?.split(",");
    if (benches === undefined) return undefined;
    const { quick, corpus, old } = values;
    if (old === undefined && benches.includes(AGAINST)) return undefined;
    if (old !== undefined && !benches.every((name) => TAKE_OLD.includes(name))) return undefined;
    return { benches, ...amount, rounds, quick, parts, corpus, old };
  } catch {
    return undefined;
  }
}

function benchesOf(names: readonly string[]): readonly BenchName[] | undefined {
  const [name, what, ...more] = names;
  if (name === "profile") {
    const profiled = PROFILED.find((one) => one === what);
    return profiled === undefined || more.length > 0 ? undefined : [`profile ${profiled}`];
  }
  if (what !== undefined) return undefined;
  if (name === AGAINST) return [AGAINST];
  const known = BENCHES.find((bench) => bench === name);
  if (known !== undefined) return [known];
  return name === "all" ? BENCHES : undefined;
}

function countOf(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const count = Number(text);
  if (!Number.isSafeInteger(count) || count < 1) throw new RangeError(text);
  return count;
}
