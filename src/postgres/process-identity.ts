import { execFile } from "node:child_process";
import { readFileSync, readlinkSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { hostname } from "node:os";
import { promisify } from "node:util";
import { hasCode } from "./refusal.ts";

/** A process, told apart from a later one that was given the same pid. */
export interface ProcessIdentity {
  readonly pid: number;
  /** When it started, in the words of the system: equal for one and the same process only. */
  readonly startMark: string;
  /** Where the pid means something: this boot of this machine, and in it this container. */
  readonly scope: string;
}

/** A process that runs, but does not show when it started (a /proc mounted with hidepid). */
const HIDDEN = "hidden";

/** The mark of no living process: it is dead, and its parent has not asked for the exit code yet. */
const ZOMBIE = "zombie";

export async function thisProcess(): Promise<ProcessIdentity> {
  const { pid } = process;
  return { pid, startMark: (await startMarkOf(pid)) ?? HIDDEN, scope: scopeOfPids() };
}

/** Whether that very process runs. One that cannot be told apart counts: better refuse than share. */
export async function isRunning(identity: ProcessIdentity): Promise<boolean> {
  const startMark = await startMarkOf(identity.pid);
  return startMark !== undefined && (startMark === HIDDEN || startMark === identity.startMark);
}

/** The arguments a living process was started with; undefined when there is none, or none to see. */
export async function argumentsOf(pid: number): Promise<readonly string[] | undefined> {
  if (process.platform !== "linux") return (await ps(pid, "command="))?.split(/\s+/);
  try {
    const text = await readFile(`/proc/${pid}/cmdline`, "utf8");
    return text === "" ? undefined : text.split("\0"); // Empty for a zombie: it holds nothing any more.
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
  // The second field is the program's name in parentheses, which may itself hold spaces and parentheses.
  const [state = "", ...rest] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return state === "Z" || state === "X" ? ZOMBIE : rest[18];
}

async function psStartMark(pid: number): Promise<string | undefined> {
  const line = await ps(pid, "stat=,lstart=");
  return line?.startsWith("Z") ? ZOMBIE : line?.replace(/^\S+\s+/, "");
}

async function ps(pid: number, columns: string): Promise<string | undefined> {
  const env = { LC_ALL: "C", TZ: "UTC", PATH: "/bin:/usr/bin" }; // One spelling, whoever asks.
  try {
    const { stdout } = await promisify(execFile)("ps", ["-ww", "-o", columns, "-p", String(pid)], {
      env,
    });
    return stdout.trim() === "" ? undefined : stdout.trim();
  } catch {
    return undefined; // ps exits with 1 when there is no such process.
  }
}

function exists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return hasCode(error, "EPERM"); // It runs as somebody else.
  }
}

function scopeOfPids(): string {
  if (process.platform !== "linux") return hostname();
  const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  return `${boot} ${readlinkSync("/proc/self/ns/pid")}`;
}
