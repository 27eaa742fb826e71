/**
 * One service per cluster. The owner holds SQLite's exclusive lock on an empty file beside the
 * cluster: a lock of the kernel, which Node has no other function for. The kernel releases it when the
 * process ends, however it ends. Containers and hosts that share the file system see it too.
 * PostgreSQL's own guard compares pids and shared memory, so it sees neither. No other code of this
 * process may open the file: the close of any descriptor of it would release the lock (fcntl(2)).
 *
 *   session-ledger.lock   empty, stays
 *   session-ledger.owner  the owner in words, for the refusal of another start
 */
import { readFile, rm, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import { refusal } from "./process.ts";

/** Of two starts at once, one may hold a part of the lock for a moment. */
const WAIT_MS_MAX = 200;
/** SQLITE_BUSY, without the extension in the higher bits; https://sqlite.org/rescode.html */
const BUSY = 5;
const OWNER_CHARS_MAX = 300;

/** `home`: the directory of the cluster. `dataDir` is named in a refusal. */
export async function lockCluster({
  home,
  dataDir,
}: {
  readonly home: string;
  readonly dataDir: string;
}): Promise<{ release(): Promise<void> }> {
  // Loaded here: Node 22 prints a warning about it, and a service with DATABASE_URL needs no lock.
  const { DatabaseSync } = await import("node:sqlite");
  const ownerPath = join(home, "session-ledger.owner");
  const file = new DatabaseSync(join(home, "session-ledger.lock"), {
    open: false,
    timeout: WAIT_MS_MAX,
  });
  try {
    file.open();
    file.exec("begin exclusive");
  } catch (error) {
    if (file.isOpen) file.close();
    if (!isBusy(error)) {
      const reason = error instanceof Error ? error.message : String(error);
      throw refusal(
        `DATA_DIR ${dataDir} cannot be locked (${reason}): it needs a file system with locks, on which ` +
          "this user may write",
        error,
      );
    }
    const owner = await readFile(ownerPath, "utf8").catch(() => "process");
    throw refusal(
      `DATA_DIR ${dataDir} is in use by session-ledger ${owner.slice(0, OWNER_CHARS_MAX)}: stop it, or ` +
        "give this one another DATA_DIR",
      error,
    );
  }
  const owner = `process ${process.pid} on ${hostname()}, started ${new Date().toISOString()}`;
  await writeFile(ownerPath, owner);
  return {
    release: async () => {
      if (!file.isOpen) return;
      await rm(ownerPath, { force: true });
      file.close();
    },
  };
}

function isBusy(error: unknown): boolean {
  const code = error instanceof Error && "errcode" in error ? Number(error.errcode) : 0;
  return (code & 0xff) === BUSY;
}
