/**
 * The PostgreSQL that the service brings along, as a unit: with no DATABASE_URL, one command starts
 * everything, on the engine and the driver that production has too.
 *
 *   start ─► lock DATA_DIR ─► choose place ─► stop leftover ─► make cluster once ─► launch ─► ready
 *                                                                                     ▲        │ died
 *                                                                                     └ delay ◄┘
 *   stop ──► fast stop, else immediate, else kill ─► give the lock back
 *
 * It is one function, `live`, that goes through these in order and undoes them in its `finally`s; `stop`
 * aborts its signal and waits for its end, in whatever state it is. Each step may also find what a
 * killed service left at that very step: lock.ts, place.ts, leftover.ts, cluster.ts say how.
 *
 * A server that dies by itself is started again on the same port, for as long as the unit is not
 * stopped: the pool's reconnect then finds it, and a full disk needs no second restart by hand once it
 * has room again. The bound is the delay between two tries.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { type Clock, systemClock } from "../../base/clock.ts";
import { ServiceError } from "../../base/errors.ts";
import type { Unit } from "../../base/lifecycle.ts";
import { findBinaries, programPath, usableBinaries } from "./binaries.ts";
import { DATABASE, ROLE, openCluster, pgDataOf } from "./cluster.ts";
import type { EmbeddedLog } from "./embedded-log.ts";
import { freePort } from "./free-port.ts";
import { clearLeftover } from "./leftover.ts";
import { EMBEDDED_LIMITS, type EmbeddedLimits } from "./limits.ts";
import { lockDataDir } from "./lock.ts";
import { choosePlace, linkCluster, openDataDir } from "./place.ts";
import { refusal } from "./refusal.ts";
import { LaunchError, type LaunchOptions, type Server, launch } from "./server.ts";

export interface EmbeddedPostgres extends Unit {
  /** Connection URL, valid after start. */
  readonly url: string;
}

export interface EmbeddedOptions {
  readonly dataDir: string;
  readonly log: EmbeddedLog;
  readonly clock?: Clock;
  readonly limits?: Partial<EmbeddedLimits>;
  /** As root: the user the server runs as, made when there is none. */
  readonly userName?: string;
  /** As root: where clusters go whose DATA_DIR that user cannot enter. */
  readonly systemDir?: string;
}

type Context = Required<Omit<EmbeddedOptions, "limits">> & {
  readonly limits: EmbeddedLimits;
  readonly signal: AbortSignal;
};

interface Run {
  readonly abort: AbortController;
  /** Settles when nothing of this run is left. */
  readonly ended: Promise<void>;
  isReady: boolean;
}

/** Free ports that turned out to be taken when the server wanted to listen. */
const PORTS_TRIED_MAX = 5;

export function createEmbeddedPostgres(options: EmbeddedOptions): EmbeddedPostgres {
  let url: string | undefined;
  let run: Run | undefined;

  return {
    get url() {
      if (url === undefined) throw new Error("the embedded PostgreSQL was never started");
      return url;
    },
    start: async () => {
      if (run !== undefined) throw new Error("the embedded PostgreSQL is started already");
      const abort = new AbortController();
      const { promise: ready, resolve, reject } = Promise.withResolvers<string>();
      const ended = live(contextOf(options, abort.signal), resolve);
      const mine: Run = { abort, ended, isReady: false };
      run = mine;
      ended.catch(reject);
      try {
        url = await ready;
        mine.isReady = true;
      } catch (error) {
        if (run === mine) run = undefined; // Nothing of it is left, so start may be tried again.
        throw abort.signal.aborted ? stoppedWhileStarting(error) : error;
      }
    },
    stop: async () => {
      const ending = run;
      if (ending === undefined) return;
      ending.abort.abort();
      try {
        await ending.ended;
      } catch (error) {
        // A start that failed has told its own caller.
        if (ending.isReady && !isAbort(error)) throw error;
      } finally {
        if (run === ending) run = undefined;
      }
    },
  };
}

