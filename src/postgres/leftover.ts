/**
 * What a service that was killed has left in the cluster. We hold the lock of DATA_DIR, so whatever
 * runs there has no owner any more.
 *
 * A server that still runs is stopped, not adopted: it is not our child, so nobody would tell us of its
 * death; it may be of another version, port or configuration; and its log goes to a pipe that has no
 * reader. A fast stop and a start cost a checkpoint, and every committed row is kept.
 *
 * postmaster.pid of a server that is gone: PostgreSQL itself replaces it, unless its pid still answers a
 * signal and belongs to the same user. Then it takes the process for a rival and refuses to start: another
 * program that was given the pid since, or the dead server itself, as long as nobody has reaped it. We
 * know better, but deleting the file would be wrong: it also names the shared memory, by which PostgreSQL
 * sees that orphaned backends of a killed postmaster still write, and waits. So only the pid in it is
 * replaced, by our own: CreateLockFile (miscinit.c) takes the pid of its parent for stale, and still
 * checks the memory.
 */
import { basename } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { EmbeddedLog } from "./embedded-log.ts";
import type { EmbeddedLimits } from "./limits.ts";
import { readPidFile, removePidFile, replacePid } from "./pid-file.ts";
import { argumentsOf } from "./process-identity.ts";
import { hasCode } from "./refusal.ts";
import { type Postmaster, shutDown } from "./shutdown.ts";

const POLL_MS = 20;

export async function clearLeftover(
  pgData: string,
  options: { readonly log: EmbeddedLog; readonly limits: EmbeddedLimits },
): Promise<void> {
  const lines = await readPidFile(pgData);
  if (lines === undefined) return;
  // Negative when a single-user server wrote it.
  const pid = Math.abs(Number.parseInt(lines[0] ?? "", 10));
  if (!(pid > 0)) {
    await removePidFile(pgData); // Cut off while written: it names no memory either.
    return;
  }
  if (await isServerOf(pid, pgData)) {
    const signal = await shutDown(strangerOf(pid, pgData), options.limits);
    options.log.warn({ pid, signal }, "embedded_postgres_leftover_stopped");
    return clearLeftover(pgData, options); // Gone with its server, unless that had to be killed.
  }
  if (pid === process.pid) return;
  await replacePid(pgData, { lines, pid: process.pid });
  options.log.info({ pid }, "embedded_postgres_stale_pid_replaced");
}

/** A postmaster keeps the arguments it was started with, and we always give it `-D <directory>`. */
async function isServerOf(pid: number, pgData: string): Promise<boolean> {
  const [program = "", ...args] = (await argumentsOf(pid)) ?? [];
  return basename(program) === "postgres" && args[args.indexOf("-D") + 1] === pgData;
}

function strangerOf(pid: number, pgData: string): Postmaster {
  return {
    pid,
    signal: (name) => {
      try {
        process.kill(pid, name);
      } catch (error) {
        if (!hasCode(error, "ESRCH")) throw error;
      }
    },
    goneWithin: async (ms) => {
      const limit = AbortSignal.timeout(ms);
      while (!limit.aborted) {
        if (!(await isServerOf(pid, pgData))) return true;
        await sleep(POLL_MS);
      }
      return false;
    },
  };
}
