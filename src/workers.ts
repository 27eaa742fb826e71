/**
 * WORKERS: several processes that serve the same ports, for machines with several cores.
 *
 *   parent      embedded PostgreSQL, schema, retention, index of search, /metrics and /readyz of all
 *     ├─ worker 1 ┐ gRPC and HTTP. Each listens on the ports itself (SO_REUSEPORT), and the kernel gives each
 *     └─ worker n ┘ new connection to one of them.
 *
 *   forked ── its task ──► starting ──► serving ── stop ──► gone
 *      ▲                      └─── died ───┘
 *      └──── after a pause ───────┘  FAILURES_MAX in a row: the parent ends with the reason
 *
 * The workers find each other's commits as other instances do. Limits of the instance are divided among them
 * (shareOf in config/config.ts).
 */
import cluster, { type Worker } from "node:cluster";
import { AggregatorRegistry, type Registry } from "prom-client";
import { type Backoff, backoffMs } from "@session-ledger/base/backoff";
import { ServiceError } from "@session-ledger/base/errors";
import { within } from "@session-ledger/base/timers";
import type { Unit } from "./base/unit.ts";
import type { Log } from "./observability/log.ts";
import type { MetricObject } from "./observability/metrics.ts";

/** What a worker gets in addition to the settings. */
export interface WorkerTask {
  /** From 1. */
  readonly worker: number;
  readonly databaseUrl: string;
  /** The files of the embedded PostgreSQL; undefined with DATABASE_URL. */
  readonly pgData: string | undefined;
  /** `host:port`. The first worker takes free ports where the settings say so. */
  readonly grpc: string;
  readonly http: string;
}

type FromWorker =
  | { readonly kind: "serving"; readonly grpc: string; readonly http: string }
  /** Why it could not start; it ends. */
  | { readonly kind: "failed"; readonly failure: Pick<ServiceError, "code" | "reason" | "message"> }
  /** Its missing parts; empty: it is ready. */
  | { readonly kind: "missing"; readonly missing: readonly string[] }
  | { readonly kind: "metrics"; readonly id: number; readonly metrics: readonly MetricObject[] };

type ToWorker =
  | { readonly kind: "task"; readonly task: WorkerTask }
  | { readonly kind: "metrics"; readonly id: number }
  | { readonly kind: "stop" };

const RESTART: Backoff = { minMs: 100, maxMs: 5_000 };
/** Workers that died one after the other before they served. */
const FAILURES_MAX = 5;
/** Within it a worker answers a scrape. */
const METRICS_LIMIT_MS = 1_000;
/** Beyond its own limit of a stop. */
const STOP_GRACE_MS = 15_000;

interface WorkersParts {
  readonly log: Log;
  readonly count: number;
  /** Without its number; called when the database runs. */
  readonly task: () => Omit<WorkerTask, "worker">;
  readonly stopLimitMs: number;
  /** The metrics of the parent itself. */
  readonly metrics: () => Promise<readonly MetricObject[]>;
}

/** A worker by its number, in one process after another. */
interface WorkerSlot {
  readonly number: number;
  process: Worker | undefined;
  missing: readonly string[];
  /** Of the last scrape. */
  metrics: readonly MetricObject[];
}

export class Workers implements Unit {
  readonly #parts: WorkersParts;
  readonly #slots: readonly WorkerSlot[];
  readonly #asked = new Map<number, (metrics: readonly MetricObject[]) => void>();
  /** What workers that have ended had counted at their last scrape: a sum never falls. */
  #counted: Promise<readonly MetricObject[]> = Promise.resolve([]);
  readonly #failed = Promise.withResolvers<never>();
  #scrapes = 0;
  #failures = 0;
  #isStopping = false;
  /** Valid after the start. */
  addresses: { readonly grpc: string; readonly http: string } | undefined;

