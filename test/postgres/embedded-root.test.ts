/** The service as root, which PostgreSQL refuses to be. Skipped, by name, for any other user. */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmod,
  chown,
  cp,
  lstat,
  mkdir,
  readFile,
  readdir,
  readlink,
  realpath,
  rm,
  stat,
  writeFile,
} from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { accountNamed } from "../../src/postgres/cluster-location.ts";
import { findBinaries, usableBinaries } from "../../src/postgres/binaries.ts";
import { createEmbeddedPostgres } from "../../src/postgres/embedded-postgres.ts";
import {
  IS_ROOT,
  addRow,
  cleanUp,
  countRows,
  makeDirectory,
  recordingLog,
} from "../support/embedded-fixture.ts";

type EmbeddedPostgres = ReturnType<typeof createEmbeddedPostgres>;

afterAll(cleanUp);

/** A project in a home directory that others cannot enter. */
async function closedHome(): Promise<{
  readonly dataDir: string;
  readonly systemDir: string;
  readonly log: ReturnType<typeof recordingLog>;
  readonly unit: () => EmbeddedPostgres;
}> {
  const dataDir = join(await makeDirectory(0o700), "project", ".data");
  const systemDir = join(await makeDirectory(), "session-ledger");
  const log = recordingLog();
  return {
    dataDir,
    systemDir,
    log,
    unit: () => createEmbeddedPostgres({ dataDir, log, systemDir }),
  };
}

/** The user that owns the cluster; empty: no cluster. */
async function ownersIn(dataDir: string): Promise<readonly number[]> {
  const found = await stat(join(dataDir, "postgres")).catch(() => undefined);
  return found === undefined ? [] : [found.uid];
}

