/**
 * One run: the cluster, the load, one fault after the other until the time is over, and the verdict.
 *
 *   start ─► load ─► calm, strike, hold, heal, everybody gets something through ─► … ─► drain ─► verdict
 */
import { setTimeout as delay } from "node:timers/promises";
import { Random } from "../support/random.ts";
import { askDatabase, Cluster } from "./cluster.ts";
import { excerptOf } from "./excerpt.ts";
import { Imported } from "./imported.ts";
import { Load, REST_LIMIT_MS } from "./load.ts";
import { MemoryWatch } from "./memory.ts";
import { operationsOf, type Operations } from "./operations.ts";
import {
  FAULT_KINDS,
  type FaultKind,
  nameOf,
  planned,
  type PlannedFault,
  REPLICAS,
  type Step,
} from "./plan.ts";
import { type Gap, Progress } from "./progress.ts";
import { STRIKES } from "./strike.ts";
import { type Evidence, readEvidence, readFinals, verdictOf } from "./verdict.ts";
import { type TimelineEntry, Weather } from "./weather.ts";

export interface RunOptions {
  readonly seed: number;
  /** At least; the run also waits until each kind has struck once. */
  readonly seconds: number;
  /** All kinds by default. */
  readonly kinds?: readonly FaultKind[];
  /** Processes of each replica; 1 by default. */
  readonly workers?: number;
  /** 2 by default. */
  readonly replicas?: number;
  /** A small part of the load; all of it takes two cores. */
  readonly isSmall?: boolean;
  readonly tell: (line: string) => void;
  /** An abort ends the run early and normally, with a verdict. */
  readonly signal?: AbortSignal;
}

export interface RunResult {
  readonly seed: number;
  readonly seconds: number;
  readonly violations: readonly Violation[];
  readonly operations: Operations;
  /** The number of strikes of each kind. */
  readonly faults: Readonly<Record<string, number>>;
  /** Kinds that could not strike here, and why. */
  readonly skipped: readonly string[];
  readonly longestUnavailable: Gap | undefined;
  /** From the last heal of a step until a push of every writer has succeeded. */
  readonly longestRecoveryMs: number;
  readonly memoryMib: Readonly<Record<string, number>>;
  readonly countsChecked: boolean;
  readonly timeline: readonly TimelineEntry[];
}

export interface Violation {
  readonly what: string;
  readonly excerpt: readonly string[];
}

/** From the heal of a fault until a new push of every writer has succeeded. */
const RECOVERY_LIMIT_MS = 30_000;
/** After a problem: a writer or reader that is stuck ends late or never. */
const REST_LIMIT_AFTER_PROBLEM_MS = 5_000;
/** Further violations of the same kind add nothing. */
const VIOLATIONS_MAX = 30;
const EXCERPTS_MAX = 5;

/** The defaults of the service; rate limits are for other tests. */
const SETTINGS = {
  LOG_LEVEL: "info",
  INTEGRITY: "chain",
  PRINCIPAL_BYTES_PER_SECOND: "0",
  SESSION_BYTES_PER_SECOND: "0",
  CANCEL_GRACE: "1s",
  // So that a replica within this limit stays far below the memory limit of memory.ts.
  RECEIVED_BYTES_MAX: "67108864",
};

export async function runFaults(options: RunOptions): Promise<RunResult> {
  const { workers = 1, replicas = REPLICAS } = options;
  // PostgreSQL has room for 100 connections.
  const DATABASE_CONNECTIONS = String(Math.min(16, Math.floor(80 / replicas)));
  const settings = { ...SETTINGS, WORKERS: String(workers), DATABASE_CONNECTIONS };
  await using cluster = await Cluster.start(settings, { replicas });
  return await new Run(cluster, options).toItsEnd(); // Before the cluster is disposed of.
}

class Run {
  readonly #cluster: Cluster;
  readonly #options: RunOptions;
  readonly #weather: Weather;
  readonly #progress: Progress;
  readonly #imported = new Imported();
  readonly #problems: string[] = [];
  readonly #struck = new Map<string, number>();
  #longestRecoveryMs = 0;

  constructor(cluster: Cluster, options: RunOptions) {
    this.#cluster = cluster;
    this.#options = options;
    this.#weather = new Weather(({ atMs, what }) => options.tell(`${lineTime(atMs)} ${what}`));
    this.#progress = new Progress(this.#weather);
  }