  constructor(parts: WorkersParts) {
    this.#parts = parts;
    this.#slots = Array.from({ length: parts.count }, (_, index) => ({
      number: index + 1,
      process: undefined,
      missing: ["it has not started"],
      metrics: [],
    }));
    this.#failed.promise.catch(() => undefined); // It may reject when nobody waits for it.
  }

  /** Rejects when no worker can be started any more. */
  get failed(): Promise<never> {
    return this.#failed.promise;
  }

  /** Empty while one worker is ready: the kernel gives new connections to those that listen. */
  get missing(): readonly string[] {
    if (this.#slots.some(({ missing }) => missing.length === 0)) return [];
    return this.#slots.flatMap(({ number, missing }) =>
      missing.map((one) => `worker ${number}: ${one}`),
    );
  }

  async start(): Promise<void> {
    // The arguments of the process are those of its workers.
    cluster.setupPrimary({ serialization: "advanced" });
    const [first, ...others] = this.#slots;
    if (first === undefined) return;
    this.addresses = await this.#fork(first);
    await Promise.all(others.map((slot) => this.#fork(slot)));
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    const limitMs = this.#parts.stopLimitMs + STOP_GRACE_MS;
    await Promise.all(this.#slots.map((slot) => end(slot.process, limitMs)));
  }

  /** Of all workers and the parent, added up. */
  async metricsText(): Promise<string> {
    await Promise.all(this.#slots.map((slot) => this.#scrape(slot)));
    const own = await this.#parts.metrics();
    const counted = await this.#counted;
    return sumOf([own, counted, ...this.#slots.map(({ metrics }) => metrics)]).metrics();
  }

  /** A worker that does not answer in time stays with its values of the last scrape. */
  async #scrape(slot: WorkerSlot): Promise<void> {
    const { process: worker } = slot;
    if (worker === undefined || !worker.isConnected()) return;
    this.#scrapes += 1;
    const id = this.#scrapes;
    const { promise, resolve } = Promise.withResolvers<readonly MetricObject[]>();
    this.#asked.set(id, resolve);
    send(worker, { kind: "metrics", id });
    const last = (): readonly MetricObject[] => slot.metrics;
    const metrics = await within(promise, { limitMs: METRICS_LIMIT_MS, onTimeout: last });
    this.#asked.delete(id);
    if (slot.process === worker) slot.metrics = metrics;
  }

  #countEnded(slot: WorkerSlot): void {
    const counters = slot.metrics.filter(({ type }) => COUNTERS.has(String(type)));
    slot.metrics = [];
    this.#counted = this.#counted.then((before) => sumOf([before, counters]).getMetricsAsJSON());
  }

  /** Resolves with the addresses of the worker when it serves; rejects when it has ended before. */
  #fork(slot: WorkerSlot): Promise<{ readonly grpc: string; readonly http: string }> {
    const { log, task } = this.#parts;
    const { number } = slot;
    const serving = Promise.withResolvers<{ readonly grpc: string; readonly http: string }>();
    const worker = cluster.fork();
    slot.process = worker;
    let failure: ServiceError | undefined;
    worker.on("message", (message: FromWorker) => {
      switch (message.kind) {
        case "serving":
          this.#failures = 0;
          return serving.resolve(message);
        case "failed": {
          const { code, reason, message: text } = message.failure;
          failure = new ServiceError(code, reason, text);
          return;
        }
        case "missing":
          slot.missing = message.missing;
          return;
        case "metrics":
          this.#asked.get(message.id)?.(message.metrics);
      }
    });
    worker.on("error", (err) => log.warn({ worker: number, err }, "worker_unreachable"));
    worker.once("exit", (code, signal) => {
      slot.process = undefined;
      slot.missing = ["it has ended"];
      this.#countEnded(slot);
      const how = signal ?? `exit code ${code}`;
      const message = `worker ${number} ended before it served (${how})`;
      serving.reject(failure ?? new Error(message));
      if (this.#isStopping) return;
      log.error({ worker: number, pid: worker.process.pid, how }, "worker_ended");
      if (this.addresses !== undefined) void this.#forkAgain(slot);
    });
    const given = { ...task(), ...this.addresses };
    send(worker, { kind: "task", task: { ...given, worker: number } });
    return serving.promise;
  }

  async #forkAgain(slot: WorkerSlot): Promise<void> {
    this.#failures += 1;
    if (this.#failures > FAILURES_MAX) {
      const message = `${FAILURES_MAX} workers ended one after the other before they served`;
      return this.#failed.reject(new Error(message));
    }
    const pauseMs = backoffMs(RESTART, this.#failures - 1, Math.random());
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
    if (this.#isStopping) return;
    // Its end is the next failure.
    await this.#fork(slot).then(
      () => this.#parts.log.info({ worker: slot.number }, "worker_restarted"),
      () => undefined,
    );
  }
}

/** Metrics that only grow, as prom-client names their types. */
const COUNTERS: ReadonlySet<string> = new Set(["counter", "histogram"]);

function sumOf(all: readonly (readonly MetricObject[])[]): Registry {
  return AggregatorRegistry.aggregate(all.map((metrics) => [...metrics]));
}

function send(worker: Worker, message: ToWorker): void {
  // A worker that has just ended takes no message, and its exit is handled.
  worker.send(message, () => undefined);
}

async function end(worker: Worker | undefined, limitMs: number): Promise<void> {
  if (worker === undefined) return;
  const ended = new Promise<true>((resolve) => worker.once("exit", () => resolve(true)));
  if (worker.isDead()) return;
  if (worker.isConnected()) send(worker, { kind: "stop" });
  const isEnded = await within(ended, { limitMs, onTimeout: () => false });
  if (!isEnded) worker.process.kill("SIGKILL");
}

/** The side of a worker: undefined in any other process. */
export class WorkerLink {
  readonly task: WorkerTask;
  readonly #ending: AbortController;

  private constructor(task: WorkerTask, ending: AbortController) {
    this.task = task;
    this.#ending = ending;
  }

  /** Resolves with the task of the parent. */
  static async open(): Promise<WorkerLink | undefined> {
    if (!cluster.isWorker) return undefined;
    const ending = new AbortController();
    process.once("disconnect", () => ending.abort()); // The parent has died.
    const { promise, resolve } = Promise.withResolvers<WorkerTask>();
    process.on("message", (message: ToWorker) => {
      if (message.kind === "task") resolve(message.task);
      if (message.kind === "stop") ending.abort();
    });
    return new WorkerLink(await promise, ending);
  }

  /** Aborted when the parent stops or has died. */
  get ending(): AbortSignal {
    return this.#ending.signal;
  }

  onScrape(metrics: () => Promise<readonly MetricObject[]>): void {
    process.on("message", (message: ToWorker) => {
      if (message.kind !== "metrics") return;
      const { id } = message;
      void metrics().then((found) => tell({ kind: "metrics", id, metrics: found }));
    });
  }

  serving(addresses: { readonly grpc: string; readonly http: string }): void {
    tell({ kind: "serving", ...addresses });
  }

  missing(missing: readonly string[]): void {
    tell({ kind: "missing", missing });
  }

  /** Resolves when the parent has the reason. */
  failed(error: unknown): Promise<void> {
    const { code, reason, message } = ServiceError.from(error);
    return new Promise((resolve) =>
      tell({ kind: "failed", failure: { code, reason, message } }, resolve),
    );
  }
}

function tell(message: FromWorker, sent = (): void => undefined): void {
  if (process.send === undefined) return sent();
  process.send(message, undefined, undefined, () => sent());
}
