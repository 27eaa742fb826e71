/** The options of the command; it prints its usage for wrong ones. */
import { parseArgs } from "node:util";
import { newSeed } from "../support/random.ts";
import { DEFECTS } from "./defects-table.ts";
import { FAULT_KINDS, type FaultKind, isFaultKind, REPLICAS } from "./plan.ts";

export const USAGE = `Usage: npm run faults -- [options]

Drives replicas on one PostgreSQL with every kind of client, breaks one thing after the other, and
checks at the end that every promise was kept. JSON on stdout, what happens on stderr; exit 1 when a
promise was broken.

  --seconds N      how long faults strike (60)
  --seed N         which faults strike when (SEED, or a new one); it is printed
  --faults A,B     only these: ${FAULT_KINDS.join(", ")};
                   or promote_standby, which loses the newest rows, and so has fewer clients
  --replicas N     instances on the one PostgreSQL (2)
  --workers N      processes of each replica (1); kill_worker needs at least 2
  --report FILE    also a report in Markdown
  --defects[=A,B]  breaks a copy of the sources on purpose, in each of these ways, and expects
                   violations: ${DEFECTS.map(({ name }) => name).join(", ")}
`;

export interface FaultsOptions {
  readonly seconds: number;
  readonly seed: number;
  readonly kinds: readonly FaultKind[];
  readonly workers: number;
  readonly replicas: number;
  readonly report: string | undefined;
  /** Names; undefined: the unchanged sources. */
  readonly defects: readonly string[] | undefined;
}

const SECONDS_MAX = 86_400;
const WORKERS_MAX = 4;
const REPLICAS_MAX = 8;

export function readOptions(args: readonly string[]): FaultsOptions | undefined {
  const { values } = parsed(args) ?? {};
  if (values === undefined) return undefined;
  const seconds = Number(values.seconds ?? "60");
  const seed = values.seed === undefined ? newSeed() : Number(values.seed);
  const kinds = values.faults === undefined ? FAULT_KINDS : values.faults.split(",");
  const workers = Number(values.workers ?? "1");
  const replicas = Number(values.replicas ?? REPLICAS);
  const defects = defectsIn(values.defects);
  const isSound =
    seconds > 0 &&
    seconds <= SECONDS_MAX &&
    Number.isSafeInteger(seed) &&
    seed >= 0 &&
    kinds.length > 0 &&
    isIn(workers, [1, WORKERS_MAX]) &&
    isIn(replicas, [2, REPLICAS_MAX]) &&
    kinds.every(isFaultKind) &&
    defects !== "unknown";
  if (!isSound) return undefined;
  const { report } = values;
  return { seconds, seed, kinds: kinds.filter(isFaultKind), workers, replicas, report, defects };
}

function isIn(value: number, [min, max]: readonly [number, number]): boolean {
  return Number.isInteger(value) && value >= min && value <= max;
}

function parsed(args: readonly string[]) {
  // `--defects` without a value means all of them, which parseArgs does not support.
  const given = args.map((arg) => (arg === "--defects" ? "--defects=" : arg));
  try {
    return parseArgs({
      args: given,
      options: {
        seconds: { type: "string" },
        seed: { type: "string" },
        faults: { type: "string" },
        workers: { type: "string" },
        replicas: { type: "string" },
        report: { type: "string" },
        defects: { type: "string" },
      },
    });
  } catch {
    return undefined;
  }
}

function defectsIn(given: string | undefined): readonly string[] | undefined | "unknown" {
  if (given === undefined) return undefined;
  const all = DEFECTS.map(({ name }) => name);
  if (given === "") return all;
  const names = given.split(",");
  return names.every((name) => all.includes(name)) ? names : "unknown";
}