/** The whole life of a run; `ready` is told the URL. Resolves, or rejects, when nothing of it is left. */
async function live(context: Context, ready: (url: string) => void): Promise<void> {
  const { log, limits, clock, signal } = context;
  const beganMs = clock.monotonicMs();
  const found = await findBinaries();
  const dataDir = await openDataDir(context.dataDir);
  const lock = await lockDataDir(dataDir, { clock, log, signal, heartbeatMs: limits.heartbeatMs });
  try {
    const place = await choosePlace(dataDir, context);
    await clearLeftover(pgDataOf(place), { log, limits });
    signal.throwIfAborted();
    const binaries = await usableBinaries(found, { ...place, log });
    const cluster = await openCluster(place, { binaries, limits, signal });
    await linkCluster(dataDir, place);
    const postgresPath = programPath(binaries, "postgres");
    const first = await launchOnFreePort({
      ...place,
      ...cluster,
      postgresPath,
      log,
      limits,
      signal,
    });
    const tookMs = Math.round(clock.monotonicMs() - beganMs);
    const { version } = binaries;
    log.info(
      { dataDir, home: place.home, port: first.port, version, pid: first.server.pid, tookMs },
      "embedded_postgres_started",
    );
    ready(`postgres://${ROLE}:${cluster.password}@127.0.0.1:${first.port}/${DATABASE}`);
    await keepRunning(first.server, {
      ...place,
      ...cluster,
      postgresPath,
      ...context,
      port: first.port,
    });
  } finally {
    await lock.release();
  }
}

/** Until the signal; then the server is stopped, and only then does it resolve. */
async function keepRunning(first: Server, options: LaunchOptions): Promise<void> {
  const { log, signal } = options;
  const { promise: aborted, resolve } = Promise.withResolvers<"aborted">();
  signal.addEventListener("abort", () => resolve("aborted"), { once: true });
  if (signal.aborted) resolve("aborted");

  for (let server = first; ; ) {
    const exit = await Promise.race([aborted, server.exited]);
    if (signal.aborted) {
      log.info({ signal: await server.stop() }, "embedded_postgres_stopped");
      return;
    }
    log.warn({ pid: server.pid, exit }, "embedded_postgres_died");
    server = await relaunch(options);
    log.warn({ pid: server.pid, port: options.port }, "embedded_postgres_restarted");
  }
}

/** Rejects only when the unit is stopped meanwhile. */
async function relaunch(options: LaunchOptions): Promise<Server> {
  const { limits, log, signal } = options;
  for (let delayMs = limits.restartDelayMsMin; ; delayMs *= 2) {
    await sleep(Math.min(delayMs, limits.restartDelayMsMax), undefined, { signal });
    try {
      return await launch(options);
    } catch (error) {
      signal.throwIfAborted();
      log.warn({ err: error }, "embedded_postgres_restart_failed");
    }
  }
}

async function launchOnFreePort(
  options: Omit<LaunchOptions, "port">,
): Promise<{ readonly server: Server; readonly port: number }> {
  const { limits, log, signal } = options;
  const limit = AbortSignal.timeout(limits.startMs);
  let delayMs = limits.restartDelayMsMin;
  for (let portsTried = 1; ; ) {
    const port = await freePort();
    try {
      return { port, server: await launch({ ...options, port }) };
    } catch (error) {
      if (!(error instanceof LaunchError)) throw error;
      const mayTryAgain = {
        port_taken: portsTried < PORTS_TRIED_MAX,
        memory_in_use: !limit.aborted,
        other: false,
      };
      if (!mayTryAgain[error.failure]) throw refusal(error.message, error);
      if (error.failure === "port_taken") portsTried += 1;
      log.warn({ failure: error.failure }, "embedded_postgres_start_tried_again");
      await sleep(delayMs, undefined, { signal });
      delayMs = Math.min(2 * delayMs, limits.restartDelayMsMax);
    }
  }
}

function contextOf(options: EmbeddedOptions, signal: AbortSignal): Context {
  return {
    clock: systemClock,
    userName: "postgres",
    systemDir: "/var/lib/session-ledger",
    ...options,
    limits: { ...EMBEDDED_LIMITS, ...options.limits },
    signal,
  };
}

function isAbort(error: unknown): boolean {
  return error instanceof Error && error.name === "AbortError";
}

function stoppedWhileStarting(cause: unknown): ServiceError {
  const message = "the embedded PostgreSQL was stopped while it started";
  return new ServiceError("unavailable", "SHUTTING_DOWN", message, { cause });
}
