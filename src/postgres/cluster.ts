/**
 * The directory with PostgreSQL's data, made once. initdb works in a directory of another name,
 * which is renamed when it is complete. A start that was killed in the middle leaves a draft, which
 * the next start deletes, and never half a cluster.
 *
 * Access: the server listens on 127.0.0.1, which every user of the machine can reach, and requires
 * a password by SCRAM. The password is random and made with the cluster. It is in a file beside the
 * cluster of mode 0600, in a directory of mode 0700. No unix socket is used, for three reasons. As
 * root its directory would have to be shared with another user. Its path may have only about a
 * hundred bytes, which a DATA_DIR easily exceeds. And database tools take a URL with a port.
 */
import { randomBytes, randomUUID } from "node:crypto";
import {
  lchown,
  mkdir,
  open,
  readFile,
  readdir,
  realpath,
  rename,
  rm,
  symlink,
  writeFile,
} from "node:fs/promises";
import { join } from "node:path";
import { type UsableBinaries, programPath } from "./binaries.ts";
import type { ClusterLocation } from "./cluster-location.ts";
import { type Account, hasCode, refusal, runProgram, unlessMissing } from "./process.ts";
import { readyPort } from "./server.ts";

/** The one role of a new cluster, and its one database. */
const ROLE = "postgres";

/** Directories with this prefix are deleted, so no other program may use it. */
export const DRAFT_PREFIX = "session-ledger-initdb-";

interface ClusterOptions {
  readonly binaries: UsableBinaries;
  readonly signal: AbortSignal;
}

/** The directory that PostgreSQL calls PGDATA. */
export function pgDataOf(location: ClusterLocation): string {
  return join(location.clusterDir, "data");
}

/** Resolves with the password of the cluster at that location; makes it when it does not exist. */
export async function openCluster(
  location: ClusterLocation,
  options: ClusterOptions,
): Promise<string> {
  const directory = location.clusterDir;
  const pgData = pgDataOf(location);
  for (const name of await readdir(location.home)) {
    if (name.startsWith(DRAFT_PREFIX)) await removeDraft(join(location.home, name));
  }
  const found = await readFile(join(pgData, "PG_VERSION"), "utf8").catch(unlessMissing);
  const [majorVersion] = options.binaries.version.split(".", 1);
  if (found === undefined) await makeCluster(location, options);
  else if (found.trim() !== majorVersion) {
    throw refusal(
      `the database in ${directory} was made by PostgreSQL ${found.trim()}, and this session-ledger ` +
        `brings PostgreSQL ${majorVersion}, which cannot read it: start the ` +
        "session-ledger that made it, save it with `session-ledger dump`, and restore it into a new DATA_DIR",
    );
  }
  const password = await readFile(join(directory, "password"), "utf8").catch(unlessMissing);
  if (password !== undefined) return password.trim();
  throw refusal(
    `${join(directory, "password")} is missing: bring it back from a backup; the database next to it ` +
      "takes no other password",
  );
}

/** The URL of the server that another process runs in that DATA_DIR. */
export async function runningUrl(dataDir: string): Promise<string> {
  const running = await runningServer(dataDir);
  if (running !== undefined) return running.url;
  throw refusal(
    `no embedded PostgreSQL runs in ${join(dataDir, "postgres")}: start the service with that DATA_DIR`,
  );
}

/** The server that another process runs in that DATA_DIR; undefined: none. */
export async function runningServer(
  dataDir: string,
): Promise<{ readonly url: string; readonly clusterDir: string } | undefined> {
  const clusterDir = await realpath(join(dataDir, "postgres")).catch((error: unknown) => {
    if (!hasCode(error, "ENOTDIR")) return unlessMissing(error);
    throw refusal(`DATA_DIR ${dataDir} is a file, and no directory`, error);
  });
  if (clusterDir === undefined) return undefined;
  const port = await readyPort(join(clusterDir, "data"));
  if (port === undefined) return undefined;
  const password = (await readFile(join(clusterDir, "password"), "utf8")).trim();
  return { url: connectionUrl({ password, port }), clusterDir };
}

export function connectionUrl(to: { readonly password: string; readonly port: number }): string {
  return `postgres://${ROLE}:${to.password}@127.0.0.1:${to.port}/${ROLE}`;
}

