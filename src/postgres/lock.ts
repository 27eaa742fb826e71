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
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { hasCode, isRunning, refusal, thisProcess, unlessMissing } from "./process.ts";
import type { EmbeddedLog } from "./server.ts";

interface DataDirLock {
  release(): Promise<void>;
}

interface LockOptions {
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
  const self: Owner = { ...(await thisProcess()), startedAt: new Date().toISOString() };
  for (let round = 0; round < ROUNDS_MAX; round += 1) {
    const highest = Math.max(0, ...(await lockNumbers(dataDir)));
    await refuseIfOwned(dataDir, { path: lockPath(dataDir, highest), self, ...options });
    const path = lockPath(dataDir, highest + 1);
    if (!(await createLock(path, self))) continue;
    const numbers = await lockNumbers(dataDir);
    if (Math.max(...numbers) === highest + 1) {
      const lower = numbers.filter((number) => number <= highest);
      for (const number of lower) await rm(lockPath(dataDir, number), { force: true });
      return hold(path, options.heartbeatMs);
    }
    await rm(path, { force: true });
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
      await truncate(path).catch(unlessMissing); // DATA_DIR may be deleted by now.
    },
  };
}

type Found = LockOptions & { readonly path: string; readonly self: Owner };

async function refuseIfOwned(dataDir: string, lock: Found): Promise<void> {
  const owner = await readOwner(lock.path);
  if (owner === undefined) return;
  const isHere = owner.scope === lock.self.scope;
  if (!(isHere ? await isRunning(owner) : await beats(owner, lock))) return;
  throw refusal(
    `DATA_DIR ${dataDir} is in use by session-ledger process ${owner.pid}` +
      `${isHere ? "" : " of another container or host"}, started ${owner.startedAt}: ` +
      "stop it, or give this one a DATA_DIR of its own",
  );
}

async function beats({ pid, startedAt }: Owner, lock: Found): Promise<boolean> {
  lock.log.info({ pid, startedAt }, "data_dir_owner_watched");
  const touchedAt = async (): Promise<bigint | undefined> =>
    (await stat(lock.path, { bigint: true }).catch(unlessMissing))?.mtimeNs;
  const before = await touchedAt();
  for (let beat = 0; beat < BEATS_MISSED_MAX; beat += 1) {
    await sleep(lock.heartbeatMs, undefined, { signal: lock.signal });
    const now = await touchedAt();
    // Another start took over meanwhile; the next look finds its owner.
    if (now === undefined) return false;
    if (now !== before) return true;
  }
  return false;
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

async function createLock(path: string, self: Owner): Promise<boolean> {
  const draft = join(dirname(path), `${LOCK_PREFIX}draft-${randomUUID()}`);
  await writeFile(draft, JSON.stringify(self), { flag: "wx", mode: 0o644 });
  try {
    await link(draft, path);
    return true;
  } catch (error) {
    if (hasCode(error, "EEXIST")) return false;
    throw error;
  } finally {
    await rm(draft, { force: true });
  }
}

async function lockNumbers(dataDir: string): Promise<readonly number[]> {
  return (await readdir(dataDir)).flatMap((name) => {
    const [, number] = /^session-ledger\.lock\.(\d+)$/.exec(name) ?? [];
    return number === undefined ? [] : [Number(number)];
  });
}

function lockPath(dataDir: string, number: number): string {
  return join(dataDir, `${LOCK_PREFIX}${number}`);
}
