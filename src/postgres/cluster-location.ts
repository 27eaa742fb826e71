/**
 * The location of the cluster, and the user that runs it.
 *
 *   <home>/session-ledger.lock           held by the service
 *   <home>/postgres/{data,password}      the cluster
 *   <home>/session-ledger-postgresql-<v> only where the account cannot reach the installed programs
 *
 * `home` is DATA_DIR. When the service is root, the server runs as another user. If that user
 * cannot enter DATA_DIR (a directory above it has mode 700), home is /var/lib/session-ledger/<hash
 * of DATA_DIR>, and DATA_DIR/postgres is a link to that cluster.
 *
 * An existing cluster is always used. Modes, and the user of the service, may change between two
 * starts, and then a second, empty database would look like lost data. So an existing
 * cluster decides, first one in DATA_DIR, then one under the hash (the link may be missing, or
 * DATA_DIR may have been deleted). The owner of that cluster runs it. Only a new cluster allows a
 * choice.
 */
import { createHash } from "node:crypto";
import { access, chmod, constants, lstat, mkdir, realpath, stat, symlink } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { within } from "@session-ledger/base/timers";
import { type Account, hasCode, refusal, runProgram, unlessMissing } from "./process.ts";
import type { EmbeddedLog } from "./server.ts";

export interface ClusterLocation {
  readonly home: string;
  /** In `home`, and called "postgres", unless an operator has put it on another disk by a link. */
  readonly clusterDir: string;
  /** Undefined when the service is not root: then the server runs as the same user. */
  readonly account: Account | undefined;
}

const CLUSTER_NAME = "postgres";

/** For an answer from the file system of DATA_DIR: a mount can hang. */
const DATA_DIR_MS_MAX = 20_000;

/** Creates DATA_DIR; returns its real path, so that two spellings are one directory. */
export async function openDataDir(dataDir: string, signal: AbortSignal): Promise<string> {
  const message = `its file system did not answer in ${DATA_DIR_MS_MAX / 1_000} s`;
  const late = (): Promise<string> => Promise.reject(new Error(message));
  const opened = async (): Promise<string> => {
    await makeDirectory(resolve(dataDir));
    await access(dataDir, constants.W_OK | constants.X_OK);
    return realpath(dataDir);
  };
  try {
    return await within(opened(), { limitMs: DATA_DIR_MS_MAX, onTimeout: late, signal });
  } catch (error) {
    signal.throwIfAborted();
    const reason = error instanceof Error ? error.message : String(error);
    throw refusal(`DATA_DIR ${dataDir} cannot be written: ${reason}`, error);
  }
}

/** With the directories above. Node's recursive mkdir never ends in procfs. */
async function makeDirectory(path: string): Promise<void> {
  const isDirectory = async (): Promise<boolean | undefined> =>
    (await stat(path).catch(() => undefined))?.isDirectory();
  const found = await isDirectory();
  if (found === true) return;
  if (found === false) throw new Error(`${path} is a file, and no directory`);
  const above = dirname(path);
  if (above !== path) await makeDirectory(above);
  try {
    await mkdir(path);
  } catch (error) {
    if ((await isDirectory()) !== true) throw error; // Another start may have made it meanwhile.
  }
}

/** As root: the home of clusters whose DATA_DIR the user of the server cannot enter. */
export const SYSTEM_DIR = "/var/lib/session-ledger";

export async function locateCluster(
  dataDir: string,
  { systemDir, log }: { readonly systemDir: string; readonly log: EmbeddedLog },
): Promise<ClusterLocation> {
  const existing = await existingCluster(join(dataDir, CLUSTER_NAME));
  if (existing !== undefined) return locationOf(existing);
  if (!isRoot()) return newLocation(dataDir, undefined);

  const hash = createHash("sha256").update(dataDir).digest("hex").slice(0, 16);
  const home = join(systemDir, hash);
  const moved = await existingCluster(join(home, CLUSTER_NAME));
  if (moved !== undefined) return locationOf(moved);
  const account = await serverAccount();
  if (await canEnter(account, dataDir)) return newLocation(dataDir, account);
  await makeOpenDir(systemDir);
  await makeOpenDir(home);
  log.info({ dataDir, home, user: account.name }, "embedded_postgres_moved");
  return newLocation(home, account);
}

