import { type ChildProcessByStdio, type SpawnOptions, spawn } from "node:child_process";
import type { Readable } from "node:stream";

/** The user PostgreSQL runs as when the service is root, which PostgreSQL refuses to be. */
export interface Account {
  readonly uid: number;
  readonly gid: number;
  readonly name: string;
}

export interface Outcome {
  /** Undefined when a signal ended the program, or it never began. */
  readonly code: number | undefined;
  /** Standard output and standard error, at most OUTPUT_CHARS_MAX of it. */
  readonly output: string;
  /** Why it never began: ENOENT, EACCES, EPERM and the like. */
  readonly spawnError: Error | undefined;
}

export interface ProgramOptions {
  readonly account: Account | undefined;
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

const OUTPUT_CHARS_MAX = 16_384;

/** What a program that was asked to end is given before it is killed. */
const TERM_MS_MAX = 5_000;

/** Runs a program to its end, and resolves only when it and all it started have let go of its output. */
export async function runProgram(
  path: string,
  args: readonly string[],
  options: ProgramOptions,
): Promise<Outcome> {
  try {
    const child = spawn(path, args, {
      ...spawnAs(options.account),
      stdio: ["ignore", "pipe", "pipe"],
    });
    return await outcomeOf(child, options);
  } catch (spawnError) {
    // spawn throws what it could not do itself (EPERM: to become that user), and emits the rest.
    if (spawnError instanceof Error) return { code: undefined, output: "", spawnError };
    throw spawnError;
  }
}

async function outcomeOf(
  child: ChildProcessByStdio<null, Readable, Readable>,
  options: ProgramOptions,
): Promise<Outcome> {
  const timeout = AbortSignal.timeout(options.timeoutMs);
  const signal =
    options.signal === undefined ? timeout : AbortSignal.any([options.signal, timeout]);
  // SIGTERM lets initdb end its own children and remove what it made.
  let kill: NodeJS.Timeout | undefined;
  const end = (): void => {
    child.kill("SIGTERM");
    kill = setTimeout(() => child.kill("SIGKILL"), TERM_MS_MAX);
  };
  signal.addEventListener("abort", end, { once: true });
  if (signal.aborted) end();

  let output = "";
  const keep = (chunk: string): void => {
    output = (output + chunk).slice(-OUTPUT_CHARS_MAX); // The end says why it failed.
  };
  child.stdout.setEncoding("utf8").on("data", keep);
  child.stderr.setEncoding("utf8").on("data", keep);

  const { promise, resolve } = Promise.withResolvers<Outcome>();
  child.once("error", (spawnError) => resolve({ code: undefined, output, spawnError }));
  child.once("close", (code) => {
    resolve({ code: code ?? undefined, output, spawnError: undefined });
  });
  try {
    return await promise;
  } finally {
    signal.removeEventListener("abort", end);
    clearTimeout(kill);
  }
}

/**
 * How every program of the server is spawned. Nothing of our environment reaches it: PGDATA, PGPORT or
 * LD_LIBRARY_PATH would change what it does. C messages, because server.ts reads two of them. And in a
 * session of its own: Ctrl-C at the terminal goes to the service alone, which then stops it in order.
 */
export function spawnAs(account: Account | undefined): SpawnOptions {
  const env = { LC_ALL: "C", TZ: "UTC", PATH: "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin" };
  const identity = account === undefined ? {} : { uid: account.uid, gid: account.gid };
  return { ...identity, env, cwd: "/", detached: true }; // Our own directory may be closed to the account.
}
