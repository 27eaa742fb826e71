/**
 * Two services on one PostgreSQL with wake-ups. The poll comes once a minute, so a row that arrives
 * sooner was announced.
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  createLedgerClient,
  ledger,
  type LedgerClient,
} from "@session-ledger/runner/internal/client";
import { type OpenDatabase, openDatabase } from "../support/database.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { Replicas } from "../support/replicas.ts";
import type { ServiceProcess } from "../support/service-process.ts";

let database: OpenDatabase;

beforeAll(async () => {
  database = await openDatabase();
});

afterAll(async () => {
  await database.stop();
  await cleanUp();
});

class Pair implements AsyncDisposable {
  readonly services: readonly ServiceProcess[];
  readonly #clients: readonly LedgerClient[];

  constructor(services: readonly ServiceProcess[]) {
    this.services = services;
    this.#clients = services.map(({ grpcAddress }) => createLedgerClient({ address: grpcAddress }));
  }

  static async started(env: Readonly<Record<string, string>>): Promise<Pair> {
    return new Pair((await Replicas.start(database.url, env)).services);
  }

  push(at: 0 | 1, sessionId: string) {
    const request = { sessionId, eventType: "user", payload: "hello" };
    return this.#clients[at]?.call(ledger.pushSessionMessage, request);
  }

  delete(at: 0 | 1, id: string) {
    return this.#clients[at]?.call(ledger.deleteSession, { id });
  }

  /** The numbers as they come, and in the end why no more do. */
  watch(
    at: 0 | 1,
    sessionId: string,
  ): { readonly seqs: bigint[]; readonly ended: Promise<unknown> } {
    const seqs: bigint[] = [];
    const follow = async (): Promise<void> => {
      const rows = this.#clients[at]?.watch(ledger.watchSessionMessages, { sessionId }) ?? [];
      for await (const row of rows) seqs.push(row.seq);
    };
    return { seqs, ended: follow().catch((error: unknown) => error) };
  }

  async metric(at: 0 | 1, name: string): Promise<string | undefined> {
    const response = await fetch(`http://${this.services[at]?.opsAddress}/metrics`);
    const lines = (await response.text()).split("\n");
    return lines.find((line) => line.startsWith(`session_ledger_${name}`));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const client of this.#clients) client.close();
    await Promise.all(this.services.map((service) => service.stop()));
  }
}

async function hearEachOther(pair: Pair, sessionId: string): Promise<void> {
  await pair.push(0, sessionId);
  const watch = pair.watch(1, sessionId);
  await expect.poll(() => watch.seqs).toEqual([1n]);
  await pair.push(0, sessionId);
  await pair.push(0, sessionId);
  await expect.poll(() => watch.seqs).toEqual([1n, 2n, 3n]);
  await pair.delete(0, sessionId);
  expect(await watch.ended).toMatchObject({ code: "NOT_FOUND", reason: "SESSION_DELETED" });
}

test("NOTIFY without any setting brings rows and deletions of the other service at once", async () => {
  await using pair = await Pair.started({});
  await hearEachOther(pair, "by-notify");
  expect(await pair.metric(1, "wake_ups_connected")).toBe("session_ledger_wake_ups_connected 1");
});

test("the poll alone brings them later", async () => {
  await using pair = await Pair.started({
    LISTEN_DATABASE_URL: "off",
    HEAD_POLL_INTERVAL_MS: "200",
  });
  await hearEachOther(pair, "by-poll");
  expect(await pair.metric(1, "wake_ups_connected")).toBeUndefined();
});
