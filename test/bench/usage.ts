/** The memory and CPU time of a process, from /proc of Linux. */
import { readdir, readFile } from "node:fs/promises";

/** USER_HZ, the unit of the times in /proc: 100 on every Linux architecture that Node runs on. */
const TICKS_PER_SECOND = 100;

export interface Memory {
  readonly residentMiB: number;
  /** The most it ever was. */
  readonly peakMiB: number;
}

export async function memoryOf(pid: number): Promise<Memory> {
  const text = await readFile(`/proc/${pid}/status`, "utf8");
  return {
    residentMiB: kibibytes(text, "VmRSS") / 1_024,
    peakMiB: kibibytes(text, "VmHWM") / 1_024,
  };
}

/** User and system time of the process so far, and of its children where they are asked for. */
export async function cpuMsOf(
  pid: number,
  { children }: { readonly children: boolean },
): Promise<number> {
  const own = await timesOf(pid);
  let ticks = own?.ticks ?? 0;
  if (!children) return ticksToMs(ticks);
  ticks += own?.endedChildrenTicks ?? 0;
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const times = await timesOf(Number(name));
    if (times?.parent === pid) ticks += times.ticks;
  }
  return ticksToMs(ticks);
}

/** Undefined for a process that has ended meanwhile. */
async function timesOf(pid: number) {
  const text = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => undefined);
  if (text === undefined) return undefined;
  // proc_pid_stat(5): the second field, a name in brackets, may hold anything; field 3 follows it.
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const field = (number: number): number => Number(fields[number - 3]);
  return {
    parent: field(4),
    ticks: field(14) + field(15),
    endedChildrenTicks: field(16) + field(17),
  };
}

function kibibytes(status: string, field: string): number {
  return Number(new RegExp(`^${field}:\\s+(\\d+) kB$`, "m").exec(status)?.[1]);
}

function ticksToMs(ticks: number): number {
  return (ticks / TICKS_PER_SECOND) * 1_000;
}