describe.runIf(IS_ROOT)("as root", () => {
  test("the server runs as the user postgres, which owns the cluster", async () => {
    const dataDir = await makeDirectory();
    const unit = createEmbeddedPostgres({ dataDir, log: recordingLog() });
    await unit.start();
    const uid = (await accountNamed("postgres"))?.uid;
    const [pid] = (await readFile(join(dataDir, "postgres/data/postmaster.pid"), "utf8")).split(
      "\n",
    );
    expect((await stat(`/proc/${pid}`)).uid).toBe(uid);
    expect((await stat(join(dataDir, "postgres"))).uid).toBe(uid);
    await unit.stop();
  });

  test("a cluster of another user continues under that user", async () => {
    const dataDir = await makeDirectory();
    const first = createEmbeddedPostgres({ dataDir, log: recordingLog() });
    await first.start();
    await addRow(first.url);
    await first.stop();
    execFileSync("chown", ["-R", "nobody", join(dataDir, "postgres")]);
    const second = createEmbeddedPostgres({ dataDir, log: recordingLog() });
    await second.start();
    expect(await countRows(second.url)).toBe(1);
    await second.stop();
  });

  test.each([
    [
      "runs as nobody without a user postgres",
      ["nobody:x:65534:65534::/:/bin/false"],
      "postgres://",
    ],
    ["is refused without any of both users", [], "neither user postgres nor user nobody exists"],
  ])("the server %s", async (_, users, expected) => {
    const dataDir = await makeDirectory();
    const passwd = join(await makeDirectory(), "passwd");
    await writeFile(passwd, ["root:x:0:0::/root:/bin/sh", ...users, ""].join("\n"));
    const script = fileURLToPath(new URL("../support/embedded-owner.ts", import.meta.url));
    // Systemd's module of nsswitch always finds nobody.
    const switches = join(await makeDirectory(), "nsswitch.conf");
    await writeFile(switches, "passwd: files\ngroup: files\n");
    const mounted =
      'mount --bind "$1" /etc/passwd && mount --bind "$2" /etc/nsswitch.conf && shift 2 && exec "$@"';
    const command = [
      "sh",
      "-c",
      mounted,
      "sh",
      passwd,
      switches,
      process.execPath,
      script,
      dataDir,
    ];
    const owner = spawn("unshare", ["--mount", ...command], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const ended = once(owner, "exit"); // A refused one ends by itself.
    onTestFinished(() => void owner.kill("SIGKILL"));
    const [line] = await once(createInterface({ input: owner.stdout }), "line");
    expect(String(line)).toContain(expected);
    const uids = users.map(() => 65_534);
    expect(await ownersIn(dataDir)).toEqual(uids);
    owner.kill("SIGTERM");
    await ended;
  });

  test("regression: initdb ended under a user without an entry in /etc/passwd", async () => {
    const dataDir = await makeDirectory();
    await chown(dataDir, 12_345, 0);
    const script = fileURLToPath(new URL("../support/embedded-owner.ts", import.meta.url));
    const as = ["--reuid", "12345", "--regid", "0", "--clear-groups"];
    const owner = spawn("setpriv", [...as, process.execPath, script, dataDir], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const [line] = await once(createInterface({ input: owner.stdout }), "line");
    const { url } = z.object({ url: z.string() }).parse(JSON.parse(String(line)));
    await addRow(url);
    expect(await countRows(url)).toBe(1);
    owner.kill("SIGKILL");
    await once(owner, "exit");
    expect((await readdir(dataDir)).filter((name) => name.includes("postgresql"))).toEqual([]);
  });

  describe("under a directory of mode 700", () => {
    test("the cluster is kept elsewhere, which is logged once, and is found again", async () => {
      const { dataDir, systemDir, log, unit } = await closedHome();
      const first = unit();
      await first.start();
      await addRow(first.url);
      await first.stop();
      const second = unit();
      await second.start();
      expect(await countRows(second.url)).toBe(1);
      await second.stop();
      const [hash = ""] = await readdir(systemDir);
      expect(await realpath(join(dataDir, "postgres"))).toBe(join(systemDir, hash, "postgres"));
      const told = log.entries.filter(({ event }) => event === "embedded_postgres_moved");
      expect(told.map(({ fields }) => fields)).toEqual([
        { dataDir, home: join(systemDir, hash), user: "postgres" },
      ]);
    });

    test("the cluster is found again after the directory was opened, moved or deleted", async () => {
      const { dataDir, systemDir, log, unit } = await closedHome();
      const first = unit();
      await first.start();
      await addRow(first.url);
      await first.stop();

      await chmod(join(dataDir, "..", ".."), 0o755);
      const opened = unit();
      await opened.start();
      expect(await countRows(opened.url)).toBe(1);
      await opened.stop();

      await opened.start();
      const copy = join(await makeDirectory(), "moved");
      await cp(dataDir, copy, {
        recursive: true,
        verbatimSymlinks: true,
        filter: (path) => !path.includes("session-ledger."),
      });
      const moved = createEmbeddedPostgres({ dataDir: copy, log, systemDir });
      await expect(moved.start()).rejects.toThrow("in use by session-ledger process");
      await opened.stop();
      await moved.start();
      expect(await countRows(moved.url)).toBe(1);
      await moved.stop();

      await rm(dataDir, { recursive: true });
      const deleted = unit();
      await deleted.start();
      expect(await countRows(deleted.url)).toBe(1);
      await deleted.stop();
    });

    test("a link to a missing cluster is refused and not taken for an empty one", async () => {
      const { systemDir, unit } = await closedHome();
      const first = unit();
      await first.start();
      await first.stop();
      await rm(systemDir, { recursive: true });
      await expect(unit().start()).rejects.toThrow(
        /link to a database that does not exist any more/,
      );
    });

    test("a cluster that its user can no longer enter is refused by name", async () => {
      const parent = await makeDirectory();
      const dataDir = join(parent, ".data");
      const unit = createEmbeddedPostgres({ dataDir, log: recordingLog() });
      await unit.start();
      await unit.stop();
      await chmod(parent, 0o700);
      await expect(unit.start()).rejects.toThrow(/user postgres.* cannot enter.*chmod o\+x/);
    });

    test("the binaries are copied with their links, once for each version", async () => {
      const found = await findBinaries();
      const closed = await makeDirectory(0o700);
      const home = await makeDirectory();
      const log = recordingLog();
      const account = await accountNamed("nobody");
      const installed = join(closed, "native");
      await cp(found.directory, installed, { recursive: true, verbatimSymlinks: true });
      const use = (packageVersion: string): Promise<{ readonly directory: string }> =>
        usableBinaries({ directory: installed, packageVersion }, { account, home, log });

      await mkdir(join(home, "session-ledger-postgresql-new-killed"));
      const { directory } = await use("1");
      expect(directory).toBe(join(home, "session-ledger-postgresql-1"));
      const link = join(directory, "lib", "libicuuc.so.60");
      expect((await lstat(link)).isSymbolicLink()).toBe(true);
      expect(await readlink(link)).toBe("libicuuc.so.60.2");
      const { ino } = await stat(directory);
      await use("1");
      expect((await stat(directory)).ino).toBe(ino);
      await use("2");
      expect(await readdir(home)).toEqual(["session-ledger-postgresql-2"]);
      expect(log.entries.map(({ event }) => event)).toContain("embedded_postgres_binaries_copied");
    });
  });
});
