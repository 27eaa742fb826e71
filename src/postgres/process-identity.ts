import { execFile } from "node:child_process";
import { readFileSync, readlinkSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { hostname } from "node:os";
import { promisify } from "node:util";
import { hasCode } from "./refusal.ts";

/** A process, distinguished from a later one with the same pid. */
export interface ProcessIdentity {
  readonly pid: number;
  /** Its start, in the notation of the system: equal only for the same process. */
  readonly startMark: string;
  /** The range in which the pid is valid: this boot of this machine, and in it this container. */
  readonly scope: string;
}

/** A process that runs, but hides its start time (a /proc mounted with hidepid). */
const HIDDEN = "hidden";

/** A dead process whose parent has not read the exit code yet; no living process has this mark. */
const ZOMBIE = "zombie";

export async function thisProcess(): Promise<ProcessIdentity> {
  const { pid } = process;
  return { pid, startMark: (await startMarkOf(pid)) ?? HIDDEN, scope: scopeOfPids() };
}

/**
 * Whether that same process runs. An uncertain answer counts as "yes": a refusal is better than two
 * owners.
 */
export async function isRunning(identity: ProcessIdentity): Promise<boolean> {
  const startMark = await startMarkOf(identity.pid);
  return startMark !== undefined && (startMark === HIDDEN || startMark === identity.startMark);
}

/**
 * The start arguments of a living process; undefined when there is no process, or they are hidden.
 */
export async function argumentsOf(pid: number): Promise<readonly string[] | undefined> {
  if (process.platform !== "linux") return (await ps(pid, "command="))?.split(/\s+/);
  try {
    const text = await readFile(`/proc/${pid}/cmdline`, "utf8");
    // Empty for a zombie: it holds no resource any more.
    return text === "" ? undefined : text.split("\0");
  } catch (error) {
    if (hasCode(error, "ENOENT", "ESRCH", "EACCES")) return undefined;
    throw error;
  }
}

async function startMarkOf(pid: number): Promise<string | undefined> {
  if (!exists(pid)) return undefined;
  const seen = process.platform === "linux" ? await procStartMark(pid) : await psStartMark(pid);
  return seen ?? (exists(pid) ? HIDDEN : undefined);
}

/** Clock ticks since boot, field 22 of /proc/PID/stat; see proc_pid_stat(5). */
async function procStartMark(pid: number): Promise<string | undefined> {
  let stat: string;
  try {
    stat = await readFile(`/proc/${pid}/stat`, "utf8");
  } catch (error) {
    if (hasCode(error, "ENOENT", "ESRCH", "EACCES")) return undefined;
    throw error;
  }
  // The second field is the program's name in parentheses, which may itself contain spaces and
  // parentheses.
  const [state = "", ...rest] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return state === "Z" || state === "X" ? ZOMBIE : rest[18];
}

async function psStartMark(pid: number): Promise<string | undefined> {
  const line = await ps(pid, "stat=,lstart=");
  return line?.startsWith("Z") ? ZOMBIE : line?.replace(/^\S+\s+/, "");
}

async function ps(pid: number, columns: string): Promise<string | undefined> {
  // The same spelling for every caller.
  const env = { LC_ALL: "C", TZ: "UTC", PATH: "/bin:/usr/bin" };
  try {
    const { stdout } = await promisify(execFile)("ps", ["-ww", "-o", columns, "-p", String(pid)], {
      env,
    });
    return stdout.trim() === "" ? undefined : stdout.trim();
  } catch {
    return undefined; // ps exits with 1 when the process does not exist.
  }
}

function exists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return hasCode(error, "EPERM"); // It runs as another user.
  }
}

function scopeOfPids(): string {
  if (process.platform !== "linux") return hostname();
  const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  return `${boot} ${readlinkSync("/proc/self/ns/pid")}`;
}
