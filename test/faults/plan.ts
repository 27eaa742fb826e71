/**
 * The order and moments of the faults, drawn only from a seed: the same seed plans the same faults in the
 * same order on any machine.
 *
 * Each round has every kind once, in its own order. Sometimes two strike together, if they do not need
 * the same target.
 */
import type { Random } from "../support/random.ts";

/** The targets of each kind. Two with the same target are never together. */
export const FAULTS = {
  kill_replica: "replica",
  restart_replica: "replica",
  kill_worker: "replica",
  stop_replica: "replica",
  clock_jump: "replica",
  black_hole: "replica",
  lost_answers: "replica",
  connections_reset: "replica",
  bodies_held: "replica",
  listen_half_open: "replica",
  listen_dropped: "replica",
  kill_postgres: "postgres",
  stop_postgres: "postgres",
  slow_disk: "disk",
  full_disk: "disk",
  session_locked: "session",
  brims_locked: "brims",
  erased_while_imported: "import",
  promote_standby: "everything",
} as const satisfies Readonly<
  Record<string, "replica" | "postgres" | "disk" | "session" | "brims" | "import" | "everything">
>;

export type FaultKind = keyof typeof FAULTS;

/** The kinds that lose nothing. */
export const FAULT_KINDS = Object.keys(FAULTS)
  .filter(isFaultKind)
  .filter((kind) => FAULTS[kind] !== "everything");

export function isFaultKind(name: string): name is FaultKind {
  return Object.hasOwn(FAULTS, name);
}

export interface PlannedFault {
  readonly kind: FaultKind;
  /** The struck replica, for kinds that strike one. */
  readonly replica: number;
  /** From its strike to its heal. */
  readonly holdMs: number;
  /** From 0 to 999: decides the other choices of the fault. */
  readonly draw: number;
}

export interface Step {
  /** The calm before it. */
  readonly calmMs: number;
  /** One fault, or two that strike together. */
  readonly faults: readonly PlannedFault[];
}

/** Without an option. */
export const REPLICAS = 2;

const CALM_MS = [300, 1_500] as const;
const HOLD_MS: Readonly<Record<"short" | "long", readonly [number, number]>> = {
  short: [200, 2_000],
  long: [2_000, 6_000],
};
const TOGETHER_ONE_IN = 2;
const LONG_ONE_IN = 4;

/** Without end. */
export function* planned(
  random: Random,
  kinds: readonly FaultKind[],
  replicas = REPLICAS,
): Generator<Step, never> {
  for (;;) {
    for (const kind of random.shuffled(kinds)) {
      const first = drawn(random, { kind, replicas });
      const second = drawn(random, { kind: random.pick(kinds), replicas });
      const together = random.oneIn(TOGETHER_ONE_IN) && mayBeTogether(first, second);
      yield { calmMs: between(random, CALM_MS), faults: together ? [first, second] : [first] };
    }
  }
}

export function nameOf({ kind, replica }: PlannedFault): string {
  return FAULTS[kind] === "replica" ? `${kind} of replica ${replica}` : kind;
}

function drawn(
  random: Random,
  { kind, replicas }: { readonly kind: FaultKind; readonly replicas: number },
): PlannedFault {
  const hold = HOLD_MS[random.oneIn(LONG_ONE_IN) ? "long" : "short"];
  return {
    kind,
    replica: random.below(replicas),
    holdMs: between(random, hold),
    draw: random.below(1_000),
  };
}

function between(random: Random, [min, max]: readonly [number, number]): number {
  return min + random.below(max - min);
}

function mayBeTogether(one: PlannedFault, other: PlannedFault): boolean {
  if (FAULTS[one.kind] === "everything" || FAULTS[other.kind] === "everything") return false;
  if (FAULTS[one.kind] !== FAULTS[other.kind]) return true;
  return FAULTS[one.kind] === "replica" && one.replica !== other.replica;
}
