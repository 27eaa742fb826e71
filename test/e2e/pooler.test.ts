/**
 * Services behind a real PgBouncer in transaction mode, in front of Debian's PostgreSQL 15. Each wrong setup
 * ends at the start with a sentence; the test does what the sentence says, and comes to the next one, until
 * the setup is right, with statements that the driver prepares and without them. The figures of
 * docs/failover.md are the lines that this test prints, with LOAD_SECONDS=10.
 */
import { spawn, spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { spawnAs } from "../../src/postgres/process.ts";
import { randomPort } from "../../src/postgres/server.ts";
import {
  DEBIAN_15,
  debianAccount,
  type DebianServer,
  makeDebianDirectory,
  startDebian,
} from "../support/debian-postgres.ts";
import { cleanUp, withSql } from "../support/embedded-fixture.ts";
import { eventually } from "../support/eventually.ts";
import { problemsOf } from "../support/history-check.ts";
import { hearEachOther, Pair } from "../support/pair.ts";
import { underLoad, witnessAt } from "../support/replicas.ts";
import { refusalOf } from "../support/service-process.ts";
import { needs, toolPath } from "../support/tools.ts";

const PGBOUNCER = "pgbouncer";
const skip = needs(DEBIAN_15).skip || needs(PGBOUNCER).skip;
/** PgBouncer before 1.21 does not know the setting; since 1.24 the default is 200. */
const hasStatements = !skip && minorVersion() >= 21;
const LOSING = hasStatements ? ["max_prepared_statements = 0"] : [];

interface Setup {
  readonly setup: string;
  /** Of PgBouncer. */
  readonly lines: readonly string[];
  /** Of DATABASE_URL. */
  readonly query: string;
  readonly skip: boolean;
}

const SETUPS: readonly Setup[] = [
  { setup: "prepare=false", lines: LOSING, query: "?prepare=false", skip },
  {
    setup: "max_prepared_statements, of 1.21 or newer,",
    lines: ["max_prepared_statements = 200"],
    query: "",
    skip: !hasStatements,
  },
];

const SECONDS = Number(process.env["LOAD_SECONDS"] ?? "1");
const LOAD = { seconds: SECONDS, sessions: 6, watchers: 12, writers: 6 };
/** Fewer than the connections of both services, so that they share them. */
const SERVER_CONNECTIONS = 6;

let server: DebianServer;
const ends: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  if (skip) return;
  server = await startDebian();
  ends.push(() => server.stop());
  await asOwner("create role ledger login");
});

afterAll(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
  await cleanUp();
});

async function asOwner(...statements: readonly string[]): Promise<void> {
  await withSql(server.url, async (sql) => {
    for (const statement of statements) await sql.unsafe(statement);
  });
}

/** The next statement of the role gets a connection with its present settings. */
async function endConnections(): Promise<void> {
  await asOwner("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'ledger'");
}

/** Resolves with the URL of a new database, for the role of the services and without a pooler. */
async function newDatabase(): Promise<string> {
  const name = `ledger_${randomUUID().replaceAll("-", "")}`;
  await asOwner(`create database ${name} owner ledger`);
  return `postgres://ledger@127.0.0.1:${server.port}/${name}`;
}

function minorVersion(): number {
  const { stdout } = spawnSync(toolPath(PGBOUNCER), ["--version"], { encoding: "utf8" });
  return Number(/^PgBouncer 1\.(\d+)/.exec(stdout)?.[1]);
}

/** Resolves with the URL of a pooler in front of a database, with these lines in its configuration. */
async function startPooler(direct: string, lines: readonly string[] = []): Promise<string> {
  const directory = await makeDebianDirectory();
  const port = randomPort();
  const configuration = [
    "[databases]",
    `* = host=127.0.0.1 port=${server.port}`,
    "[pgbouncer]",
    "listen_addr = 127.0.0.1",
    `listen_port = ${port}`,
    "unix_socket_dir =",
    "auth_type = trust",
    `auth_file = ${join(directory, "users")}`,
    "pool_mode = transaction",
    `default_pool_size = ${SERVER_CONNECTIONS}`,
    ...lines,
  ];
  await writeFile(join(directory, "users"), '"ledger" ""\n', { mode: 0o644 });
  const file = join(directory, "pgbouncer.ini");
  await writeFile(file, `${configuration.join("\n")}\n`, { mode: 0o644 });
  const account = await debianAccount();
  const child = spawn(toolPath(PGBOUNCER), ["--quiet", file], {
    ...spawnAs(account),
    stdio: "ignore",
  });
  ends.push(async () => {
    const ended = once(child, "exit");
    if (child.kill("SIGKILL")) await ended;
  });
  const url = direct.replace(`:${server.port}`, `:${port}`);
  await eventually(() => withSql(url, (sql) => sql`select 1`));
  return url;
}

