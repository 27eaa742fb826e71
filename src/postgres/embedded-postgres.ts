/**
 * The embedded PostgreSQL, as a unit. Without DATABASE_URL, one command starts everything, with the
 * same engine and driver as in production.
 *
 *   start ─► locate cluster ─► lock it ─► stop leftover ─► make it once ─► launch ─► ready
 *                                                                           ▲        │ died
 *                                                                           └ delay ◄┘
 *   stop ──► fast stop, else immediate, else kill ─► release the lock
 *
 * One function, `live`, runs these steps in order and undoes them in its `finally`s. `stop` aborts
 * its signal and waits for its end, in any state. Each step may find remains of a service that was
 * killed at that step: lock.ts, cluster-location.ts, server.ts and cluster.ts describe them.
 *
 * A server that dies without a stop is started again on the same port until the unit stops. So the
 * pool's reconnect finds it, and after a full disk no second manual restart is needed. The only
 * bound is the delay between two tries.
 */
import { statfs } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Backoff, backoffMs } from "@session-ledger/base/backoff";
import { ServiceError } from "@session-ledger/base/errors";
import type { Unit } from "../base/unit.ts";
import { findBinaries, programPath, usableBinaries } from "./binaries.ts";
import { connectionUrl, openCluster, pgDataOf } from "./cluster.ts";
import {
  clearLeftover,
  type EmbeddedLog,
  FAST_STOP_MS_MAX,
  launch,
  LaunchError,
  type LaunchFailure,
  type LaunchOptions,
  randomPort,
  type Server,
  START_MS_MAX,
} from "./server.ts";
import { lockCluster } from "./lock.ts";
import { linkCluster, locateCluster, openDataDir, SYSTEM_DIR } from "./cluster-location.ts";
import { refusal } from "./process.ts";

/** The delay before a failed start is tried again. */
const RESTART: Backoff = { minMs: 100, maxMs: 2_000 };
/** Starts on ports that other programs have. */
const PORTS_TRIED_MAX = 10;

interface Ready {
  /** Connection URL. */
  readonly url: string;
  /** The folder of its files. */
  readonly pgData: string;
}

/** The members of `Ready` are valid after start. */
type EmbeddedPostgres = Unit & Ready;

/** Of its disk, or that of its log. Rejects when the files of the database are gone. */
export async function freeBytesAt(pgData: string): Promise<number> {
  const places = ["PG_VERSION", "pg_wal"].map((name) => statfs(join(pgData, name)));
  const disks = await Promise.all(places).catch((cause: unknown) => {
    throw new Error(`DATA_DIR: the database in ${pgData} is gone`, { cause });
  });
  return Math.min(...disks.map(({ bavail, bsize }) => bavail * bsize));
}

interface EmbeddedOptions {
  readonly dataDir: string;
  readonly systemDir?: string;
  readonly log: EmbeddedLog;
  /** Called each time a server that ended on its own is up again. */
  readonly restarted?: () => void;
  readonly fastStopMs?: number;
}

const DEFAULTS = {
  restarted: () => undefined,
  fastStopMs: FAST_STOP_MS_MAX,
  systemDir: SYSTEM_DIR,
};

type Context = Required<EmbeddedOptions> & { readonly signal: AbortSignal };

interface ServerRun {
  readonly abort: AbortController;
  /** Settles when all resources of this run are released. */
  readonly ended: Promise<void>;
  isReady: boolean;
}

