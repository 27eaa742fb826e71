import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { isDoneWithin } from "../base/timers.ts";
import type { EmbeddedLog } from "./embedded-log.ts";
import type { EmbeddedLimits } from "./limits.ts";
import { serverState } from "./pid-file.ts";
import { type Account, spawnAs } from "./program.ts";
import { serverArguments } from "./settings.ts";
import { type Postmaster, shutDown } from "./shutdown.ts";

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
  readonly limits: EmbeddedLimits;
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
const LINES_KEPT = 20;
const LINE_CHARS_MAX = 4_096;

/**
 * Spawns the server and resolves when it is ready. When it rejects, no process of it runs any more.
 */
export async function launch(options: LaunchOptions): Promise<Server> {
  const child = spawn(options.postgresPath, serverArguments(options), {
    ...spawnAs(options.account),
    stdio: ["ignore", "ignore", "pipe"],
  });
  const lines = forwardLines(child.stderr, options.log);
  const exited = exitOf(child);
  const postmaster = childPostmaster(child);
  try {
    await untilReady(child, { exited, ...options });
  } catch (error) {
    if (error !== ENDED) {
      await shutDown(postmaster, options.limits);
      throw error;
    }
    await postmaster.goneWithin(options.limits.killMs); // Its last lines are still in the pipe.
    throw new LaunchError(failureOf(lines), `PostgreSQL did not start: ${lines.join("; ")}`);
  }
  return { pid: postmaster.pid, exited, stop: () => shutDown(postmaster, options.limits) };
}

/** Thrown only inside launch: the server ended before it was ready. */
const ENDED = new Error("ended");

async function untilReady(
  child: ChildProcess,
  options: LaunchOptions & { readonly exited: Promise<string> },
): Promise<void> {
  const limit = AbortSignal.timeout(options.limits.startMs);
  for (;;) {
    options.signal.throwIfAborted();
    if (limit.aborted) {
      throw new LaunchError("other", `PostgreSQL was not ready in ${options.limits.startMs} ms`);
    }
    // pg_ctl waits for the same state. A connection would prove it too, but each failed one would
    // write a log line.
    if (child.pid !== undefined && (await serverState(options.pgData, child.pid)) === "ready")
      return;
    const exit = await Promise.race([options.exited, sleep(POLL_MS)]);
    if (exit !== undefined) throw ENDED;
  }
}

function exitOf(child: ChildProcess): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  child.once("exit", (code, signal) => resolve(signal ?? `code ${code}`));
  child.once("error", (error) => resolve(error.message)); // The program could not be spawned.
  return promise;
}

/**
 * "Gone" means that the log pipe is closed: every process of the server inherits it, so that proves
 * more than the end of the postmaster.
 */
function childPostmaster(child: ChildProcess): Postmaster {
  const { promise: closed, resolve } = Promise.withResolvers<true>();
  child.once("close", () => resolve(true));
  return {
    pid: child.pid ?? -1,
    signal: (name) => void child.kill(name),
    goneWithin: (ms) => isDoneWithin(ms, closed),
  };
}

/**
 * Sends every line to our log, and keeps the newest, because they name the reason of a failed
 * start.
 */
function forwardLines(stderr: Readable, log: EmbeddedLog): string[] {
  const kept: string[] = [];
  createInterface({ input: stderr }).on("line", (text) => {
    const line = text.slice(0, LINE_CHARS_MAX);
    kept.push(line);
    if (kept.length > LINES_KEPT) kept.shift();
    const isTrouble = /^(WARNING|ERROR|FATAL|PANIC):/.test(line);
    log[isTrouble ? "warn" : "info"]({ line }, "embedded_postgres_log");
  });
  return kept;
}

function failureOf(lines: readonly string[]): LaunchFailure {
  if (lines.some((line) => line.includes("could not create any TCP/IP sockets")))
    return "port_taken";
  // Backends that outlived a killed postmaster; they end soon without help.
  if (lines.some((line) => line.includes("pre-existing shared memory block")))
    return "memory_in_use";
  return "other";
}
