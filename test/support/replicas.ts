/**
 * Two services on one PostgreSQL under load: pushes alternate between them, and both have watchers. A
 * client that loses its service asks the next one, as behind a load balancer.
 */
import postgres from "postgres";
import { createLedgerClient, type LedgerClient } from "@session-ledger/runner/internal/client";
import { createEmbeddedPostgres } from "../../src/postgres/embedded-postgres.ts";
import { makeDirectory, recordingLog, withSql } from "./embedded-fixture.ts";
import { History, plan, PUSH_KINDS, type Reader } from "./history.ts";
import { send, watch } from "./history-clients.ts";
import { readWitness, type Witness } from "./history-check.ts";
import { type ServiceProcess, startAgain, startService } from "./service-process.ts";
import { CAP_MS } from "./eventually.ts";

type EmbeddedPostgres = ReturnType<typeof createEmbeddedPostgres>;

type Environment = Readonly<Record<string, string>>;

export interface OwnServer {
  readonly server: EmbeddedPostgres;
  readonly dataDir: string;
  readonly sql: postgres.Sql;
  stop(): Promise<void>;
}

/** A PostgreSQL for a file that stops and starts it. */
export async function startServer(): Promise<OwnServer> {
  const dataDir = await makeDirectory();
  const server = createEmbeddedPostgres({ dataDir, log: recordingLog() });
  await server.start();
  const sql = postgres(server.url, { max: 2, onnotice: () => undefined });
  return {
    server,
    dataDir,
    sql,
    async stop() {
      await sql.end({ timeout: 1 });
      await server.stop();
    },
  };
}

export class Replicas {
  readonly services: ServiceProcess[];

  private constructor(services: ServiceProcess[]) {
    this.services = services;
  }

  /** On one database. By default they poll once a minute: a row that comes sooner was announced. */
  static async start(databaseUrl: string, more: Environment = {}): Promise<Replicas> {
    const env = { HEAD_POLL_INTERVAL_MS: "60000", ...more };
    const start = () => startService({ databaseUrl, env });
    return new Replicas(await Promise.all([start(), start()]));
  }

  get addresses(): readonly string[] {
    return this.services.map(({ grpcAddress }) => grpcAddress);
  }

  at(index: number): ServiceProcess {
    const service = this.services[index];
    if (service === undefined) throw new Error(`there is no replica ${index}`);
    return service;
  }

  /** SIGKILL, and a new service on the same ports. */
  async replace(index: number): Promise<void> {
    await this.at(index).kill("SIGKILL");
    this.services[index] = await startAgain(this.at(index));
  }

  /** One metric of `/metrics`, summed over its labels; 0 when it does not exist. */
  async metric(index: number, name: RegExp): Promise<number> {
    const answer = await fetch(`http://${this.at(index).opsAddress}/metrics`);
    const lines = (await answer.text()).split("\n").filter((line) => name.test(line));
    return lines.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
  }

  async stop(): Promise<void> {
    await Promise.all(this.services.map((service) => service.stop()));
  }
}

/** Each call and each watch goes to the next service, beginning with one of them. */
export function byTurns(clients: readonly LedgerClient[], first: number): LedgerClient {
  let turn = first;
  const next = (): LedgerClient => {
    const client = clients[turn % clients.length];
    turn += 1;
    if (client === undefined) throw new Error("there are no clients");
    return client;
  };
  return {
    call: (...call) => next().call(...call),
    watch: (...of) => next().watch(...of),
    converse: (...of) => next().converse(...of),
    close: () => undefined,
  };
}

export interface Load {
  readonly seconds: number;
  readonly sessions: number;
  readonly watchers: number;
  readonly writers: number;
  /** The fault, once the load runs. */
  readonly strike: () => Promise<void>;
  /** True: a watcher that is given the loss of rows begins again. */
  readonly mayLose?: boolean;
}

/** Rows that one watcher has seen before the load counts as running. */
const UNDER_WAY_ROWS = 20;

/** On its own connection: a connection from before the kill of PostgreSQL may never answer. */
export function witnessAt(url: string, sessionIds: Iterable<string>): Promise<Witness> {
  return withSql(url, (sql) => readWitness(sql, sessionIds));
}

/** All pushes and observed rows; every watcher has reached the end of its session or failed. */
export async function underLoad(
  { addresses, url }: { readonly addresses: readonly string[]; readonly url: string },
  load: Load,
): Promise<History> {
  const history = new History();
  const clients = addresses.map((address) => createLedgerClient({ address }));
  const ended = new AbortController();
  const sessionIds = Array.from({ length: load.sessions }, (_, at) => `load-${at}`);
  const newReader = (at: number): Reader => {
    const sessionId = sessionIds[at % sessionIds.length] ?? "";
    // Each session has watchers on every service, of both streams.
    const stream = Math.floor(at / sessionIds.length) % 3 === 2 ? "messages" : "events";
    return history.reader(`watcher ${at}`, { stream, sessionId });
  };
  const readers = Array.from({ length: load.watchers }, (_, at) => newReader(at));
  const watching = readers.map((reader, at) => {
    const client = byTurns(clients, Math.floor(at / sessionIds.length));
    const again = (): Reader => (readers[at] = newReader(at));
    return watch(client, reader, ended.signal, load.mayLose === true ? { again } : {});
  });
  const untilMs = performance.now() + load.seconds * 1_000;
  const struck = new AbortController();
  const writing = Array.from({ length: load.writers }, async (_, writer) => {
    const client = byTurns(clients, writer);
    let turn = 0;
    const next = async (): Promise<void> => {
      const sessionId = sessionIds[(writer + turn * load.writers) % sessionIds.length] ?? "";
      const kind = PUSH_KINDS[(writer + turn) % PUSH_KINDS.length] ?? "event";
      const push = history.push(plan(history, { sessionId, kind, keyed: true }));
      turn += 1;
      await send({ history, client }, push);
    };
    // The load lasts as long as the fault, on any machine, and one push begins after it.
    while (!struck.signal.aborted || performance.now() < untilMs) await next();
    await next();
  });
  const striking = (async () => {
    try {
      await readers[0]?.until(BigInt(UNDER_WAY_ROWS));
      await load.strike();
    } finally {
      struck.abort();
    }
  })();
  try {
    await Promise.all([striking, ...writing]);
    const { counters } = await witnessAt(url, sessionIds);
    const late = AbortSignal.timeout(CAP_MS);
    const giveUp = (): void => {
      for (const reader of readers) {
        const head = counters.get(reader.sessionId)?.[reader.stream] ?? 0n;
        if (reader.cursor < head) reader.failed(new Error(`stands at ${reader.cursor} of ${head}`));
      }
    };
    late.addEventListener("abort", giveUp);
    for (let at = 0; at < readers.length; ) {
      const reader = readers[at];
      await reader?.until(counters.get(reader.sessionId)?.[reader.stream] ?? 0n);
      if (reader === readers[at]) at += 1; // Otherwise another one has begun again in its place.
    }
    late.removeEventListener("abort", giveUp);
  } finally {
    ended.abort();
    await Promise.all(watching);
    for (const client of clients) client.close();
  }
  return history;
}