export function createEmbeddedPostgres(options: EmbeddedOptions): EmbeddedPostgres {
  let ready: Ready | undefined;
  let run: ServerRun | undefined;

  function readyOne(): Ready {
    if (ready === undefined) throw new Error("the embedded PostgreSQL was never started");
    return ready;
  }
  return {
    get url() {
      return readyOne().url;
    },
    get pgData() {
      return readyOne().pgData;
    },
    start: async () => {
      if (run !== undefined) throw new Error("the embedded PostgreSQL is started already");
      const abort = new AbortController();
      const { promise: becameReady, resolve, reject } = Promise.withResolvers<Ready>();
      const ended = live({ ...DEFAULTS, ...options, signal: abort.signal }, resolve);
      const mine: ServerRun = { abort, ended, isReady: false };
      run = mine;
      ended.catch(reject);
      try {
        ready = await becameReady;
        mine.isReady = true;
      } catch (error) {
        // All of its resources are released, so start may be tried again.
        if (run === mine) run = undefined;
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
        // A failed start has reported its error to its own caller.
        const isAbort = error instanceof Error && error.name === "AbortError";
        if (ending.isReady && !isAbort) throw error;
      } finally {
        if (run === ending) run = undefined;
      }
    },
  };
}

/** The life of a run; calls `ready` with the server. Settles when all resources are released. */
async function live(context: Context, ready: (server: Ready) => void): Promise<void> {
  const { log, signal, fastStopMs, restarted } = context;
  const beganMs = performance.now();
  const found = await findBinaries();
  const dataDir = await openDataDir(context.dataDir, signal);
  const location = await locateCluster(dataDir, context);
  const { home, clusterDir, account } = location;
  const lock = await lockCluster({ home, dataDir });
  try {
    const pgData = pgDataOf(location);
    await clearLeftover(pgData, context);
    signal.throwIfAborted();
    const binaries = await usableBinaries(found, { account, home, log });
    const password = await openCluster(location, { binaries, signal });
    await linkCluster(dataDir, location);
    const postgresPath = programPath(binaries, "postgres");
    const options = { postgresPath, pgData, account, log, fastStopMs, signal };
    const { server, port } = await launchOnRandomPort(options);
    const { version } = binaries;
    const tookMs = Math.round(performance.now() - beganMs);
    log.info(
      { dataDir, clusterDir, port, version, pid: server.pid, tookMs },
      "embedded_postgres_started",
    );
    ready({ url: connectionUrl({ password, port }), pgData });
    await keepRunning(server, { ...options, port, restarted });
  } finally {
    await lock.release();
  }
}

async function launchOnRandomPort(
  options: Omit<LaunchOptions, "port">,
): Promise<{ readonly server: Server; readonly port: number }> {
  const limit = AbortSignal.timeout(START_MS_MAX);
  for (let tries = 1; ; tries += 1) {
    const port = randomPort();
    try {
      return { port, server: await launch({ ...options, port }) };
    } catch (error) {
      if (!(error instanceof LaunchError)) throw error;
      const mayTryAgain: Readonly<Record<LaunchFailure, boolean>> = {
        port_taken: tries < PORTS_TRIED_MAX,
        memory_in_use: !limit.aborted,
        other: false,
      };
      if (!mayTryAgain[error.failure]) throw refusal(error.message, error);
      options.log.warn({ failure: error.failure }, "embedded_postgres_start_tried_again");
      await pause(tries, options.signal);
    }
  }
}

/** Runs until the signal; then stops the server, and only then resolves. */
async function keepRunning(
  first: Server,
  options: LaunchOptions & { readonly restarted: () => void },
): Promise<void> {
  const { log, signal, port, restarted } = options;
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
    log.warn({ pid: server.pid, port }, "embedded_postgres_restarted");
    restarted();
  }
}

/** Rejects only when the unit is stopped meanwhile. */
async function relaunch(options: LaunchOptions): Promise<Server> {
  for (let tries = 1; ; tries += 1) {
    await pause(tries, options.signal);
    try {
      await clearLeftover(options.pgData, options);
      return await launch(options);
    } catch (error) {
      options.signal.throwIfAborted();
      options.log.warn({ err: error }, "embedded_postgres_restart_failed");
    }
  }
}

async function pause(tries: number, signal: AbortSignal): Promise<void> {
  await sleep(backoffMs(RESTART, tries, Math.random()), undefined, { signal });
}

function stoppedWhileStarting(cause: unknown): ServiceError {
  const message = "the embedded PostgreSQL was stopped while it started";
  return new ServiceError("unavailable", "SHUTTING_DOWN", message, { cause });
}
