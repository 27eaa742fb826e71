/**
 * Wake-ups by PostgreSQL, over a real server: that they are heard, that every way of not hearing is
 * noticed and mended, and that a stop ends in the middle of any of it.
 */
import { sql } from "drizzle-orm";
import { describe, expect, test, vi } from "vitest";
import { ANNOUNCEMENT_BYTES_MAX } from "../../src/live/hints/notifier.ts";
import { shardOf } from "../../src/live/hints/subscriptions.ts";
import { channelName, createTransport } from "../../src/live/hints/transport.ts";
import { notify } from "../../src/store/listen.ts";
import { startNobody, startTcpProxy } from "../support/broken-network.ts";
import { createLedger, useLedger } from "../support/ledger.ts";
import { describeUnitContract } from "../support/unit-contract.ts";
import { WakeUpInstance } from "../support/wake-ups.ts";
import { eventually } from "../support/eventually.ts";

const LISTEN = { openLimitMs: 1_000, beatIntervalMs: 50, beatLimitMs: 400, closeLimitMs: 500 };

const ledger = await useLedger();

async function listening(url = ledger.url, limits = LISTEN): Promise<WakeUpInstance> {
  const way = { database: ledger.database, url: () => url };
  return WakeUpInstance.started((instance) => createTransport({ ...way, instance }, limits));
}

/** As another instance does. */
function announce(sessionId: string, text: string): Promise<void> {
  const channel = channelName(String(shardOf(sessionId)), undefined);
  return notify(ledger.database, [{ channel, payload: text }]);
}

async function backends(): Promise<readonly number[]> {
  const rows = await ledger.database.run(sql`
    select pid from pg_stat_activity
    where datname = current_database() and application_name = 'session-ledger-listen'`);
  return rows.map((row) => Number(row["pid"]));
}

async function terminate(): Promise<void> {
  await ledger.database.run(sql`
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and application_name = 'session-ledger-listen'`);
}

function throughPort(url: string, port: number): string {
  const through = new URL(url);
  through.hostname = "127.0.0.1";
  through.port = String(port);
  return through.href;
}

function portOf(url: string): { readonly host: string; readonly port: number } {
  const { hostname, port } = new URL(url);
  return { host: hostname, port: Number(port) };
}

