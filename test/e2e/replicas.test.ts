/**
 * Watches across two services on one PostgreSQL: each watcher gets every committed row once and in
 * order, from either service, with wake-ups that are lost or late. A test of a wake-up has a poll of
 * one minute, so only the wake-up can have brought the rows in time.
 *
 * Each load lasts LOAD_SECONDS: 1, or 30 for a thorough run.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { cleanUp, withSql } from "../support/embedded-fixture.ts";
import { problemsOf } from "../support/history-check.ts";
import {
  Replicas,
  type OwnServer,
  startServer,
  underLoad,
  witnessAt,
} from "../support/replicas.ts";
import { startTcpProxy } from "../support/broken-network.ts";

const SECONDS = Number(process.env["LOAD_SECONDS"] ?? "1");
const LOAD = { seconds: SECONDS, sessions: 10, watchers: 60, writers: 8 };

const POLL_NEAR = { HEAD_POLL_INTERVAL_MS: "300" };

const RECEIVED = /^session_ledger_wake_ups_total\{direction="received"/;
const CONNECTED = /^session_ledger_wake_ups_connected /;

let database: OwnServer;
beforeAll(async () => {
  database = await startServer();
});
afterAll(async () => {
  await database.stop();
  await cleanUp();
});

interface Scenario {
  readonly env?: Readonly<Record<string, string>>;
  readonly strike?: (replicas: Replicas) => Promise<void>;
  /** Asked when every watcher has everything. */
  readonly check?: (replicas: Replicas) => Promise<void>;
}

/** What is wrong with what the watchers saw. */
async function problemsUnder({ env = {}, strike, check }: Scenario): Promise<readonly string[]> {
  const { server } = database;
  await withSql(server.url, async (sql) => {
    await sql`drop schema if exists public cascade`;
    await sql`drop schema if exists drizzle cascade`;
    await sql`drop schema if exists analytics cascade`;
    await sql`create schema public`;
  });
  const replicas = await Replicas.start(server.url, env);
  try {
    const { addresses } = replicas;
    const history = await underLoad(
      { addresses, url: server.url },
      { ...LOAD, strike: async () => strike?.(replicas) },
    );
    await check?.(replicas);
    return problemsOf(history, await witnessAt(server.url, history.sessionIds()));
  } finally {
    await replicas.stop();
  }
}

async function eachReceived(replicas: Replicas): Promise<void> {
  for (const at of [0, 1]) expect(await replicas.metric(at, RECEIVED)).toBeGreaterThan(0);
}

async function eachConnected(replicas: Replicas, connected: number): Promise<void> {
  for (const at of [0, 1]) {
    const metric = (): Promise<number> => replicas.metric(at, CONNECTED);
    await expect.poll(metric).toBe(connected);
  }
}

describe("60 watchers over two services, with pushes to either", () => {
  test("receive every row by NOTIFY alone", async () => {
    expect(await problemsUnder({ check: eachReceived })).toEqual([]);
  });

  test("receive every row by the poll alone", async () => {
    expect(await problemsUnder({ env: { LISTEN_DATABASE_URL: "off", ...POLL_NEAR } })).toEqual([]);
  });

  test("receive every row while every NOTIFY hangs", async () => {
    const { sql } = database;
    const env = { ...POLL_NEAR, STATEMENT_TIMEOUT_MS: "1000" };
    try {
      expect(await problemsUnder({ env, strike: () => hangNotify(sql) })).toEqual([]);
    } finally {
      await mendNotify(sql);
    }
  });

  test("receive every row with LISTEN in a black hole, and after it", async () => {
    const url = new URL(database.server.url);
    const proxy = await startTcpProxy({ host: url.hostname, port: Number(url.port) });
    url.port = String(proxy.port);
    const env = { LISTEN_DATABASE_URL: url.href };
    const strike = async (replicas: Replicas): Promise<void> => {
      proxy.holdAnswers();
      await eachConnected(replicas, 0);
      proxy.cut();
      await eachConnected(replicas, 1);
    };
    try {
      expect(await problemsUnder({ env, strike })).toEqual([]);
    } finally {
      await proxy.stop();
    }
  });
});

type Sql = OwnServer["sql"];

/** As when the queue of notifications is held: each waits until it is cancelled. */
async function hangNotify(sql: Sql): Promise<void> {
  await sql.begin(async (own) => {
    await own`set local allow_system_table_mods = on`;
    await own`create or replace function pg_catalog.pg_notify(text, text) returns void
      language plpgsql volatile as 'begin perform pg_sleep(3600); end'`;
  });
}

async function mendNotify(sql: Sql): Promise<void> {
  await sql.begin(async (own) => {
    await own`set local allow_system_table_mods = on`;
    await own`create or replace function pg_catalog.pg_notify(text, text) returns void
      language internal volatile parallel restricted as 'pg_notify'`;
  });
}
