/** The lock of a spool's file, and new files in its folder. */
import { type FileHandle, link, open, readdir, readFile, rm } from "node:fs/promises";
import { basename, dirname } from "node:path";
import { codeOf } from "@session-ledger/base/errors";

/** Readable only by the owner: the file contains messages of agents and people. */
const FILE_MODE = 0o600;

/**
 * Files of this process: two writers must not own one file. Between processes, `<file>.lock` has
 * the owner's process id and start time, because ids are used again. A dead owner's lock is taken
 * over.
 */
const lockedPaths = new Set<string>();

/** Rejects when another owner has the file. Resolves to the function that releases it. */
export async function lockFile(file: string): Promise<() => Promise<void>> {
  const path = `${file}.lock`;
  if (lockedPaths.has(path)) throw new Error(`${file} is in use by another writer of this process`);
  lockedPaths.add(path);
  try {
    await take(path, file);
  } catch (error) {
    lockedPaths.delete(path);
    throw error;
  }
  return async () => {
    await rm(path, { force: true });
    lockedPaths.delete(path);
  };
}

async function take(path: string, file: string): Promise<void> {
  const own = `${path}.${process.pid}`;
  const handle = await create(own);
  try {
    await handle.writeFile(
      JSON.stringify({ pid: process.pid, started: await startedAt(process.pid) }),
    );
    const owner = await ownerOf(path);
    if (owner !== undefined && (await isAlive(owner))) {
      throw new Error(`${file} is in use by process ${owner.pid}`);
    }
    await rm(path, { force: true });
    await link(own, path); // Fails when another process was faster.
    await removeParts(path);
  } finally {
    await handle.close();
    await rm(own, { force: true });
  }
}

/** A new file in the spool's folder. `wx` follows no link from somebody else. */
export async function create(path: string): Promise<FileHandle> {
  await rm(path, { force: true });
  return open(path, "wx", FILE_MODE);
}

/** Removes the files of processes that were killed while they took the lock. */
async function removeParts(path: string): Promise<void> {
  const prefix = `${basename(path)}.`;
  for (const name of await readdir(dirname(path))) {
    const pid = name.startsWith(prefix) ? Number(name.slice(prefix.length)) : Number.NaN;
    if (!Number.isInteger(pid) || (await isAlive({ pid, started: undefined }))) continue;
    await rm(`${path}.${pid}`, { force: true });
  }
}

interface LockOwner {
  readonly pid: number;
  readonly started: string | undefined;
}

async function ownerOf(path: string): Promise<LockOwner | undefined> {
  try {
    const { pid, started } = JSON.parse(await readFile(path, "utf8"));
    return typeof pid === "number" ? { pid, started: started && String(started) } : undefined;
  } catch {
    return undefined; // No lock, or a lock without a readable owner.
  }
}

async function isAlive({ pid, started }: LockOwner): Promise<boolean> {
  try {
    process.kill(pid, 0); // Signal 0 only tests the process.
  } catch (error) {
    // EPERM: the process exists, and belongs to another user.
    if (codeOf(error) !== "EPERM") return false;
  }
  // This process does not hold the file, so an earlier process with the same id did.
  if (pid === process.pid) return false;
  const now = await startedAt(pid);
  return started === undefined || now === undefined || started === now;
}

/** Field 22 of stat (proc(5)); on other systems only the id is compared. */
async function startedAt(pid: number): Promise<string | undefined> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19];
  } catch {
    return undefined;
  }
}
