/**
 * One process per file: `<file>.lock` names the owner by its process id and its start time, because
 * ids are used again (in a container the first process has the same id each time). A lock whose
 * owner is gone is taken over.
 */
import { link, readFile, rm, writeFile } from "node:fs/promises";

/** Files of this process: two writers must not both own one file. */
const held = new Set<string>();

/** Rejects when another owner has the file. Resolves to the function that releases it. */
export async function lockFile(file: string): Promise<() => Promise<void>> {
  const path = `${file}.lock`;
  if (held.has(path)) throw new Error(`${file} is in use by another writer of this process`);
  held.add(path);
  try {
    await take(path, file);
  } catch (error) {
    held.delete(path);
    throw error;
  }
  return async () => {
    await rm(path, { force: true });
    held.delete(path);
  };
}

async function take(path: string, file: string): Promise<void> {
  const own = `${path}.${process.pid}`;
  await writeFile(own, JSON.stringify({ pid: process.pid, started: await startedAt(process.pid) }));
  try {
    const owner = await ownerOf(path);
    if (owner !== undefined && (await isAlive(owner))) {
      throw new Error(`${file} is in use by process ${owner.pid}`);
    }
    await rm(path, { force: true });
    await link(own, path); // Fails when another process was faster.
  } finally {
    await rm(own, { force: true });
  }
}

interface Owner {
  readonly pid: number;
  readonly started: string | undefined;
}

async function ownerOf(path: string): Promise<Owner | undefined> {
  try {
    const { pid, started } = JSON.parse(await readFile(path, "utf8"));
    return typeof pid === "number" ? { pid, started: started && String(started) } : undefined;
  } catch {
    return undefined; // There is no lock, or the lock has no readable owner.
  }
}

async function isAlive({ pid, started }: Owner): Promise<boolean> {
  try {
    process.kill(pid, 0); // Signal 0 only tests the process.
  } catch (error) {
    // EPERM: the process exists, and belongs to another user.
    if (!(error instanceof Error && "code" in error && error.code === "EPERM")) return false;
  }
  // This process does not hold the file, so an earlier process with the same id did.
  if (pid === process.pid) return false;
  const now = await startedAt(pid);
  return started === undefined || now === undefined || started === now;
}

/**
 * Linux reports when a process was started (proc(5), field 22 of stat); on other systems only the
 * id is compared.
 */
async function startedAt(pid: number): Promise<string | undefined> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19];
  } catch {
    return undefined;
  }
}