  async toItsEnd(): Promise<RunResult> {
    const random = new Random(this.#options.seed);
    const steps = planned(random.fork(), this.#kinds(), this.#options.replicas);
    const { grpcAddresses: grpc, httpAddresses: http } = this.#cluster;
    await askDatabase(this.#cluster.url, (sql) => Load.fillBrims(sql));
    const memory = new MemoryWatch(this.#cluster.replicas);
    const load = new Load({
      ways: { grpc, http },
      random: random.fork(),
      weather: this.#weather,
      progress: this.#progress,
      losesRows: this.#kinds().includes("promote_standby"),
      isSmall: this.#options.isSmall === true,
    });
    await this.#untilAllGetThrough("the start");
    const untilMs = performance.now() + this.#options.seconds * 1_000;
    const isOver = (): boolean =>
      this.#options.signal?.aborted === true ||
      (performance.now() >= untilMs && this.#kinds().every((kind) => this.#struck.has(kind)));
    while (!isOver() && !this.#isLost(load, memory)) {
      await this.#step(steps.next().value, load);
    }
    this.#weather.note("the writers stop");
    const isLost = this.#isLost(load, memory);
    const limitMs = isLost ? REST_LIMIT_AFTER_PROBLEM_MS : REST_LIMIT_MS;
    await load.stopWriting(limitMs);
    // A replica that has ended by itself is started again: the rows are read through it.
    for (const replica of this.#cluster.replicas) if (!replica.isMeantToRun) await replica.start();
    const { sessionIds, brimIds } = load;
    const { url, lost } = this.#cluster;
    const finals = await askDatabase(url, (sql) => readFinals(sql, sessionIds));
    await load.finishReading(finals, limitMs);
    memory.stop();
    this.#weather.note("all have come to rest");
    const from = { address: this.#cluster.replica(0).service.grpcAddress };
    const read = await askDatabase(url, (sql) =>
      readEvidence({ sql, url, ...from }, { sessionIds, brimIds }),
    );
    const evidence = { ...read, lost };
    const ofImport = await askDatabase(url, (sql) => this.#imported.problems(sql, from.address));
    const problems = [
      ...this.#problems,
      ...ofImport,
      ...memory.problems,
      ...verdictOf(load, evidence),
    ];
    return this.#result({ load, evidence, problems, memoryMib: memory.highestMib });
  }

  #kinds(): readonly FaultKind[] {
    const { kinds = FAULT_KINDS } = this.#options;
    return kinds.filter((kind) => this.#missing[kind] === undefined);
  }

  /** Why a kind cannot strike here. */
  get #missing(): Readonly<Partial<Record<FaultKind, string>>> {
    const { smallDiskMissing } = this.#cluster;
    const { workers = 1 } = this.#options;
    return {
      ...(smallDiskMissing !== undefined && { full_disk: smallDiskMissing }),
      ...(workers === 1 && { kill_worker: "a replica is one process" }),
    };
  }

  /** The run can stop: a writer or a replica has ended, or a writer makes no progress. */
  #isLost(load: Load, memory: MemoryWatch): boolean {
    return load.failures.length + this.#problems.length + memory.problems.length > 0;
  }

  async #step({ calmMs, faults }: Step, load: Load): Promise<void> {
    await delay(calmMs);
    const what = faults.map(nameOf).join(" + ");
    this.#progress.struck(what);
    // Each fault on its own: the strike of one may need the heal of the other.
    await Promise.all(faults.map((fault) => this.#strike(fault, load)));
    await this.#untilAllGetThrough(what);
  }

  async #strike(fault: PlannedFault, load: Load): Promise<void> {
    const name = nameOf(fault);
    this.#weather.strikes(name);
    this.#struck.set(fault.kind, (this.#struck.get(fault.kind) ?? 0) + 1);
    try {
      const heal = await STRIKES[fault.kind](
        {
          cluster: this.#cluster,
          sessionIds: load.sessionIds,
          brimsAhead: () => load.brimsAhead(),
          imported: this.#imported,
        },
        fault,
      );
      await delay(fault.holdMs);
      await heal();
    } catch (error) {
      this.#problems.push(`${name}: ${error instanceof Error ? error.message : String(error)}`);
    }
    this.#weather.healed(name);
  }

  async #untilAllGetThrough(what: string): Promise<void> {
    const sinceMs = performance.now();
    const all = (): boolean => this.#progress.waitingSince(sinceMs).length === 0;
    const isSo = await this.#weather.untilInCalm(all, RECOVERY_LIMIT_MS);
    this.#longestRecoveryMs = Math.max(this.#longestRecoveryMs, performance.now() - sinceMs);
    if (isSo) return;
    const who = this.#progress.waitingSince(sinceMs).join("; ");
    const problem = `nothing got through ${RECOVERY_LIMIT_MS} ms after ${what}: ${who}`;
    this.#weather.note(problem);
    this.#problems.push(problem);
  }

  #result(of: {
    readonly load: Load;
    readonly evidence: Evidence;
    readonly problems: readonly string[];
    readonly memoryMib: Readonly<Record<string, number>>;
  }): RunResult {
    const { load, evidence, problems, memoryMib } = of;
    const shown = problems.slice(0, VIOLATIONS_MAX).map((what, at) => ({
      what,
      excerpt: at < EXCERPTS_MAX ? excerptOf(what, load.history, evidence.witness) : [],
    }));
    const more = problems.length - shown.length;
    return {
      seed: this.#options.seed,
      seconds: this.#options.seconds,
      violations: more > 0 ? [...shown, { what: `and ${more} more`, excerpt: [] }] : shown,
      operations: operationsOf(load, evidence),
      faults: Object.fromEntries(this.#struck),
      skipped: Object.entries(this.#missing).map(([kind, why]) => `${kind}: ${why}`),
      longestUnavailable: this.#progress.longest,
      longestRecoveryMs: Math.round(this.#longestRecoveryMs),
      memoryMib,
      countsChecked: evidence.miscounted !== undefined,
      timeline: this.#weather.timeline,
    };
  }
}

export function lineTime(atMs: number): string {
  return `${(atMs / 1_000).toFixed(3).padStart(9)} s`;
}
