/** The embedded server after a SIGKILL, of whatever part of it, at whatever moment. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import postgres from "postgres";
import { afterAll, afterEach, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { ownerOf } from "../../src/postgres/cluster-location.ts";
import { createEmbeddedPostgres } from "../../src/postgres/embedded-postgres.ts";
import {
  IS_ROOT,
  addRow,
  cleanUp,
  countRows,
  endProcess,
  makeDirectory,
  pgDataIn,
  postmasterPid,
  recordingLog,
  remainsIn,
  runningPostmaster,
  spawnOwner,
  startOwner,
  withSql,
} from "../support/embedded-fixture.ts";

type EmbeddedPostgres = ReturnType<typeof createEmbeddedPostgres>;

let dataDir: string;
let log: ReturnType<typeof recordingLog>;
let unit: EmbeddedPostgres;

beforeEach(async () => {
  dataDir = await makeDirectory();
  log = recordingLog();
  unit = createEmbeddedPostgres({ dataDir, log });
});

afterEach(() => unit.stop());
afterAll(cleanUp);

/** A backend that computes until `end`, and so does not notice that its postmaster has died. */
async function startBusyBackend(url: string): Promise<{ end(): Promise<void> }> {
  const endFile = join(await makeDirectory(), "end");
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  onTestFinished(() => sql.end({ timeout: 0 }));
  const block = `begin while (pg_stat_file('${endFile}', true)).size is null loop end loop; end`;
  sql`do ${sql.unsafe(`$$ ${block} $$`)}`.catch(() => undefined);
  const isBusy = (): Promise<readonly unknown[]> =>
    withSql(
      url,
      (seen) => seen`select 1 from pg_stat_activity where query like 'do $$%' and state = 'active'`,
    );
  await expect.poll(isBusy).toHaveLength(1);
  return { end: () => writeFile(endFile, "") };
}

/** The file the killed server left, with its pid given to another living process of the same user. */
async function giveAwayPid(): Promise<number> {
  const path = join(pgDataIn(dataDir), "postmaster.pid");
  const { uid, gid } = await ownerOf(pgDataIn(dataDir));
  const stranger = spawn("sleep", ["60"], { stdio: "ignore", ...(IS_ROOT ? { uid, gid } : {}) });
  onTestFinished(() => void stranger.kill());
  await once(stranger, "spawn");
  const lines = (await readFile(path, "utf8")).split("\n");
  await writeFile(path, [stranger.pid, ...lines.slice(1)].join("\n"));
  return stranger.pid ?? -1;
}

describe("after a SIGKILL of the service", () => {
  test("the running server is stopped, and every row exists", async () => {
    const owner = await startOwner(dataDir);
    await addRow(owner.url);
    const leftover = await runningPostmaster(dataDir);
    await owner.kill("SIGKILL");
    // Its log has no reader any more; that must not end it before we do.
    await withSql(owner.url, async (sql) => {
      await expect(sql`select 1 / 0`).rejects.toThrow("division by zero");
    });
    await addRow(owner.url);
    await unit.start();
    expect(await countRows(unit.url)).toBe(2);
    const { fields } = await log.until("embedded_postgres_leftover_stopped");
    expect(fields).toEqual({ pid: leftover, signal: "SIGINT" });
    expect(await runningPostmaster(dataDir)).not.toBe(leftover);
  });

  test("and of the server, PostgreSQL replays its log, and every row exists", async () => {
    const owner = await startOwner(dataDir);
    await addRow(owner.url);
    const postmaster = await runningPostmaster(dataDir);
    await owner.kill("SIGKILL");
    endProcess(postmaster);
    await unit.start();
    expect(await countRows(unit.url)).toBe(1);
    expect(JSON.stringify(log.entries)).toContain("automatic recovery in progress");
  });

  test("a pid file whose pid belongs to another process does not stop the start", async () => {
    const owner = await startOwner(dataDir);
    await addRow(owner.url);
    const postmaster = await runningPostmaster(dataDir);
    await owner.kill("SIGKILL");
    endProcess(postmaster);
    const stranger = await giveAwayPid();
    await unit.start();
    expect(await countRows(unit.url)).toBe(1);
    expect((await log.until("embedded_postgres_stale_pid_replaced")).fields).toEqual({
      pid: stranger,
    });
    expect(() => process.kill(stranger, 0)).not.toThrow(); // It is another process.
  });

  test("a start waits for a backend that outlives its server, though the pid file is stale", async () => {
    const owner = await startOwner(dataDir);
    await addRow(owner.url);
    const busy = await startBusyBackend(owner.url);
    const postmaster = await runningPostmaster(dataDir);
    await owner.kill("SIGKILL");
    endProcess(postmaster);
    await giveAwayPid();
    const started = unit.start();
    expect((await log.until("embedded_postgres_start_tried_again")).fields).toEqual({
      failure: "memory_in_use",
    });
    await busy.end();
    await started;
    expect(await countRows(unit.url)).toBe(1);
  });

  test("an empty pid file does not stop the start", async () => {
    const owner = await startOwner(dataDir);
    await owner.kill("SIGTERM");
    await writeFile(join(pgDataIn(dataDir), "postmaster.pid"), "");
    await unit.start();
    expect(await postmasterPid(dataDir)).toBeGreaterThan(0);
  });

  test("during initdb, the next start begins again and leaves no draft", async () => {
    const owner = spawnOwner(dataDir);
    const drafts = async (): Promise<readonly string[]> =>
      (await readdir(dataDir, { recursive: true })).filter((name) =>
        name.startsWith("session-ledger-initdb"),
      );
    await expect.poll(async () => (await drafts()).length, { interval: 2 }).toBeGreaterThan(20);
    await owner.kill("SIGKILL");
    await unit.start();
    await addRow(unit.url);
    await unit.stop();
    await unit.start(); // The initdb of the killed service may have outlived the first clean-up.
    expect(await drafts()).toEqual([]);
    expect(await countRows(unit.url)).toBe(1);
  });
});

