/**
 * Faults of a whole database: a copy of a stopped server, kept as a backup, or run as a standby that
 * follows the server, falls behind, and takes its place.
 *
 * Of the programs of PostgreSQL only `postgres` is used: the embedded package has no pg_basebackup, and
 * the files of a server that was stopped normally are a base backup.
 */
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { appendFile, mkdir, readdir, readlink, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { findBinaries, programPath, usableBinaries } from "../../src/postgres/binaries.ts";
import { locateCluster, SYSTEM_DIR } from "../../src/postgres/cluster-location.ts";
import { spawnAs } from "../../src/postgres/process.ts";
import { randomPort, serverArguments, serverState } from "../../src/postgres/server.ts";
import { makeDebianDirectory, runDebian, startDebianOn } from "./debian-postgres.ts";
import { makeDirectory, pgDataIn, recordingLog, withSql } from "./embedded-fixture.ts";
import { eventually } from "./eventually.ts";

const run = promisify(execFile);

/** Copies the files of an embedded server that was stopped normally; resolves with their DATA_DIR. */
export async function copyOfStopped(dataDir: string): Promise<string> {
  const copy = await makeDirectory();
  await copyInto(dataDir, copy);
  return copy;
}

/** Replaces the files of a stopped server by those of the copy. */
export async function restore(copy: string, dataDir: string): Promise<void> {
  await rm(join(dataDir, "postgres"), { recursive: true });
  await copyInto(copy, dataDir);
}

async function copyInto(from: string, to: string): Promise<void> {
  await run("cp", ["-a", join(from, "postgres"), join(to, "postgres")]);
  const links = join(pgDataIn(to), "pg_tblspc");
  for (const name of await readdir(links)) {
    const original = await readlink(join(links, name));
    const own = join(to, "tablespaces", name);
    await mkdir(join(to, "tablespaces"), { recursive: true });
    await run("cp", ["-a", original, own]);
    await rm(join(links, name));
    await symlink(own, join(links, name));
  }
}

/** A server that follows another one until it is promoted. */
export class Standby implements AsyncDisposable {
  readonly url: string;
  readonly #end: () => Promise<unknown>;

  private constructor(url: string, end: () => Promise<unknown>) {
    this.url = url;
    this.#end = end;
  }

  /** Of one of Debian's servers, which continues to run. */
  static async ofDebian(primaryUrl: string): Promise<Standby> {
    const base = join(await makeDebianDirectory(), "base");
    await runDebian("pg_basebackup", [
      "--checkpoint=fast",
      "--write-recovery-conf",
      `--pgdata=${base}`,
      `--dbname=${primaryUrl}`,
    ]);
    const server = await startDebianOn(base, ["wal_retrieve_retry_interval = '100ms'"]);
    return new Standby(server.url, () => server.stop());
  }

  /** `dataDir`: a copy of the server at `primaryUrl`, which runs again. */
  static async start(dataDir: string, primaryUrl: string): Promise<Standby> {
    const log = recordingLog();
    const location = await locateCluster(dataDir, { systemDir: SYSTEM_DIR, log });
    const binaries = await usableBinaries(await findBinaries(), { ...location, log });
    const pgData = pgDataIn(dataDir);
    const { hostname: host, port: primaryPort, username: user, password } = new URL(primaryUrl);
    const primary = `host=${host} port=${primaryPort} user=${user} password=${password}`;
    // Only its own line is added to files of the server's user; the new file is empty.
    await writeFile(join(pgData, "standby.signal"), "", { mode: 0o644 });
    await appendFile(
      join(pgData, "postgresql.auto.conf"),
      `primary_conninfo = '${primary}'\nwal_retrieve_retry_interval = '100ms'\n`,
    );
    const port = randomPort();
    const child = spawn(programPath(binaries, "postgres"), [...serverArguments({ pgData, port })], {
      ...spawnAs(location.account),
      stdio: "ignore",
    });
    const url = new URL(primaryUrl);
    url.port = String(port);
    await eventually(async () => {
      const state = await serverState(pgData, child.pid ?? -1);
      if (state !== "ready") throw new Error(`the standby is ${state ?? "not there"}`);
    });
    return new Standby(url.href, () => endOf(child));
  }

  /** Resolves when all present commits of the other server are here. */
  async caughtUp(primaryUrl: string): Promise<void> {
    const [at] = await withSql(
      primaryUrl,
      (sql) => sql<{ lsn: string }[]>`select pg_current_wal_flush_lsn()::text as lsn`,
    );
    await eventually(async () => {
      const [is] = await withSql(
        this.url,
        (sql) => sql<{ there: boolean }[]>`
          select pg_last_wal_replay_lsn() >= ${at?.lsn ?? ""}::pg_lsn as there`,
      );
      if (is?.there !== true) throw new Error("the standby is behind");
    });
  }

  /** From now on it receives nothing more from the other server. */
  async fallBehind(): Promise<void> {
    await withSql(this.url, async (sql) => {
      await sql.unsafe("alter system set primary_conninfo = ''");
      await sql`select pg_reload_conf()`;
    });
    await eventually(async () => {
      const receivers = await withSql(this.url, (sql) => sql`select 1 from pg_stat_wal_receiver`);
      if (receivers.length > 0) throw new Error("the standby still follows");
    });
  }

  /** Resolves when it accepts writes. */
  async promote(): Promise<void> {
    await withSql(this.url, (sql) => sql`select pg_promote()`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#end();
  }
}

async function endOf(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill("SIGINT");
  await ended;
}
