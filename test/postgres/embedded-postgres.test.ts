/** The embedded server in everyday life: made once, started again, durable, closed to others. */
import { spawnSync } from "node:child_process";
import { readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { findBinaries } from "../../src/postgres/binaries.ts";
import { createEmbeddedPostgres } from "../../src/postgres/embedded-postgres.ts";
import { serverArguments } from "../../src/postgres/server.ts";
import {
  IS_ROOT,
  addRow,
  cleanUp,
  countRows,
  listens,
  makeDirectory,
  pgDataIn,
  recordingLog,
  remainsIn,
  runningPostmaster,
  withSql,
} from "../support/embedded-fixture.ts";
import { describeUnitContract } from "../support/unit-contract.ts";

type EmbeddedPostgres = ReturnType<typeof createEmbeddedPostgres>;

let dataDir: string;

function unitIn(directory: string): EmbeddedPostgres {
  return createEmbeddedPostgres({ dataDir: directory, log: recordingLog() });
}

beforeAll(async () => {
  dataDir = await makeDirectory();
});

afterAll(cleanUp);

describeUnitContract("the embedded server", {
  create: () => unitIn(dataDir), // One cluster for all: initdb is the slow part.
  isOfUse: ({ url }) => listens(url),
  remains: () => remainsIn(dataDir),
  broken: {
    create: async () => {
      const directory = await makeDirectory();
      await writeFile(join(directory, "postgres"), "in the way");
      return unitIn(directory);
    },
    failure: /postgres/,
  },
});

describe("the embedded server", () => {
  test("keeps its rows through stops and starts, of the same unit and of a new one", async () => {
    const first = unitIn(dataDir);
    await first.start();
    await addRow(first.url);
    await first.stop();
    expect(await listens(first.url)).toBe(false);
    await first.start();
    await addRow(first.url);
    await first.stop();
    const second = unitIn(dataDir);
    await second.start();
    expect(await countRows(second.url)).toBe(2);
    await second.stop();
  });

  test("can be started again after a start that failed", async () => {
    const owner = unitIn(dataDir);
    const waiting = unitIn(dataDir);
    await owner.start();
    await expect(waiting.start()).rejects.toThrow("in use");
    await owner.stop();
    await waiting.start();
    await waiting.stop();
  });

  test("stopped during initdb leaves no cluster, and start rejects with the reason", async () => {
    const directory = await makeDirectory();
    const unit = unitIn(directory);
    const started = unit.start();
    await Promise.all([
      expect(started).rejects.toMatchObject({ code: "unavailable", reason: "SHUTTING_DOWN" }),
      unit.stop(),
    ]);
    expect(await remainsIn(directory)).toEqual([]);
    await expect(stat(join(directory, "postgres"))).rejects.toThrow("ENOENT");
  });

  test("has no URL before its first start", () => {
    expect(() => unitIn(dataDir).url).toThrow("never started");
  });
});

describe("a running embedded server", () => {
  const log = recordingLog();
  let server: EmbeddedPostgres;

  beforeAll(async () => {
    server = createEmbeddedPostgres({ dataDir, log });
    await server.start();
  });

  afterAll(() => server.stop());

  const ask = (setting: string): Promise<string | undefined> =>
    withSql(server.url, async (sql) => {
      const [row] = await sql<{ value: string }[]>`select current_setting(${setting}) as value`;
      return row?.value;
    });

  test.each([
    ["fsync", "on"],
    ["synchronous_commit", "on"],
    ["full_page_writes", "on"],
    ["data_checksums", "on"],
    ["server_encoding", "UTF8"],
    ["listen_addresses", "127.0.0.1"],
    ["unix_socket_directories", ""],
  ])("%s is %j", async (setting, value) => {
    expect(await ask(setting)).toBe(value);
  });

  test("compares text by code point, in an order that no libc changes", async () => {
    const [row] = await withSql(
      server.url,
      (sql) => sql<{ datlocprovider: string; datlocale: string }[]>`
        select datlocprovider, datlocale from pg_database where datname = current_database()`,
    );
    expect(row).toEqual({ datlocprovider: "b", datlocale: "C.UTF-8" });
  });

  test.each([
    ["no password", (url: URL) => (url.password = "")],
    ["a wrong password", (url: URL) => (url.password = "guess")],
  ])("refuses a connection with %s", async (_, change) => {
    const url = new URL(server.url);
    change(url);
    await expect(withSql(url.href, (sql) => sql`select 1`)).rejects.toThrow(
      /password authentication failed|no password/i,
    );
  });

  test("keeps its password and its cluster to its own user", async () => {
    expect((await stat(join(dataDir, "postgres"))).mode & 0o777).toBe(0o700);
    expect((await stat(join(dataDir, "postgres", "password"))).mode & 0o777).toBe(0o600);
  });

  test.runIf(IS_ROOT)("as root: another user cannot read the password", () => {
    const nobody = { uid: 65_534, gid: 65_534, encoding: "utf8" } as const;
    const cat = spawnSync("cat", [join(dataDir, "postgres", "password")], nobody);
    expect(cat.stderr).toContain("Permission denied");
    expect(cat.stdout).toBe("");
  });

  test("has its own process group, so that Ctrl-C reaches only the service", async () => {
    const pid = await runningPostmaster(dataDir);
    const group = spawnSync("ps", ["-o", "pgid=", "-p", String(pid)], { encoding: "utf8" });
    expect(Number(group.stdout)).toBe(pid);
  });

  test("logs that a statement failed, without its values", async () => {
    await withSql(server.url, async (sql) => {
      await sql`create temporary table said (words text primary key)`;
      await sql`insert into said values ('the caller said this')`;
      await expect(sql`insert into said values ('the caller said this')`).rejects.toThrow(
        "duplicate key",
      );
    });
    await log.until("embedded_postgres_log");
    await expect
      .poll(() => JSON.stringify(log.entries))
      .toContain("duplicate key value violates unique constraint");
    expect(JSON.stringify(log.entries)).not.toContain("the caller said this");
  });

  test("never logs its password", () => {
    expect(JSON.stringify(log.entries)).not.toContain(new URL(server.url).password);
  });
});

describe("the embedded server refuses with a clear error", () => {
  test("a database of another major version", async () => {
    const path = join(pgDataIn(dataDir), "PG_VERSION");
    const own = await readFile(path, "utf8");
    await writeFile(path, "17\n");
    await expect(unitIn(dataDir).start()).rejects.toThrow(
      /made by PostgreSQL 17.*brings PostgreSQL 18.*session-ledger dump/,
    );
    await writeFile(path, own);
    const unit = unitIn(dataDir);
    await unit.start(); // The refused start changed nothing.
    await unit.stop();
  });

  test("a DATA_DIR that cannot be created", async () => {
    const file = join(await makeDirectory(), "file");
    await writeFile(file, "");
    await expect(unitIn(join(file, "data")).start()).rejects.toThrow(
      /DATA_DIR .* cannot be written/,
    );
  });

  test.each(["win32-x64", "freebsd-x64", "linux-riscv64"])("the platform %s", async (platform) => {
    await expect(findBinaries(platform)).rejects.toThrow(`no embedded PostgreSQL for ${platform}`);
  });

  test("a platform whose package is not installed", async () => {
    const other = process.platform === "darwin" ? "linux-x64" : "darwin-arm64";
    await expect(findBinaries(other)).rejects.toThrow(
      /darwin|linux.*is not installed.*DATABASE_URL/,
    );
  });
});

test("passes its settings as arguments, which no configuration file overrides", () => {
  const args = serverArguments({ pgData: "/d", port: 1 });
  expect(args.slice(0, 2)).toEqual(["-D", "/d"]);
  expect(args).toContain("fsync=on");
  expect(args).toContain("port=1");
});
