/**
 * Handles the remains of a killed service in the cluster. We hold the lock of DATA_DIR, so a server
 * that runs there has no owner any more.
 *
 * A server that still runs is stopped, and never adopted. It is not our child, so its death would
 * go unnoticed. It may have another version, port or configuration. And its log goes to a pipe
 * without a reader. A fast stop and a start cost a checkpoint, and every committed row is kept.
 *
 * The postmaster.pid of a dead server: PostgreSQL itself replaces the file, unless its pid still
 * answers a signal and belongs to the same user. In that case PostgreSQL takes the process for
 * another server and refuses to start. The process may be another program with the same pid, or the
 * dead server before its parent has reaped it. Deleting the file would be wrong: the file also
 * names the shared memory, which shows PostgreSQL that orphaned backends of a killed postmaster
 * still write. So only the pid in the file is replaced, by our own: CreateLockFile (miscinit.c)
 * takes the pid of its parent for stale, and still checks the memory.
 */
import { randomUUID } from "node:crypto";
import { lchown, rename, rm, stat, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { argumentsOf, hasCode } from "./process.ts";
import { type EmbeddedLog, PID_FILE, type Postmaster, readPidFile, shutDown } from "./server.ts";

const POLL_MS = 20;

export async function clearLeftover(
  pgData: string,
  options: { readonly log: EmbeddedLog; readonly fastStopMs: number },
): Promise<void> {
  const lines = await readPidFile(pgData);
  if (lines === undefined) return;
  // Negative when a single-user server wrote it.
  const pid = Math.abs(Number.parseInt(lines[0] ?? "", 10));
  if (!(pid > 0)) {
    // The file was cut off during a write: it names no shared memory either.
    await rm(join(pgData, PID_FILE), { force: true });
    return;
  }
  if (await isServerOf(pid, pgData)) {
    const signal = await shutDown(strangerOf(pid, pgData), options.fastStopMs);
    options.log.warn({ pid, signal }, "embedded_postgres_leftover_stopped");
    // The file is gone with its server, unless the server was killed.
    return clearLeftover(pgData, options);
  }
  if (pid === process.pid) return;
  await replacePid(pgData, lines);
  options.log.info({ pid }, "embedded_postgres_stale_pid_replaced");
}

/** A postmaster keeps its start arguments, and we always pass `-D <directory>`. */
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

/** By rename, so that a kill leaves one complete file or the other. */
async function replacePid(pgData: string, lines: readonly string[]): Promise<void> {
  const path = join(pgData, PID_FILE);
  const draft = `${path}.${randomUUID()}`;
  const { uid, gid } = await stat(path);
  await writeFile(draft, [process.pid, ...lines.slice(1)].join("\n"), { flag: "wx", mode: 0o600 });
  await lchown(draft, uid, gid);
  await rename(draft, path);
}