async function makeCluster(location: ClusterLocation, options: ClusterOptions): Promise<void> {
  const draft = join(location.home, `${DRAFT_PREFIX}${randomUUID()}`);
  try {
    await withNamelessUser(options.binaries, location.home, (binaries) =>
      fillDraft(draft, location.account, { ...options, binaries }),
    );
    await syncDirectory(draft);
    await rename(draft, location.clusterDir).catch((error: unknown) => {
      if (!hasCode(error, "ENOTEMPTY", "EEXIST", "ENOTDIR")) throw error;
      throw refusal(`${location.clusterDir} exists, but is no database of session-ledger`, error);
    });
    // Without this, a power cut could undo the rename, and lose every row.
    await syncDirectory(location.home);
  } catch (error) {
    await removeDraft(draft);
    throw error;
  }
}

/**
 * The programs for a user without a name, as containers run them under a number (`--user 12345`,
 * OpenShift). initdb, and the postgres that it starts, end when getpwuid finds no user, although
 * they do not need the name here (`--username` names the role). libc finds users only through its
 * own modules, so the copy calls getpwent in place of getpwuid and gets the first entry of the list
 * of users. Both names have eight letters, and occur once in the table of imported symbols. The
 * server itself needs no name, so the copy may be removed once the cluster is made.
 */
async function withNamelessUser(
  found: UsableBinaries,
  home: string,
  work: (binaries: UsableBinaries) => Promise<void>,
): Promise<void> {
  const uid = String(process.getuid?.());
  const { code } = await runProgram("id", ["-un"]);
  if (code === 0 || uid === "0" || process.platform !== "linux") return work(found);
  const directory = join(home, `${DRAFT_PREFIX}${randomUUID()}`);
  try {
    await mkdir(join(directory, "bin"), { recursive: true });
    for (const name of ["lib", "share"])
      await symlink(join(found.directory, name), join(directory, name));
    for (const name of ["initdb", "postgres"] as const) {
      const program = await readFile(programPath(found, name));
      const at = program.indexOf("\0getpwuid\0");
      if (at >= 0) program.write("getpwent", at + 1, "latin1");
      await writeFile(programPath({ ...found, directory }, name), program, { mode: 0o755 });
    }
    return await work({ ...found, directory });
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

async function fillDraft(
  draft: string,
  account: Account | undefined,
  { binaries, signal }: ClusterOptions,
): Promise<void> {
  await mkdir(draft, { mode: 0o700 });
  const passwordFile = join(draft, "password");
  await writeFile(passwordFile, `${randomBytes(24).toString("base64url")}\n`, {
    flag: "wx",
    mode: 0o600,
    flush: true,
  });
  if (account !== undefined) await giveTo(account, [passwordFile, draft]);
  const args = [
    `--pgdata=${join(draft, "data")}`,
    `--username=${ROLE}`,
    `--pwfile=${passwordFile}`,
    "--auth=scram-sha-256",
    "--encoding=UTF8",
    // PostgreSQL's own C.UTF-8: the same order on every machine and libc, so indexes stay valid.
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--data-checksums",
  ];
  const run = { account, timeoutMs: 60_000, signal }; // It syncs a new cluster of about 40 MB.
  const outcome = await runProgram(programPath(binaries, "initdb"), args, run);
  signal.throwIfAborted();
  if (outcome.code === 0) return;
  const reason = outcome.spawnError?.message ?? outcome.output.trim();
  throw refusal(
    `PostgreSQL could not make its database in ${draft}: ${reason}`,
    outcome.spawnError,
  );
}

async function giveTo(account: Account, paths: readonly string[]): Promise<void> {
  try {
    // Not chown: a user of DATA_DIR must not make root change the owner of a link's target.
    for (const path of paths) await lchown(path, account.uid, account.gid);
  } catch (error) {
    throw refusal(
      `the database cannot be given to user ${account.name}, who has to run it: put DATA_DIR on a ` +
        "file system that knows users, or start the service as another user than root",
      error,
    );
  }
}

/** Best effort: the initdb of a killed service may still write; the next start tries again. */
async function removeDraft(draft: string): Promise<void> {
  await rm(draft, { recursive: true, force: true, maxRetries: 3 }).catch(() => undefined);
}

export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, "r");
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
