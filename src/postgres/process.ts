/** Programs that this process runs, the arguments of other processes, and the errors of this folder. */
import { execFile, type SpawnOptions, spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { codeOf, ServiceError } from "@session-ledger/base/errors";

/** The embedded server cannot start, and the operator can fix it: the message explains how. */
export function refusal(message: string, cause?: unknown): ServiceError {
  return new ServiceError("failed_precondition", "DATABASE_UNAVAILABLE", message, { cause });
}

export function hasCode(error: unknown, ...codes: readonly string[]): boolean {
  return codes.includes(codeOf(error));
}

/** For the reading of a file that need not exist. */
export function unlessMissing(error: unknown): undefined {
  if (!hasCode(error, "ENOENT")) throw error;
}

/** The user that runs PostgreSQL when the service is root, because PostgreSQL refuses root. */
export interface Account {
  readonly uid: number;
  readonly gid: number;
  readonly name: string;
}

interface ProcessOutcome {
  /** Undefined when a signal ended the program, or when it never started. */
  readonly code: number | undefined;
  /** The last OUTPUT_CHARS_MAX of standard output and standard error. */
  readonly output: string;
  /** The reason why it never started: ENOENT, EACCES, EPERM and the like. */
  readonly spawnError: Error | undefined;
}

const OUTPUT_CHARS_MAX = 16_384;
/** The time between the request to end and the kill. */
const TERM_MS_MAX = 5_000;

/** Runs a program to its end; resolves only when it and all its children have closed its output. */
export async function runProgram(
  path: string,
  args: readonly string[],
  options: {
    readonly account?: Account | undefined;
    readonly timeoutMs?: number;
    readonly signal?: AbortSignal;
  } = {},
): Promise<ProcessOutcome> {
  const signals = [AbortSignal.timeout(options.timeoutMs ?? 10_000), options.signal];
  const signal = AbortSignal.any(signals.filter((one) => one !== undefined));
  const { promise, resolve } = Promise.withResolvers<ProcessOutcome>();
  let output = "";
  let kill: NodeJS.Timeout | undefined;
  try {
    const child = spawn(path, args, {
      ...spawnAs(options.account),
      stdio: ["ignore", "pipe", "pipe"],
    });
    // SIGTERM lets initdb end its own children and remove its files.
    const end = (): void => {
      child.kill("SIGTERM");
      kill = setTimeout(() => child.kill("SIGKILL"), TERM_MS_MAX);
    };
    signal.addEventListener("abort", end, { once: true });
    if (signal.aborted) end();
    for (const stream of [child.stdout, child.stderr]) {
      // The end of the output has the reason of a failure.
      stream.setEncoding("utf8").on("data", (chunk: string) => {
        output = (output + chunk).slice(-OUTPUT_CHARS_MAX);
      });
    }
    child.once("error", (spawnError) => resolve({ code: undefined, output, spawnError }));
    child.once("close", (code) => {
      signal.removeEventListener("abort", end);
      resolve({ code: code ?? undefined, output, spawnError: undefined });
    });
    return await promise;
  } catch (spawnError) {
    // spawn throws some errors (EPERM: cannot become that user), and emits the others.
    if (spawnError instanceof Error) return { code: undefined, output, spawnError };
    throw spawnError;
  } finally {
    clearTimeout(kill);
  }
}

/**
 * The options of every program of the server. None of our environment variables is passed on:
 * PGDATA, PGPORT or LD_LIBRARY_PATH would change its behaviour. Messages are in the C locale,
 * because server.ts reads two of them. The program gets a new session: Ctrl-C at the
 * terminal reaches only the service, which then stops the server in order.
 */
export function spawnAs(account: Account | undefined): SpawnOptions {
  const env = { LC_ALL: "C", TZ: "UTC", PATH: "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin" };
  const identity = account === undefined ? {} : { uid: account.uid, gid: account.gid };
  // Our own directory may be closed to the account.
  return { ...identity, env, cwd: "/", detached: true };
}

/** The start arguments of a process; undefined: no process, or hidden arguments. */
export async function argumentsOf(pid: number): Promise<readonly string[] | undefined> {
  if (process.platform !== "linux") return (await commandOf(pid))?.split(/\s+/);
  try {
    // Empty for a zombie: it holds no resource any more.
    return (await readFile(`/proc/${pid}/cmdline`, "utf8")).split("\0");
  } catch (error) {
    if (hasCode(error, "ENOENT", "ESRCH", "EACCES")) return undefined;
    throw error;
  }
}

async function commandOf(pid: number): Promise<string | undefined> {
  // The same spelling for every caller.
  const env = { LC_ALL: "C", TZ: "UTC", PATH: "/bin:/usr/bin" };
  const args = ["-ww", "-o", "command=", "-p", String(pid)];
  // ps exits with 1 when the process does not exist.
  const { stdout } = await promisify(execFile)("ps", args, { env }).catch(() => ({ stdout: "" }));
  return stdout.trim() || undefined;
}
