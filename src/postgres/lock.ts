/**
 * One service a DATA_DIR. The owner is the process named in the lock file of the highest number:
 *
 *   session-ledger.lock.7   {"pid": 1234, "startMark": …, "scope": …, "startedAt": …}
 *                           empty: given back
 *
 * A start reads the highest lock. Is its owner alive, the start is refused by the owner's name. Is the
 * owner dead, or the lock given back, the start creates the next number with link(2), which succeeds
 * for exactly one and never shows half a file, then looks again whether it still is the highest, and
 * only then removes the lower ones. The highest is never removed, so numbers never come back: of any
 * two starts that saw the same dead owner one gets EEXIST, and one that slept through a whole
 * generation finds a higher number on its second look. (A single file that is deleted and created anew
 * has no such rule: the slower of two starts deletes the lock of the faster.)
 *
 * Alive means the pid runs and started when the lock says, so a pid that was given to another process,
 * or to the restarted machine's, is no owner. A pid of another boot or another container says nothing
 * here: two containers that share a volume (a rolling update on one node) do not see each other, and
 * PostgreSQL's own guard, which asks for pids and shared memory, does not either. For those the owner
 * touches its lock on a timer, and a start watches it for a few beats. The price is that wait, after a
 * crash of the machine or the container only; the limit is an owner that is suspended for as long.
 */
import { randomUUID } from "node:crypto";
import { link, readFile, readdir, rm, stat, truncate, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import type { Clock } from "../base/clock.ts";
import type { EmbeddedLog } from "./embedded-log.ts";
import { isRunning, thisProcess } from "./process-identity.ts";
import { hasCode, refusal } from "./refusal.ts";

export interface DataDirLock {
  release(): Promise<void>;
}

export interface LockOptions {
  readonly clock: Clock;
  readonly log: EmbeddedLog;
  readonly heartbeatMs: number;
  readonly signal: AbortSignal;
}

const ownerSchema = z.object({
  pid: z.int().positive(),
  startMark: z.string(),
  scope: z.string(),
  startedAt: z.string(),
});

type Owner = z.infer<typeof ownerSchema>;

/** Beats a foreign owner may miss before it counts as dead. */
const BEATS_MISSED_MAX = 3;

/** Each lost round means that another start went ahead, so the next look finds it alive. */
const ROUNDS_MAX = 10;

const LOCK_PREFIX = "session-ledger.lock.";

export async function lockDataDir(dataDir: string, options: LockOptions): Promise<DataDirLock> {
  const startedAt = new Date(Number(options.clock.nowMicros() / 1000n)).toISOString();
  const self: Owner = { ...(await thisProcess()), startedAt };
  for (let round = 0; round < ROUNDS_MAX; round += 1) {
    const highest = await highestLock(dataDir);
    await refuseIfOwned(dataDir, { path: lockPath(dataDir, highest), self, ...options });
    const mine = highest + 1;
    if (!(await createLock(dataDir, { number: mine, self }))) continue;
    if ((await highestLock(dataDir)) === mine) {
      await removeLocksBelow(dataDir, mine);
      return hold(lockPath(dataDir, mine), options.heartbeatMs);
    }
    await rm(lockPath(dataDir, mine), { force: true });
  }
  throw refusal(`DATA_DIR ${dataDir} is being taken by other session-ledger processes`);
}

function hold(path: string, heartbeatMs: number): DataDirLock {
  // Nobody reads the mark who can see this process, so a beat that fails is not worth an error.
  const beat = (): void => {
    const now = new Date(); // Only ever compared with itself.
    utimes(path, now, now).catch(() => undefined);
  };
  const timer = setInterval(beat, heartbeatMs).unref();
  return {
    release: async () => {
      clearInterval(timer);
      await truncate(path).catch((error: unknown) => {
        if (!hasCode(error, "ENOENT")) throw error; // DATA_DIR was deleted under us: nothing to give back.
      });
    },
  };
}

async function refuseIfOwned(
  dataDir: string,
  lock: LockOptions & { readonly path: string; readonly self: Owner },
): Promise<void> {
  const owner = await readOwner(lock.path);
  if (owner === undefined) return;
  const alive = owner.scope === lock.self.scope ? await isRunning(owner) : await beats(owner, lock);
  if (!alive) return;
  const elsewhere = owner.scope === lock.self.scope ? "" : " of another container or host";
  throw refusal(
    `DATA_DIR ${dataDir} is in use by session-ledger process ${owner.pid}${elsewhere}, ` +
      `started ${owner.startedAt}: stop it, or give this one a DATA_DIR of its own`,
  );
}

async function beats(
  owner: Owner,
  lock: LockOptions & { readonly path: string },
): Promise<boolean> {
  lock.log.info({ pid: owner.pid, startedAt: owner.startedAt }, "data_dir_owner_watched");
  const before = await touchedAt(lock.path);
  for (let beat = 0; beat < BEATS_MISSED_MAX; beat += 1) {
    await sleep(lock.heartbeatMs, undefined, { signal: lock.signal });
    const now = await touchedAt(lock.path);
    if (now === undefined) return false; // Somebody took over meanwhile; the next look shows who.
    if (now !== before) return true;
  }
  return false;
}

async function touchedAt(path: string): Promise<bigint | undefined> {
  try {
    return (await stat(path, { bigint: true })).mtimeNs;
  } catch (error) {
    if (hasCode(error, "ENOENT")) return undefined;
    throw error;
  }
}

/** Undefined for a lock that was given back, and for one that holds no owner we could ask about. */
async function readOwner(path: string): Promise<Owner | undefined> {
  try {
    return ownerSchema.safeParse(JSON.parse(await readFile(path, "utf8"))).data;
  } catch (error) {
    if (error instanceof SyntaxError || hasCode(error, "ENOENT")) return undefined;
    throw error;
  }
}

async function createLock(
  dataDir: string,
  lock: { readonly number: number; readonly self: Owner },
): Promise<boolean> {
  const draft = join(dataDir, `${LOCK_PREFIX}draft-${randomUUID()}`);
  await writeFile(draft, JSON.stringify(lock.self), { flag: "wx", mode: 0o644 });
  try {
    await link(draft, lockPath(dataDir, lock.number));
    return true;
  } catch (error) {
    if (hasCode(error, "EEXIST")) return false;
    throw error;
  } finally {
    await rm(draft, { force: true });
  }
}

/** 0 when there is none yet. */
async function highestLock(dataDir: string): Promise<number> {
  return Math.max(0, ...(await lockNumbers(dataDir)));
}

async function removeLocksBelow(dataDir: string, mine: number): Promise<void> {
  for (const number of await lockNumbers(dataDir)) {
    if (number < mine) await rm(lockPath(dataDir, number), { force: true });
  }
}

async function lockNumbers(dataDir: string): Promise<readonly number[]> {
  const names = await readdir(dataDir);
  return names
    .filter((name) => name.startsWith(LOCK_PREFIX))
    .map((name) => name.slice(LOCK_PREFIX.length))
    .filter((number) => /^\d+$/.test(number))
    .map(Number);
}

function lockPath(dataDir: string, number: number): string {
  return join(dataDir, `${LOCK_PREFIX}${number}`);
}
