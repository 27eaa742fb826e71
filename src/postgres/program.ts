import { type ChildProcessByStdio, type SpawnOptions, spawn } from "node:child_process";
import type { Readable } from "node:stream";

/** The user that runs PostgreSQL when the service is root, because PostgreSQL refuses root. */
export interface Account {
  readonly uid: number;
  readonly gid: number;
  readonly name: string;
}

export interface Outcome {
  /** Undefined when a signal ended the program, or when it never started. */
  readonly code: number | undefined;
  /** Standard output and standard error, at most the last OUTPUT_CHARS_MAX of it. */
  readonly output: string;
  /** The reason why it never started: ENOENT, EACCES, EPERM and the like. */
  readonly spawnError: Error | undefined;
}

export interface ProgramOptions {
  readonly account: Account | undefined;
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

const OUTPUT_CHARS_MAX = 16_384;

/** The time between the request to end and the kill. */
const TERM_MS_MAX = 5_000;

/** Runs a program to its end; resolves only when it and all its children have closed its output. */
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
    // spawn throws some errors (EPERM: cannot become that user), and emits the others.
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
  // SIGTERM lets initdb end its own children and remove its files.
  let kill: NodeJS.Timeout | undefined;
  const end = (): void => {
    child.kill("SIGTERM");
    kill = setTimeout(() => child.kill("SIGKILL"), TERM_MS_MAX);
  };
  signal.addEventListener("abort", end, { once: true });
  if (signal.aborted) end();

  let output = "";
  const keep = (chunk: string): void => {
    // The end of the output has the reason of a failure.
    output = (output + chunk).slice(-OUTPUT_CHARS_MAX);
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
 * The options of every program of the server. None of our environment variables is passed on:
 * PGDATA, PGPORT or LD_LIBRARY_PATH would change its behaviour. Messages are in the C locale,
 * because server.ts reads two of them. The program gets a session of its own: Ctrl-C at the
 * terminal reaches only the service, which then stops the server in order.
 */
export function spawnAs(account: Account | undefined): SpawnOptions {
  const env = { LC_ALL: "C", TZ: "UTC", PATH: "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin" };
  const identity = account === undefined ? {} : { uid: account.uid, gid: account.gid };
  // Our own directory may be closed to the account.
  return { ...identity, env, cwd: "/", detached: true };
}