/** Acknowledged pushes a second, over the end of all server connections; each is stored once. */
async function pushesPerSecond({ services }: Pair, direct: string): Promise<number> {
  const addresses = services.map(({ grpcAddress }) => grpcAddress);
  const load = { ...LOAD, strike: endConnections };
  const history = await underLoad({ addresses, url: direct }, load);
  expect(problemsOf(history, await witnessAt(direct, history.sessionIds()))).toEqual([]);
  const answers = history.pushes.flatMap(({ attempts }) => attempts).map(({ answer }) => answer);
  return Math.round(answers.filter(({ kind }) => kind === "acknowledged").length / SECONDS);
}

for (const { setup, lines, query, skip: isSkipped } of SETUPS) {
  test.skipIf(isSkipped)(
    `behind ${PGBOUNCER} with ${setup} a wrong setup is named at the start, and a right one works (${DEBIAN_15})`,
    async () => {
      await asOwner("alter role ledger reset all");
      const direct = await newDatabase();
      const refusing = await refusalOf({ databaseUrl: await startPooler(direct) });
      expect(refusing).toContain("unsupported startup parameter");
      const [, ignored = ""] = /expected (ignore_startup_parameters = \S+) /.exec(refusing) ?? [];
      expect(ignored).toContain("synchronous_commit");

      const losing = await startPooler(direct, [ignored, ...LOSING]);
      await asOwner("alter role ledger set synchronous_commit = off");
      await endConnections();
      expect(await refusalOf({ databaseUrl: losing })).toContain(
        "DATABASE_URL: acknowledged rows may be lost: synchronous_commit is off, expected on",
      );
      await asOwner("alter role ledger reset synchronous_commit");
      await endConnections();

      const dropping = await refusalOf({ databaseUrl: losing });
      const statements = [...dropping.matchAll(/ALTER ROLE [^;]+;/g)].map(String);
      expect(statements).toContain("ALTER ROLE ledger SET enable_seqscan = 'off';");
      expect(statements).toContain("ALTER ROLE ledger SET lock_timeout = '500';");
      await asOwner(...statements);
      await endConnections();

      expect(await refusalOf({ databaseUrl: losing })).toContain(
        "a pooler loses prepared statements, expected max_prepared_statements = 200 (PgBouncer 1.21 or newer), pool_mode = session, or ?prepare=false",
      );
      const pooler = `${await startPooler(direct, [ignored, ...lines])}${query}`;
      expect(await refusalOf({ databaseUrl: pooler })).toContain(
        "LISTEN_DATABASE_URL: a pooler delivers no notifications, expected the URL of the server itself, or off",
      );

      await using pair = await Pair.started(pooler, { LISTEN_DATABASE_URL: direct });
      await hearEachOther(pair, "pooled");
      expect(await pair.metric(1, "wake_ups_connected")).toBe(
        "session_ledger_wake_ups_connected 1",
      );

      // The settings of the role change while the services run.
      await asOwner("alter role ledger set synchronous_commit = off");
      await endConnections();
      await expect.poll(() => notReadyBecause(pair)).toContain("synchronous_commit is off");
      await expect(pair.push(0, "pooled-later")).rejects.toMatchObject({
        reason: "DATABASE_UNAVAILABLE",
        message: expect.stringContaining("may lose acknowledged rows (synchronous_commit is off"),
      });
      await asOwner("alter role ledger reset synchronous_commit");
      await endConnections();
      await expect.poll(() => notReadyBecause(pair)).toBe("");
      await hearEachOther(pair, "pooled-again");

      const pooled = await pushesPerSecond(pair, direct);
      const other = await newDatabase();
      await using unpooled = await Pair.started(other, {});
      const figures = { pooled, direct: await pushesPerSecond(unpooled, other) };
      process.stdout.write(`pushes a second, ${setup} ${JSON.stringify(figures)}\n`);
    },
  );
}

/** Empty when it is ready. */
async function notReadyBecause(pair: Pair): Promise<string> {
  const answer = await fetch(`http://${pair.services[0]?.opsAddress}/readyz`);
  return answer.ok ? "" : answer.text();
}
