import { expect } from "vitest";
import {
  createLedgerClient,
  ledger,
  type LedgerClient,
} from "@session-ledger/runner/internal/client";
import { Replicas } from "./replicas.ts";
import type { ServiceProcess } from "./service-process.ts";

/** Two services on one PostgreSQL, by default with a poll of one minute. */
export class Pair implements AsyncDisposable {
  readonly services: readonly ServiceProcess[];
  readonly #clients: readonly LedgerClient[];

  private constructor(services: readonly ServiceProcess[]) {
    this.services = services;
    this.#clients = services.map(({ grpcAddress }) => createLedgerClient({ address: grpcAddress }));
  }

  static async started(url: string, env: Readonly<Record<string, string>>): Promise<Pair> {
    return new Pair((await Replicas.start(url, env)).services);
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

/** Rows and a deletion of one service reach a watch of the other one. */
export async function hearEachOther(pair: Pair, sessionId: string): Promise<void> {
  await pair.push(0, sessionId);
  const watch = pair.watch(1, sessionId);
  await expect.poll(() => watch.seqs).toEqual([1n]);
  await pair.push(0, sessionId);
  await pair.push(0, sessionId);
  await expect.poll(() => watch.seqs).toEqual([1n, 2n, 3n]);
  await pair.delete(0, sessionId);
  expect(await watch.ended).toMatchObject({ code: "NOT_FOUND", reason: "SESSION_DELETED" });
}