/** Call this once the cluster exists, so that a moved one is found from DATA_DIR. */
export async function linkCluster(
  dataDir: string,
  { home, clusterDir }: ClusterLocation,
): Promise<void> {
  if (home === dataDir) return;
  try {
    await symlink(clusterDir, join(dataDir, CLUSTER_NAME));
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
  }
}

function newLocation(home: string, account: Account | undefined): ClusterLocation {
  return { home, clusterDir: join(home, CLUSTER_NAME), account };
}

async function locationOf(clusterDir: string): Promise<ClusterLocation> {
  const owner = await ownerOf(clusterDir);
  const home = dirname(clusterDir);
  if (!isRoot()) {
    if (owner.uid === process.getuid?.()) return { home, clusterDir, account: undefined };
    throw refusal(
      `the database in ${clusterDir} belongs to user ${owner.name}: start the service as that user or ` +
        "as root, or give it another DATA_DIR",
    );
  }
  if (owner.uid === 0) {
    throw refusal(
      `the database in ${clusterDir} belongs to root, as whom PostgreSQL does not run: ` +
        `give it to the user it was made by (chown -R)`,
    );
  }
  if (await canEnter(owner, clusterDir)) return { home, clusterDir, account: owner };
  throw refusal(
    `user ${owner.name}, who runs the database in ${clusterDir}, cannot enter that directory any more: ` +
      "open the directories above it to others (chmod o+x)",
  );
}

/** The real path of an existing cluster, also through a link. */
async function existingCluster(path: string): Promise<string | undefined> {
  if ((await lstat(path).catch(unlessMissing)) === undefined) return undefined;
  try {
    return await realpath(path);
  } catch (error) {
    throw refusal(
      `${path} is a link to a database that does not exist any more: bring it back, or delete the ` +
        "link to begin with an empty one",
      error,
    );
  }
}

async function makeOpenDir(path: string): Promise<void> {
  await makeDirectory(path);
  await chmod(path, 0o755); // Independent of the umask: the account passes through to its cluster.
}

function isRoot(): boolean {
  return process.getuid?.() === 0;
}

/** `nobody` is on every system; an operator may make `postgres`, which nothing else runs as. */
const ACCOUNT_NAMES = ["postgres", "nobody"] as const;

/** The user that runs a new cluster of root. */
async function serverAccount(): Promise<Account> {
  for (const name of ACCOUNT_NAMES) {
    const account = await accountNamed(name);
    if (account !== undefined) return account;
  }
  throw refusal(
    "PostgreSQL does not run as root, and neither user postgres nor user nobody exists: make the user " +
      "postgres, start the service as another user, or set DATABASE_URL",
  );
}

/** The maker of a cluster keeps running it, also when the service is root now. */
export async function ownerOf(path: string): Promise<Account> {
  const { uid, gid } = await stat(path);
  const { code, output } = await runProgram("id", ["-un", String(uid)]);
  return { uid, gid, name: code === 0 ? output.trim() : String(uid) };
}

/** Tested as that user, because modes alone do not decide: ACLs and mounts count too. */
async function canEnter(account: Account, directory: string): Promise<boolean> {
  const args = ["-c", 'test -x "$1"', "sh", directory];
  const outcome = await runProgram("/bin/sh", args, { account });
  if (outcome.spawnError !== undefined) {
    throw refusal(
      `this process is root but may not run a program as user ${account.name} ` +
        `(${outcome.spawnError.message}): start the service as another user, or set DATABASE_URL`,
      outcome.spawnError,
    );
  }
  return outcome.code === 0;
}

/** Undefined: no user of that name. */
export async function accountNamed(name: string): Promise<Account | undefined> {
  const uid = await runProgram("id", ["-u", name]);
  const gid = await runProgram("id", ["-g", name]);
  if (uid.code !== 0 || gid.code !== 0) return undefined;
  return { uid: Number(uid.output), gid: Number(gid.output), name };
}
