/** One run of the server: its settings, its start, its log, and its stop. */
import { type ChildProcess, spawn } from "node:child_process";
import { randomInt, randomUUID } from "node:crypto";
import { lchown, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { isDoneWithin } from "@session-ledger/base/timers";
import { type Account, argumentsOf, hasCode, spawnAs, unlessMissing } from "./process.ts";

/** The methods of a logger that this folder needs; pino has this shape. */
export interface EmbeddedLog {
  info(fields: object, event: string): void;
  warn(fields: object, event: string): void;
}

/** From spawn to "ready": includes the replay of at most max_wal_size after a crash. */
export const START_MS_MAX = 300_000;
/** A fast stop rolls transactions back and writes a checkpoint; then an immediate one follows. */
export const FAST_STOP_MS_MAX = 10_000;
/** After SIGKILL, until the kernel has removed the process. */
const KILL_MS_MAX = 5_000;

/**
 * The settings of the embedded server. They are arguments, which win over postgresql.conf and over
 * ALTER SYSTEM. So the guarantees (an acknowledged row is on disk; only this machine can connect)
 * cannot be configured away, and an upgrade of the service applies its settings to old clusters
 * too. Users who need other settings run their own PostgreSQL, with DATABASE_URL.
 */
const SETTINGS: Readonly<Record<string, string>> = {
  // "Acknowledged" means "on disk".
  fsync: "on",
  synchronous_commit: "on",
  full_page_writes: "on",

  // See cluster.ts for the rules of access.
  listen_addresses: "127.0.0.1",
  unix_socket_directories: "",
  password_encryption: "scram-sha-256",

  // An ingest service writes all day, and after every checkpoint each changed page is logged in
  // full once. So checkpoints are rarer than by default (1 GB, 5 min). The price is disk, and a
  // longer replay after a crash. These values and shared_buffers are educated guesses, not
  // measured: the machine is also a developer's.
  shared_buffers: "256MB",
  max_wal_size: "2GB",
  checkpoint_timeout: "10min",

  // The log goes to our log, in one language. `terse` and `panic` keep keys and statements out of
  // it, which contain messages to an agent. The caller gets every error anyway.
  logging_collector: "off",
  log_destination: "stderr",
  log_line_prefix: "",
  log_error_verbosity: "terse",
  log_min_error_statement: "panic",
  lc_messages: "C",
  log_timezone: "UTC",
  timezone: "UTC",
};

export function serverArguments(options: {
  readonly pgData: string;
  readonly port: number;
}): readonly string[] {
  const settings = Object.entries({ ...SETTINGS, port: String(options.port) });
  return ["-D", options.pgData, ...settings.flatMap(([name, value]) => ["-c", `${name}=${value}`])];
}

/**
 * Below the ports that Linux (from 32768) and macOS (from 49152) give to outgoing connections. A
 * server on such a port loses it during a restart: any connection of the machine may get the port,
 * even one of our own pool, which is then connected to itself.
 */
const PORTS = [20_000, 32_768] as const;

/** Another program may have it: then `launch` fails with `port_taken`. */
export function randomPort(): number {
  return randomInt(...PORTS);
}

/** One run of the server, from ready to its end. */
export interface Server {
  readonly pid: number;
  /** Resolves when the postmaster has ended, for any reason; with the exit code or the signal. */
  readonly exited: Promise<string>;
  /** Resolves when all its processes are gone, with the signal that ended them. */
  stop(): Promise<NodeJS.Signals>;
}

export interface LaunchOptions {
  readonly postgresPath: string;
  readonly pgData: string;
  readonly port: number;
  readonly account: Account | undefined;
  readonly log: EmbeddedLog;
  readonly fastStopMs: number;
  readonly signal: AbortSignal;
}

/** The reason why a server ended before it was ready, if the caller can react to it. */
export type LaunchFailure = "port_taken" | "memory_in_use" | "other";

export class LaunchError extends Error {
  override readonly name = "LaunchError";
  readonly failure: LaunchFailure;

  constructor(failure: LaunchFailure, message: string) {
    super(message);
    this.failure = failure;
  }
}

const POLL_MS = 20;
const LINES_MAX = 20;
const LINE_CHARS_MAX = 4_096;

/** Resolves when the server is ready. When it rejects, no process of it runs any more. */
export async function launch(options: LaunchOptions): Promise<Server> {
  const child = spawn(options.postgresPath, serverArguments(options), {
    ...spawnAs(options.account),
    stdio: ["ignore", "ignore", "pipe"],
  });
  const lines = forwardLines(child.stderr, options.log);
  const exited = exitOf(child);
  const postmaster = childPostmaster(child);
  const stop = (): Promise<NodeJS.Signals> => shutDown(postmaster, options.fastStopMs);
  const limit = AbortSignal.timeout(START_MS_MAX);
  const { pgData, signal } = options;
  try {
    // pg_ctl waits for it too. A failed connection would write a line to the log.
    while (child.pid === undefined || (await serverState(pgData, child.pid)) !== "ready") {
      signal.throwIfAborted();
      if (limit.aborted)
        throw new LaunchError("other", `PostgreSQL was not ready in ${START_MS_MAX} ms`);
      const exit = await Promise.race([exited, sleep(POLL_MS)]);
      if (exit === undefined) continue;
      await postmaster.exitsWithin(KILL_MS_MAX); // Its last lines are still in the pipe.
      throw new LaunchError(failureOf(lines), `PostgreSQL did not start: ${lines.join("; ")}`);
    }
    return { pid: postmaster.pid, exited, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

function exitOf(child: ChildProcess): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  child.once("exit", (code, signal) => resolve(signal ?? `code ${code}`));
  child.once("error", (error) => resolve(error.message)); // The program could not be spawned.
  return promise;
}

/** "Gone": the log pipe is closed, which every process of the server inherits. */
function childPostmaster(child: ChildProcess): Postmaster {
  const { promise: closed, resolve } = Promise.withResolvers<true>();
  child.once("close", () => resolve(true));
  return {
    pid: child.pid ?? -1,
    signal: (name) => void child.kill(name),
    exitsWithin: (ms) => isDoneWithin(ms, closed),
  };
}

/** Sends every line to our log, and keeps the newest: they name the reason of a failure. */
function forwardLines(stderr: Readable, log: EmbeddedLog): string[] {
  const newest: string[] = [];
  createInterface({ input: stderr }).on("line", (text) => {
    const line = text.slice(0, LINE_CHARS_MAX);
    newest.push(line);
    if (newest.length > LINES_MAX) newest.shift();
    const isTrouble = /^(WARNING|ERROR|FATAL|PANIC):/.test(line);
    log[isTrouble ? "warn" : "info"]({ line }, "embedded_postgres_log");
  });
  return newest;
}

function failureOf(lines: readonly string[]): LaunchFailure {
  if (lines.some((line) => line.includes("could not create any TCP/IP sockets")))
    return "port_taken";
  // Backends that outlived a killed postmaster; they end soon without help.
  if (lines.some((line) => line.includes("pre-existing shared memory block")))
    return "memory_in_use";
  return "other";
}

/** A running postmaster: our child, or one that an earlier process left. */
interface Postmaster {
  readonly pid: number;
  signal(name: NodeJS.Signals): void;
  /** True as soon as it is gone, false after `ms`. */
  exitsWithin(ms: number): Promise<boolean>;
}

/**
 * Stops a server, gently at first; returns the signal that ended it. SIGINT is PostgreSQL's fast
 * stop, SIGQUIT its immediate one (the next start replays the log); pg_ctl sends the same two.
 */
async function shutDown(postmaster: Postmaster, fastStopMs: number): Promise<NodeJS.Signals> {
  const steps = [
    ["SIGINT", fastStopMs],
    // An immediate stop writes nothing, and no row is lost: the next start replays the log. The limit
    // is above the 5 s after which a postmaster kills a backend that ignores it.
    ["SIGQUIT", 6_000],
    ["SIGKILL", KILL_MS_MAX],
  ] as const;
  for (const [signal, ms] of steps) {
    postmaster.signal(signal);
    if (await postmaster.exitsWithin(ms)) return signal;
  }
  throw new Error(`PostgreSQL process ${postmaster.pid} does not end, not even by SIGKILL`);
}

/** In it a server describes itself: one fact per line, the pid first. */
const PID_FILE = "postmaster.pid";
/** The lines of the port and of the state ("starting", "ready", "stopping"), counted from 0. */
const PORT_LINE = 3;
const STATE_LINE = 7;

/** Undefined when no server runs and the last one has ended normally. */
async function readPidFile(pgData: string): Promise<readonly string[] | undefined> {
  return (await readFile(join(pgData, PID_FILE), "utf8").catch(unlessMissing))?.split("\n");
}

export async function serverState(pgData: string, pid: number): Promise<string | undefined> {
  const lines = await readPidFile(pgData);
  return Number(lines?.[0]) === pid ? lines?.[STATE_LINE]?.trim() : undefined;
}

/** The port of a server that takes connections; undefined also when a killed server left its file. */
export async function readyPort(pgData: string): Promise<number | undefined> {
  const lines = await readPidFile(pgData);
  if (lines?.[STATE_LINE]?.trim() !== "ready") return undefined;
  return (await isServerOf(Number(lines[0]), pgData)) ? Number(lines[PORT_LINE]) : undefined;
}

/**
 * Handles the remains of a killed service in the cluster, whose lock we hold. A server that still
 * runs is stopped and never adopted: it is not our child, may have another version, port or
 * configuration, and its log has no reader. Every committed row stays.
 *
 * PostgreSQL replaces the postmaster.pid of a dead server, unless its pid answers a signal and
 * belongs to the same user: another program, or the dead server before its parent has reaped it.
 * Then it refuses to start. The file also names the shared memory, which shows whether orphaned
 * backends still write, so it is not deleted. Only its pid is replaced by our own: CreateLockFile
 * (miscinit.c) takes the pid of its parent for stale, and still checks the memory.
 */

export async function clearLeftover(
  pgData: string,
  options: { readonly log: EmbeddedLog; readonly fastStopMs: number },
): Promise<void> {
  const lines = await readPidFile(pgData);
  if (lines === undefined) return;
  // Negative when a single-user server wrote it.
  const pid = Math.abs(Number.parseInt(lines[0] ?? "", 10));
  if (!(pid > 0)) {
    // The file was cut off during a write: it names no shared memory either.
    await rm(join(pgData, PID_FILE), { force: true });
    return;
  }
  if (await isServerOf(pid, pgData)) {
    const signal = await shutDown(strangerOf(pid, pgData), options.fastStopMs);
    options.log.warn({ pid, signal }, "embedded_postgres_leftover_stopped");
    // The file is gone with its server, unless the server was killed.
    return clearLeftover(pgData, options);
  }
  if (pid === process.pid) return;
  await replacePid(pgData, lines);
  options.log.info({ pid }, "embedded_postgres_stale_pid_replaced");
}

/** The first arguments are always these (`serverArguments`); some systems join them. */
async function isServerOf(pid: number, pgData: string): Promise<boolean> {
  const text = (await argumentsOf(pid))?.join(" ") ?? "";
  return text.includes(`postgres -D ${pgData} -c `);
}

function strangerOf(pid: number, pgData: string): Postmaster {
  return {
    pid,
    signal: (name) => {
      try {
        process.kill(pid, name);
      } catch (error) {
        if (!hasCode(error, "ESRCH")) throw error;
      }
    },
    exitsWithin: async (ms) => {
      const limit = AbortSignal.timeout(ms);
      while (!limit.aborted) {
        if (!(await isServerOf(pid, pgData))) return true;
        await sleep(POLL_MS);
      }
      return false;
    },
  };
}

/** By rename, so that a kill leaves one complete file or the other. */
async function replacePid(pgData: string, lines: readonly string[]): Promise<void> {
  const path = join(pgData, PID_FILE);
  const draft = `${path}.${randomUUID()}`;
  const { uid, gid } = await stat(path);
  await writeFile(draft, [process.pid, ...lines.slice(1)].join("\n"), { flag: "wx", mode: 0o600 });
  await lchown(draft, uid, gid);
  await rename(draft, path);
}
