/**
 * The place of the cluster, and the user that runs it.
 *
 *   DATA_DIR/session-ledger.lock.N           always here: a person who starts the service knows it
 *   <home>/postgres/{data,password}          the cluster
 *   <home>/session-ledger-postgresql-<v>     only where the account cannot reach the installed ones
 *
 * `home` is DATA_DIR. When the service is root, the server runs as another user. If that user
 * cannot enter DATA_DIR (a directory above it has mode 700), home is /var/lib/session-ledger/<hash
 * of DATA_DIR>, and DATA_DIR/postgres is a link to the cluster there.
 *
 * An existing cluster is always used. Modes, and the user of the service, may change between two
 * starts, and then an empty database beside the full one would look like lost data. So an existing
 * cluster decides, first one in DATA_DIR, then one under the hash (the link may be missing, or
 * DATA_DIR may have been deleted). The owner of that cluster runs it. Only a new cluster allows a
 * choice.
 */
import { createHash } from "node:crypto";
import { access, chmod, constants, lstat, mkdir, realpath, stat, symlink } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { within } from "../base/timers.ts";
import { accountNamed, canEnter, isRoot, ownerOf } from "./account.ts";
import type { EmbeddedLog } from "./embedded-log.ts";
import type { EmbeddedLimits } from "./limits.ts";
import type { Account } from "./program.ts";
import { hasCode, refusal } from "./refusal.ts";

export interface Place {
  readonly home: string;
  /** In `home`, and called "postgres", unless an operator has put it on another disk by a link. */
  readonly clusterDir: string;
  /** Undefined when the service is not root: then the server runs as the same user. */
  readonly account: Account | undefined;
}

const CLUSTER_NAME = "postgres";

/**
 * Creates DATA_DIR when it does not exist; returns its real path, so that two spellings are one
 * directory.
 */
export async function openDataDir(
  dataDir: string,
  { limits, signal }: { readonly limits: EmbeddedLimits; readonly signal: AbortSignal },
): Promise<string> {
  const message = `its file system did not answer in ${limits.dataDirMs / 1_000} s`;
  const late = (): Promise<string> => Promise.reject(new Error(message));
  try {
    return await within(madeDirectory(dataDir), { limitMs: limits.dataDirMs, late, signal });
  } catch (error) {
    signal.throwIfAborted();
    const reason = error instanceof Error ? error.message : String(error);
    throw refusal(`DATA_DIR ${dataDir} cannot be written: ${reason}`, error);
  }
}

async function madeDirectory(path: string): Promise<string> {
  await makeDirectory(resolve(path));
  await access(path, constants.W_OK | constants.X_OK);
  return realpath(path);
}

/**
 * With the directories above it. Node's recursive mkdir never ends in procfs, which reports ENOENT
 * in existing directories.
 */
async function makeDirectory(path: string): Promise<void> {
  if (await isDirectory(path)) return;
  const above = dirname(path);
  if (above !== path) await makeDirectory(above);
  try {
    await mkdir(path);
  } catch (error) {
    if (!(await isDirectory(path))) throw error; // Another start may have made it meanwhile.
  }
}

async function isDirectory(path: string): Promise<boolean> {
  const found = await stat(path).catch(() => undefined);
  return found?.isDirectory() ?? false;
}

export async function choosePlace(
  dataDir: string,
  options: { readonly log: EmbeddedLog; readonly userName: string; readonly systemDir: string },
): Promise<Place> {
  const existing = await existingCluster(join(dataDir, CLUSTER_NAME));
  if (existing !== undefined) return placeOf(existing);
  if (!isRoot()) return newPlace(dataDir, undefined);

  const hash = createHash("sha256").update(dataDir).digest("hex").slice(0, 16);
  const elsewhere = join(options.systemDir, hash);
  const moved = await existingCluster(join(elsewhere, CLUSTER_NAME));
  if (moved !== undefined) {
    await symlink(moved, join(dataDir, CLUSTER_NAME));
    return placeOf(moved);
  }
  const account = await accountNamed(options.userName);
  if (await canEnter(account, dataDir)) return newPlace(dataDir, account);
  await makeOpenDir(options.systemDir);
  await makeOpenDir(elsewhere);
  options.log.info({ dataDir, home: elsewhere, user: account.name }, "embedded_postgres_moved");
  return newPlace(elsewhere, account);
}

/** Call this once the cluster exists, so that a moved one is found from DATA_DIR. */
export async function linkCluster(dataDir: string, place: Place): Promise<void> {
  if (place.home === dataDir) return;
  try {
    await symlink(place.clusterDir, join(dataDir, CLUSTER_NAME));
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
  }
}

function newPlace(home: string, account: Account | undefined): Place {
  return { home, clusterDir: join(home, CLUSTER_NAME), account };
}

async function placeOf(clusterDir: string): Promise<Place> {
  const owner = await ownerOf(clusterDir);
  const home = dirname(clusterDir);
  if (!isRoot()) {
    if (owner.uid === process.getuid?.()) return { home, clusterDir, account: undefined };
    throw refusal(
      `the database in ${clusterDir} belongs to user ${owner.name}: start the service as that user or ` +
        "as root, or give it a DATA_DIR of its own",
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
  try {
    await lstat(path);
  } catch (error) {
    if (hasCode(error, "ENOENT")) return undefined;
    throw error;
  }
  try {
    return await realpath(path);
  } catch (error) {
    throw refusal(
      `${path} is a link to a database that is not there any more: bring it back, or delete the ` +
        "link to begin with an empty one",
      error,
    );
  }
}

async function makeOpenDir(path: string): Promise<void> {
  await makeDirectory(path);
  await chmod(path, 0o755); // Independent of the umask: the account passes through to its cluster.
}