describe("wake-ups by PostgreSQL", () => {
  test("the other instance receives commits and deletions, and the first not its own", async () => {
    await using one = await listening();
    await using other = await listening();
    expect(await one.hears(1)).toEqual(["regained"]);
    expect(await other.hears(1)).toEqual(["regained"]);
    one.commit("s");
    expect(await other.hears(1)).toEqual(["s 0 1"]);
    one.hints.announceDelete("s");
    expect(await other.hears(1)).toEqual(["s 0 0 deleted"]);
    other.commit("t");
    // And nothing of what it said itself, which came before.
    expect(await one.hears(1)).toEqual(["t 0 1"]);
  });

  test("an idle listener stays on its connection from heartbeat to heartbeat", async () => {
    await using one = await listening();
    const before = await backends();
    const beats = vi.fn<() => void>();
    const database: typeof ledger.database = {
      ...ledger.database,
      run: (statement) => {
        beats();
        return ledger.database.run(statement);
      },
    };
    const way = { database, url: () => ledger.url };
    await using counted = await WakeUpInstance.started((instance) =>
      createTransport({ ...way, instance }, LISTEN),
    );
    await eventually(() => expect(beats.mock.calls.length).toBeGreaterThan(5));
    expect(await backends()).toEqual(expect.arrayContaining([...before]));
    expect(await one.hears(1)).toEqual(["regained"]);
    expect(await counted.hears(1)).toEqual(["regained"]);
    expect(await one.isConnected()).toBe(true);
  });

  test("a cut connection is opened again, and missed sessions are looked up", async () => {
    await using one = await listening();
    expect(await one.hears(1)).toEqual(["regained"]);
    for (let cut = 0; cut < 3; cut += 1) {
      await terminate();
      expect(await one.hears(2)).toEqual(["lost", "regained"]);
      await announce(`s${cut}`, `1 you s${cut}/0/1`);
      expect(await one.hears(1)).toEqual([`s${cut} 0 1`]);
    }
    expect(await backends()).toHaveLength(1);
  });

  test("a cut is detected at once, long before the next heartbeat", async () => {
    await using one = await listening(ledger.url, { ...LISTEN, beatIntervalMs: 60_000 });
    expect(await one.hears(1)).toEqual(["regained"]);
    await terminate();
    expect(await one.hears(2)).toEqual(["lost", "regained"]);
  });

  test("a black hole is detected by the heartbeat, and the connection is closed", async () => {
    const proxy = await startTcpProxy(portOf(ledger.url));
    const one = await listening(throughPort(ledger.url, proxy.port));
    expect(await one.hears(1)).toEqual(["regained"]);
    proxy.holdAnswers();
    expect(await one.hears(1)).toEqual(["lost"]);
    expect(await one.isConnected()).toBe(false);
    proxy.cut();
    expect(await one.hears(1)).toEqual(["regained"]);
    await one.hints.stop();
    await proxy.stop();
  });

  test("a black hole from the beginning does not delay the start, and is left", async () => {
    const proxy = await startTcpProxy(portOf(ledger.url));
    proxy.holdAnswers();
    const one = await listening(throughPort(ledger.url, proxy.port));
    expect(await one.hears(1)).toEqual(["lost"]);
    proxy.cut();
    expect(await one.hears(1)).toEqual(["regained"]);
    await one.hints.stop();
    await proxy.stop();
  });

  // Another database is to it what a pooler is: LISTEN is answered, and nothing is delivered.
  test("a LISTEN without notifications counts as no connection", async () => {
    await using elsewhere = await createLedger();
    await using one = await listening(elsewhere.url);
    expect(await one.hears(1)).toEqual(["lost"]);
    expect(await one.isConnected()).toBe(false);
  });

  test("an instance that cannot receive can still send", async () => {
    await using other = await listening();
    await using deaf = await listening("postgres://nobody@127.0.0.1:1/nothing");
    expect(await deaf.hears(1)).toEqual(["lost"]);
    expect(await other.hears(1)).toEqual(["regained"]);
    deaf.commit("s");
    expect(await other.hears(1)).toEqual(["s 0 1"]);
  });

  test("the longest announcement fits the longest payload of PostgreSQL", async () => {
    await using one = await listening();
    expect(await one.hears(1)).toEqual(["regained"]);
    const sessionId = "x".repeat(7_989);
    const payload = `1 you ${sessionId}/0/1`;
    expect(payload).toHaveLength(ANNOUNCEMENT_BYTES_MAX);
    await announce(sessionId, payload);
    expect(await one.hears(1)).toEqual([`${sessionId} 0 1`]);
    const tooLong = announce(sessionId, `${payload}x`);
    await expect(tooLong).rejects.toThrow("payload string too long");
  });

  test("a stop while the server does not answer ends at once and leaves no socket", async () => {
    const nobody = await startNobody((socket) => socket.resume());
    const slow = { ...LISTEN, openLimitMs: 60_000, beatLimitMs: 60_000 };
    const url = (): string => throughPort(ledger.url, nobody.port);
    const one = new WakeUpInstance((instance) =>
      createTransport({ database: ledger.database, url, instance }, slow),
    );
    const starting = one.hints.start();
    await eventually(() => expect(nobody.open).toBe(1));
    await one.hints.stop();
    await starting;
    await eventually(() => expect(nobody.open).toBe(0));
    expect(await one.hears(0)).toEqual([]);
    await nobody.stop();
  });

  test("a stop in a black hole ends soon and leaves no socket", async () => {
    const proxy = await startTcpProxy(portOf(ledger.url));
    const limits = { ...LISTEN, beatIntervalMs: 60_000, closeLimitMs: 100 };
    const one = await listening(throughPort(ledger.url, proxy.port), limits);
    expect(await backends()).toHaveLength(1);
    proxy.holdAnswers();
    await one.hints.stop();
    await eventually(async () => expect(await backends()).toEqual([]));
    await proxy.stop();
  });

  describeUnitContract("wake-ups by PostgreSQL", {
    create: () => {
      const way = { database: ledger.database, url: () => ledger.url };
      const instance = new WakeUpInstance((name) =>
        createTransport({ ...way, instance: name }, LISTEN),
      );
      return Object.assign(instance.hints, { instance });
    },
    isOfUse: async ({ instance }) => {
      await announce("s", "1 you s/0/1");
      return (await instance.hears(2)).includes("s 0 1");
    },
    remains: async () => {
      let left = await backends();
      for (const until = Date.now() + 5_000; left.length > 0 && Date.now() < until; ) {
        left = await backends(); // The server notices the goodbye a moment after us.
      }
      return left.map((pid) => `backend ${pid}`);
    },
  });
});
