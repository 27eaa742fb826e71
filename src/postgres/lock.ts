/**
 * One service per DATA_DIR. The owner is the process named in the lock file with the highest
 * number:
 *
 *   session-ledger.lock.7   {"pid": 1234, "startMark": …, "scope": …, "startedAt": …}
 *                           empty: given back
 *
 * A start reads the highest lock. If its owner is alive, the start is refused with the owner's
 * name. If the owner is dead, or the lock was given back, the start creates the next number with
 * link(2). That call succeeds for exactly one start and never shows half a file. Then the start
 * checks that its number is still the highest, and only then removes the lower ones. The highest is
 * never removed, so numbers never repeat. Of two starts that saw the same dead owner, one gets
 * EEXIST. A start that slept through a whole generation finds a higher number at its second check.
 * (A single file that is deleted and created again has no such rule: the slower of two starts
 * deletes the lock of the faster one.)
 *
 * An owner is alive when the pid runs and has the start time in the lock. So another process with
 * the same pid, also after a reboot, is no owner. A pid of another boot or another container has no
 * meaning here: two containers that share a volume (a rolling update on one node) do not see each
 * other, and PostgreSQL's own guard, which checks pids and shared memory, does not see them either.
 * For that case the owner touches its lock on a timer, and a start watches the lock for a few
 * beats. The cost is that wait, only after a crash of the machine or the container. The limit of
 * the method is an owner that is suspended for that time.
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

/** Beats that a foreign owner may miss before it counts as dead. */
const BEATS_MISSED_MAX = 3;

/** Each lost round means that another start was faster, so the next look finds that owner alive. */
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
  // A start that can see this process does not read the mark, so a failed beat is not an error.
  const beat = (): void => {
    const now = new Date(); // The time is only compared with itself.
    utimes(path, now, now).catch(() => undefined);
  };
  const timer = setInterval(beat, heartbeatMs).unref();
  return {
    release: async () => {
      clearInterval(timer);
      await truncate(path).catch((error: unknown) => {
        // DATA_DIR was deleted meanwhile: nothing to give back.
        if (!hasCode(error, "ENOENT")) throw error;
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
    // Another start took over meanwhile; the next look finds its owner.
    if (now === undefined) return false;
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

/** Undefined for a lock that was given back, and for a lock without a readable owner. */
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

/** 0 when there is no lock yet. */
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
