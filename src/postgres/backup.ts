/**
 * A backup of the embedded PostgreSQL is a copy of its cluster, made while the server runs or not,
 * with a list of its files:
 *
 *   DIR/data                        the files of PostgreSQL, with the log that mends the copy
 *   DIR/password                    the password of its role
 *   DIR/session-ledger-backup.json  the size and the digest of every file; without it DIR is no backup
 *
 * A restore copies them into a DATA_DIR without a database, compares every digest, and the next
 * start replays the log. A copy is made in a directory of another name, which is renamed when all of
 * it is on disk.
 *
 * The embedded package has no pg_basebackup; the copied and the left-out files are those of it.
 * https://www.postgresql.org/docs/current/protocol-replication.html#PROTOCOL-REPLICATION-BASE-BACKUP
 */
import { createHash, hash, randomUUID } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { lchown, lstat, mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { z } from "zod";
import { DRAFT_PREFIX, syncDirectory } from "./cluster.ts";
import { linkCluster, locateCluster, openDataDir, SYSTEM_DIR } from "./cluster-location.ts";
import { lockCluster } from "./lock.ts";
import { type Account, hasCode, refusal, unlessMissing } from "./process.ts";
import type { EmbeddedLog } from "./server.ts";

const LIST = "session-ledger-backup.json";

const listSchema = z.object({
  version: z.literal(1),
  /** An outer directory comes before its inner ones. */
  directories: z.array(z.string()),
  files: z.record(z.string(), z.object({ bytes: z.number(), sha256: z.string() })),
});
type List = z.infer<typeof listSchema>;
type Listed = List["files"][string];

export interface BackupSize {
  readonly files: number;
  readonly bytes: number;
}

/** The part of the log that a copy needs. */
interface BackupLog {
  readonly label: string;
  readonly firstSegment: string;
  readonly lastSegment: string;
}

/** Directories whose content belongs to the running server. */
const WITHOUT_CONTENT: readonly string[] = [
  "pg_dynshmem",
  "pg_notify",
  "pg_replslot",
  "pg_serial",
  "pg_snapshots",
  "pg_stat_tmp",
  "pg_subtrans",
  "pg_wal",
];

const CONTROL = join("data", "global", "pg_control");

const LEFT_OUT =
  /^(?:postmaster\.(?:pid|opts)|pgsql_tmp.*|pg_internal\.init.*|backup_label.*|tablespace_map.*)$/;

export async function openBackup(
  clusterDir: string,
  { directory, signal }: { readonly directory: string; readonly signal: AbortSignal },
) {
  const target = resolve(directory);
  if ((await lstat(target).catch(unlessMissing)) !== undefined)
    throw refusal(`${directory} exists already: a backup goes to a new directory`);
  const draft = `${target}.${randomUUID()}.partial`;
  const files: Record<string, Listed> = {};
  const directories: string[] = [];
  const from = join(clusterDir, "data");

  const copy = async (name: string, options: { readonly mayVanish: boolean }): Promise<void> => {
    const copied = await copyFile(join(clusterDir, name), join(draft, name), signal).catch(
      (error: unknown) => {
        if (options.mayVanish && hasCode(error, "ENOENT")) return undefined;
        throw error;
      },
    );
    if (copied !== undefined) files[name] = copied;
  };
  const make = async (name: string): Promise<void> => {
    await mkdir(join(draft, name), { mode: 0o700 });
    directories.push(name);
  };
  const copyDirectory = async (name: string): Promise<void> => {
    await make(name);
    for (const entry of await readdir(join(clusterDir, name), { withFileTypes: true })) {
      const path = join(name, entry.name);
      if (LEFT_OUT.test(entry.name) || path === CONTROL) continue;
      // pg_wal may be a link to another disk.
      if (WITHOUT_CONTENT.includes(entry.name)) await make(path);
      else if (entry.isDirectory()) await copyDirectory(path);
      else if (entry.isFile()) await copy(path, { mayVanish: true });
      else
        throw refusal(
          `${join(clusterDir, path)} is a tablespace, which no backup has: move its tables`,
        );
    }
  };
  await mkdir(draft, { mode: 0o700 });
  return {
    /** All files but the log and the control file, while the server writes. */
    copyData: async () => {
      await copy("password", { mayVanish: false });
      await copyDirectory("data");
    },
    /** The last of the data, as in pg_basebackup. */
    copyControl: () => copy(CONTROL, { mayVanish: false }),
    copyLog: async ({ label, firstSegment, lastSegment }: BackupLog) => {
      for (const name of await readdir(join(from, "pg_wal"))) {
        const isNeeded = /^[0-9A-F]{24}$/.test(name) && name >= firstSegment && name <= lastSegment;
        if (isNeeded || name.endsWith(".history"))
          await copy(join("data", "pg_wal", name), { mayVanish: false });
      }
      for (const segment of [firstSegment, lastSegment])
        if (files[join("data", "pg_wal", segment)] === undefined)
          throw new Error(`segment ${segment} of the write-ahead log is gone`);
      await make(join("data", "pg_wal", "archive_status"));
      const path = join("data", "backup_label");
      await writeFile(join(draft, path), label, { mode: 0o600, flush: true });
      files[path] = { bytes: Buffer.byteLength(label), sha256: hash("sha256", label, "hex") };
    },
    /** The backup is on disk under its name. */
    complete: async () => {
      const text = `${JSON.stringify({ version: 1, directories, files }, undefined, 1)}\n`;
      await writeFile(join(draft, LIST), text, { mode: 0o600, flush: true });
      await syncAll(draft);
      await rename(draft, target);
      await syncDirectory(dirname(target));
      return sizeOf(files);
    },
    /** Removes an incomplete backup. */
    discard: () => rm(draft, { recursive: true, force: true }),
  };
}

/** Restores a backup as the database of a DATA_DIR that has none. */
export async function restoreBackup(
  directory: string,
  into: { readonly dataDir: string; readonly log: EmbeddedLog; readonly signal: AbortSignal },
): Promise<BackupSize> {
  const { log, signal } = into;
  const list = await listIn(directory);
  const dataDir = await openDataDir(into.dataDir, signal);
  const location = await locateCluster(dataDir, { systemDir: SYSTEM_DIR, log });
  const { home, clusterDir, account } = location;
  const lock = await lockCluster({ home, dataDir });
  try {
    if ((await lstat(clusterDir).catch(unlessMissing)) !== undefined)
      throw refusal(`DATA_DIR has a database already, in ${clusterDir}: name an empty DATA_DIR`);
    const draft = join(home, `${DRAFT_PREFIX}${randomUUID()}`);
    try {
      await copyBack({ directory, draft, signal }, list);
      if (account !== undefined) await giveAll(draft, account);
      await syncAll(draft);
      await rename(draft, clusterDir);
      await syncDirectory(home);
    } catch (error) {
      await rm(draft, { recursive: true, force: true });
      throw error;
    }
    await linkCluster(dataDir, location);
    return sizeOf(list.files);
  } finally {
    await lock.release();
  }
}

function sizeOf(files: List["files"]): BackupSize {
  const all = Object.values(files);
  return { files: all.length, bytes: all.reduce((sum, { bytes }) => sum + bytes, 0) };
}

async function listIn(directory: string): Promise<List> {
  const text = await readFile(join(directory, LIST), "utf8").catch(unlessMissing);
  if (text === undefined)
    throw refusal(`${directory} is no backup, or an incomplete one: it has no ${LIST}`);
  try {
    return listSchema.parse(JSON.parse(text));
  } catch (error) {
    throw refusal(
      `${join(directory, LIST)} cannot be read: a newer version may have written it`,
      error,
    );
  }
}

async function copyBack(
  {
    directory,
    draft,
    signal,
  }: { readonly directory: string; readonly draft: string; readonly signal: AbortSignal },
  { directories, files }: List,
): Promise<void> {
  await mkdir(draft, { mode: 0o700 });
  for (const name of directories) await mkdir(join(draft, name), { mode: 0o700 });
  for (const [name, { bytes, sha256 }] of Object.entries(files)) {
    const copied = await copyFile(join(directory, name), join(draft, name), signal).catch(
      (error) => {
        if (hasCode(error, "ENOENT")) throw refusal(`the backup lacks its file ${name}`, error);
        throw error;
      },
    );
    if (copied.bytes !== bytes || copied.sha256 !== sha256)
      throw refusal(`the file ${name} of the backup has changed since it was written`);
  }
}

/** To the end of the file, also when the server cuts or extends it meanwhile. */
async function copyFile(from: string, to: string, signal: AbortSignal): Promise<Listed> {
  const digest = createHash("sha256");
  let bytes = 0;
  const counting = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      digest.update(chunk);
      bytes += chunk.length;
      done(null, chunk);
    },
  });
  const target = createWriteStream(to, { flags: "wx", mode: 0o600, flush: true });
  await pipeline(createReadStream(from), counting, target, { signal });
  return { bytes, sha256: digest.digest("hex") };
}

async function syncAll(root: string): Promise<void> {
  const entries = await readdir(root, { recursive: true, withFileTypes: true });
  for (const entry of entries)
    if (entry.isDirectory()) await syncDirectory(join(entry.parentPath, entry.name));
  await syncDirectory(root);
}

async function giveAll(root: string, { uid, gid }: Account): Promise<void> {
  const entries = await readdir(root, { recursive: true, withFileTypes: true });
  for (const entry of entries) await lchown(join(entry.parentPath, entry.name), uid, gid);
  await lchown(root, uid, gid);
}
