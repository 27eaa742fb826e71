import { randomUUID } from "node:crypto";
import { lchown, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { hasCode } from "./refusal.ts";

/** postmaster.pid, in which a server describes itself: one fact per line, the pid first. */
const NAME = "postmaster.pid";

/** The line of the state, counted from 0: "starting", "ready", "stopping". */
const STATE_LINE = 7;

/** Undefined when no server runs and the last one has ended normally. */
export async function readPidFile(pgData: string): Promise<readonly string[] | undefined> {
  try {
    return (await readFile(join(pgData, NAME), "utf8")).split("\n");
  } catch (error) {
    if (hasCode(error, "ENOENT")) return undefined;
    throw error;
  }
}

/** The state in the file, if the file belongs to that pid. */
export async function serverState(pgData: string, pid: number): Promise<string | undefined> {
  const lines = await readPidFile(pgData);
  return Number(lines?.[0]) === pid ? lines?.[STATE_LINE]?.trim() : undefined;
}

export async function removePidFile(pgData: string): Promise<void> {
  await rm(join(pgData, NAME), { force: true });
}

/** By rename, so that a kill leaves one complete file or the other. */
export async function replacePid(
  pgData: string,
  file: { readonly lines: readonly string[]; readonly pid: number },
): Promise<void> {
  const path = join(pgData, NAME);
  const draft = join(pgData, `${NAME}.${randomUUID()}`);
  const { uid, gid } = await stat(path);
  await writeFile(draft, [file.pid, ...file.lines.slice(1)].join("\n"), {
    flag: "wx",
    mode: 0o600,
  });
  await lchown(draft, uid, gid);
  await rename(draft, path);
}
