/**
 * Servers under measurement, as processes of their own. Each leads a process group, so that Ctrl-C in
 * a terminal reaches only the benchmark, which then stops them in order: a service that gets a second
 * signal ends at once, and its embedded PostgreSQL would outlive it.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { Bench } from "./bench.ts";

const START_LIMIT_MS = 60_000;
/** A service that is asked to stop waits 10 s for calls at most, and then for its database. */
const STOP_LIMIT_MS = 20_000;

export interface StartedProcess<T> {
  readonly pid: number;
  readonly ready: T;
  /** From the call of exec until it was ready. */
  readonly readyMs: number;
  /** SIGTERM, then SIGKILL; resolves when it is gone. Does nothing a second time. */
  stop(): Promise<void>;
}

export interface ProcessOptions<T> {
  /** Of Node, next to this file; or the path of a program. */
  readonly script: URL | string;
  readonly nodeArgs?: readonly string[];
  readonly args?: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Called with every line of JSON that it prints, until it returns a value. */
  readonly readyBy: (line: unknown) => T | undefined;
  /** How long that may take; a minute unless it is said. */
  readonly readyLimitMs?: number;
}

export async function startProcess<T>(
  bench: Bench,
  options: ProcessOptions<T>,
): Promise<StartedProcess<T>> {
  bench.signal.throwIfAborted();
  const { script, nodeArgs = [], args = [], readyBy, readyLimitMs = START_LIMIT_MS } = options;
  const beganMs = performance.now();
  const [program, ...first] =
    typeof script === "string" ? [script] : [process.execPath, ...nodeArgs, fileURLToPath(script)];
  const child = spawn(program, [...first, ...args], {
    env: { ...process.env, ...options.env },
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  const ended = once(child, "exit");
  const stop = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGTERM");
    const limit = setTimeout(() => child.kill("SIGKILL"), STOP_LIMIT_MS);
    await ended;
    clearTimeout(limit);
  };
  bench.undo.defer(stop);
  const lines: string[] = [];
  createInterface({ input: child.stderr }).on("line", (line) => lines.push(line));
  const { promise: ready, resolve, reject } = Promise.withResolvers<T>();
  createInterface({ input: child.stdout }).on("line", (line) => {
    lines.push(line);
    const answer = readyBy(parsed(line));
    if (answer !== undefined) resolve(answer);
  });
  const fail = (why: string): void =>
    reject(new Error(`${String(script)} ${why}:\n${lines.join("\n")}`));
  child.once("exit", (code) => fail(`ended with ${code}`));
  const abort = (): void => reject(bench.signal.reason);
  bench.signal.addEventListener("abort", abort, { once: true });
  const limit = setTimeout(() => fail("is not ready in time"), readyLimitMs);
  try {
    const answer = await ready;
    return { pid: child.pid ?? -1, ready: answer, readyMs: performance.now() - beganMs, stop };
  } finally {
    clearTimeout(limit);
    bench.signal.removeEventListener("abort", abort);
  }
}

function parsed(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}