describe("after a SIGKILL of the server", () => {
  test("the unit starts it again on its port, and an open pool continues", async () => {
    await unit.start();
    await addRow(unit.url);
    const pool = postgres(unit.url, { max: 4, onnotice: () => undefined });
    onTestFinished(() => pool.end({ timeout: 1 }));
    await Promise.all([1, 2, 3, 4].map(() => pool`select pg_sleep(0.01)`));
    const before = await runningPostmaster(dataDir);
    endProcess(before);
    expect((await log.until("embedded_postgres_died")).fields).toEqual({
      pid: before,
      exit: "SIGKILL",
    });
    await log.until("embedded_postgres_restarted");
    // The first statements may still find a dead connection: a caller retries, and so do we.
    await expect
      .poll(() => pool`insert into kept default values`.then(() => "in", String))
      .toBe("in");
    expect(await countRows(unit.url)).toBe(2);
  });

  test("the unit starts it again each time", async () => {
    await unit.start();
    const pids = new Set<number>();
    for (let round = 0; round < 3; round += 1) {
      await expect.poll(() => addRow(unit.url).then(() => "in", String)).toBe("in");
      const pid = await runningPostmaster(dataDir);
      pids.add(pid);
      endProcess(pid);
    }
    await expect.poll(() => countRows(unit.url).catch(() => -1)).toBe(3);
    expect(pids.size).toBe(3);
  });

  test("the kill of one backend does not end the server", async () => {
    await unit.start();
    const postmaster = await runningPostmaster(dataDir);
    const backend = await withSql(unit.url, async (sql) => {
      const [row] = await sql<{ pid: number }[]>`select pg_backend_pid() as pid`;
      endProcess(row?.pid ?? -1);
      return row?.pid;
    });
    expect(backend).toBeGreaterThan(0);
    await expect.poll(() => addRow(unit.url).then(() => "in", String)).toBe("in");
    expect(await runningPostmaster(dataDir)).toBe(postmaster);
  });

  test("a stop works while the server is down", async () => {
    await unit.start();
    endProcess(await runningPostmaster(dataDir));
    await log.until("embedded_postgres_died");
    await unit.stop();
    expect(log.entries.map((entry) => entry.event)).not.toContain("embedded_postgres_restarted");
    const again = createEmbeddedPostgres({ dataDir, log });
    await again.start();
    await again.stop();
    expect(await remainsIn(dataDir)).toEqual([]);
  });
});

describe("a stop that takes too long", () => {
  test("becomes an immediate shutdown, and every row exists afterwards", async () => {
    const impatient = createEmbeddedPostgres({ dataDir, log, fastStopMs: 1 });
    await impatient.start();
    await addRow(impatient.url);
    // A fast stop waits for each backend, so a suspended one holds it back until the second signal.
    const backend = await suspendedBackend(impatient.url);
    const stopping = impatient.stop();
    await expect
      .poll(() => JSON.stringify(log.entries))
      .toContain("received immediate shutdown request");
    process.kill(backend, "SIGCONT");
    await stopping;
    expect((await log.until("embedded_postgres_stopped")).fields).toEqual({ signal: "SIGQUIT" });
    await unit.start();
    expect(await countRows(unit.url)).toBe(1);
  });
});

/** The process of a connection that stays open. */
async function suspendedBackend(url: string): Promise<number> {
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  onTestFinished(() => sql.end({ timeout: 0 }));
  const [row] = await sql<{ pid: number }[]>`select pg_backend_pid() as pid`;
  const pid = row?.pid ?? -1;
  process.kill(pid, "SIGSTOP");
  return pid;
}
