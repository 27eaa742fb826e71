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
import { statfs } from "node:fs/promises";
import { join } from "node:path";
import { type Clock, systemClock } from "../base/clock.ts";
import { ServiceError } from "../base/errors.ts";
import type { Unit } from "../base/unit.ts";
import { type Binaries, findBinaries, programPath, usableBinaries } from "./binaries.ts";
import { connectionUrl, openCluster, pgDataOf } from "./cluster.ts";
import type { EmbeddedLog } from "./embedded-log.ts";
import { clearLeftover } from "./leftover.ts";
import { EMBEDDED_LIMITS, type EmbeddedLimits } from "./limits.ts";
import { lockDataDir } from "./lock.ts";
import { type Place, choosePlace, linkCluster, openDataDir } from "./place.ts";
import { keepRunning, launchOnFreePort } from "./supervise.ts";

export interface EmbeddedPostgres extends Unit {
  /** Connection URL, valid after start. */
  readonly url: string;
  /**
   * Of its disk, and of that of its log where it is another. Rejects when the files of the database are
   * gone: a server that has them open still answers.
   */
  freeBytes(): Promise<number>;
}

export interface EmbeddedOptions {
  readonly dataDir: string;
  readonly log: EmbeddedLog;
  /** Told each time a server that ended by itself is up again. */
  readonly restarted?: () => void;
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

interface Ready {
  readonly url: string;
  readonly pgData: string;
}

interface Run {
  readonly abort: AbortController;
  /** Settles when nothing of this run is left. */
  readonly ended: Promise<void>;
  isReady: boolean;
}

export function createEmbeddedPostgres(options: EmbeddedOptions): EmbeddedPostgres {
  let ready: Ready | undefined;
  let run: Run | undefined;

  function readyOne(): Ready {
    if (ready === undefined) throw new Error("the embedded PostgreSQL was never started");
    return ready;
  }
  return {
    get url() {
      return readyOne().url;
    },
    freeBytes: async () => {
      const { pgData } = readyOne();
      const places = ["PG_VERSION", "pg_wal"].map((name) => statfs(join(pgData, name)));
      const disks = await Promise.all(places).catch((cause: unknown) => {
        throw new Error(`DATA_DIR: the database in ${pgData} is gone`, { cause });
      });
      return Math.min(...disks.map(({ bavail, bsize }) => bavail * bsize));
    },
    start: async () => {
      if (run !== undefined) throw new Error("the embedded PostgreSQL is started already");
      const abort = new AbortController();
      const { promise: becameReady, resolve, reject } = Promise.withResolvers<Ready>();
      const ended = live(contextOf(options, abort.signal), resolve);
      const mine: Run = { abort, ended, isReady: false };
      run = mine;
      ended.catch(reject);
      try {
        ready = await becameReady;
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

/** The whole life of a run; `ready` is told of the server. Resolves, or rejects, when nothing of it is left. */
async function live(context: Context, ready: (server: Ready) => void): Promise<void> {
  const beganMs = context.clock.monotonicMs();
  const found = await findBinaries();
  const dataDir = await openDataDir(context.dataDir, context);
  await whileLocked(dataDir, context, async () => {
    const place = await choosePlace(dataDir, context);
    const run = (): Promise<void> =>
      runCluster({ ...context, dataDir, place, found, beganMs }, ready);
    if (place.home === dataDir) return run();
    // A copy of DATA_DIR is another directory with a link to the same cluster. As root its home is ours
    // to write in; for others only the cluster is, and it is there, or there would be no link.
    const guarded = place.account === undefined ? place.clusterDir : place.home;
    return whileLocked(await openDataDir(guarded, context), context, run);
  });
}

async function whileLocked(
  directory: string,
  { clock, log, signal, limits }: Context,
  run: () => Promise<void>,
): Promise<void> {
  const { heartbeatMs } = limits;
  const lock = await lockDataDir(directory, { clock, log, signal, heartbeatMs });
  try {
    await run();
  } finally {
    await lock.release();
  }
}

async function runCluster(
  context: Context & { readonly place: Place; readonly found: Binaries; readonly beganMs: number },
  ready: (server: Ready) => void,
): Promise<void> {
  const { dataDir, place, log, limits, clock, signal } = context;
  await clearLeftover(pgDataOf(place), { log, limits });
  signal.throwIfAborted();
  const binaries = await usableBinaries(context.found, { ...place, log });
  const { password, pgData } = await openCluster(place, { binaries, limits, signal });
  await linkCluster(dataDir, place);
  const postgresPath = programPath(binaries, "postgres");
  const options = { postgresPath, pgData, account: place.account, log, limits, signal };
  const { server, port } = await launchOnFreePort(options);
  const { version } = binaries;
  const tookMs = Math.round(clock.monotonicMs() - context.beganMs);
  const { clusterDir } = place;
  log.info(
    { dataDir, clusterDir, port, version, pid: server.pid, tookMs },
    "embedded_postgres_started",
  );
  ready({ url: connectionUrl({ password, port }), pgData });
  await keepRunning(server, { ...options, port, restarted: context.restarted });
}

function contextOf(options: EmbeddedOptions, signal: AbortSignal): Context {
  return {
    clock: systemClock,
    restarted: () => undefined,
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
