/**
 * The target of the faults: an embedded PostgreSQL in its own process, and replicas of the service, each
 * with two routes to it, one for its statements and one for LISTEN.
 *
 *   clients ──► replica 0 ──► way, listenWay ──┐
 *   clients ──► replica 1 ──► way, listenWay ──┴─► PostgreSQL ──► rows in a tablespace of their own
 */
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type postgres from "postgres";
import { createEmbeddedPostgres } from "../../src/postgres/embedded-postgres.ts";
import {
  childrenOf,
  cleanUp,
  endProcess,
  makeDirectory,
  recordingLog,
  runningPostmaster,
} from "../support/embedded-fixture.ts";
import { type ServiceProcess, startService } from "../support/service-process.ts";
import { startTcpProxy, type TcpProxy } from "../support/broken-network.ts";
import type { Row } from "../support/history.ts";
import { readWitness } from "../support/history-check.ts";
import { copyOfStopped, Standby } from "../support/standby.ts";
import { closed, openSql } from "./sql.ts";
import { makeSmallDisk, type SmallDisk } from "./small-disk.ts";

type EmbeddedPostgres = ReturnType<typeof createEmbeddedPostgres>;

const PRELOAD = fileURLToPath(new URL("./shifted-clock.ts", import.meta.url));
/** A replica that does not start within this time has failed; every fault heals sooner. */
const START_LIMIT_MS = 60_000;
const START_PAUSE_MS = 300;
/** Longer than the poll by which a watch learns that rows are lost. */
const TOLD_MS = 3_000;
const RESTARTED = "embedded_postgres_restarted";

export class Replica {
  readonly name: string;
  readonly way: TcpProxy;
  readonly listenWay: TcpProxy;
  readonly clockFile: string;
  readonly #env: Readonly<Record<string, string>>;
  #service: ServiceProcess | undefined;
  /** The last process, whose ports the next one takes. */
  #addresses: Readonly<Record<string, string>> = {};
  /** True while it is meant to run: if it has ended then, it has crashed. */
  isMeantToRun = false;

  constructor(parts: {
    readonly name: string;
    readonly way: TcpProxy;
    readonly listenWay: TcpProxy;
    readonly clockFile: string;
    readonly env: Readonly<Record<string, string>>;
  }) {
    this.name = parts.name;
    this.way = parts.way;
    this.listenWay = parts.listenWay;
    this.clockFile = parts.clockFile;
    this.#env = parts.env;
  }

  get service(): ServiceProcess {
    if (this.#service === undefined) throw new Error(`${this.name} was never started`);
    return this.#service;
  }

  get lastWords(): string {
    return this.#service?.log.slice(-5).join("\n") ?? "";
  }

  /** Tries again and again: the service does not start without its database, as an orchestrator knows. */
  async start(): Promise<void> {
    const untilMs = performance.now() + START_LIMIT_MS;
    const env = { ...this.#env, ...this.#addresses, FAULTS_CLOCK_FILE: this.clockFile };
    for (;;) {
      try {
        this.#service = await startService({ env, nodeArguments: ["--import", PRELOAD] });
        break;
      } catch (error) {
        if (performance.now() > untilMs) throw error;
        await delay(START_PAUSE_MS);
      }
    }
    const { grpcAddress, httpAddress } = this.service;
    this.#addresses = { GRPC_ADDRESS: grpcAddress, HTTP_ADDRESS: httpAddress };
    this.isMeantToRun = true;
  }

  async end(signal: "SIGKILL" | "SIGTERM"): Promise<number | null> {
    this.isMeantToRun = false;
    return this.service.kill(signal);
  }

  async signal(name: "SIGSTOP" | "SIGCONT"): Promise<void> {
    const { pid } = this.service;
    for (const one of [pid, ...(await childrenOf(pid))]) signalled(one, name);
  }

  /** One of its workers, which its parent starts again. */
  async killWorker(draw: number): Promise<void> {
    const { pid } = this.service;
    const workers = await childrenOf(pid);
    const worker = workers[draw % workers.length];
    if (worker === undefined) return;
    signalled(worker, "SIGKILL");
  }

  async shiftClock(offsetMs: number): Promise<void> {
    await writeFile(this.clockFile, String(offsetMs));
  }
}

export class Cluster implements AsyncDisposable {
  readonly replicas: readonly Replica[];
  /** Undefined where none can be made; the reason is in `smallDiskMissing`. */
  readonly smallDisk: SmallDisk | undefined;
  readonly smallDiskMissing: string | undefined;
  /** Rows that were committed and that the promoted standbys did not have. */
  readonly lost: Row[] = [];
  #server: EmbeddedPostgres;
  #dataDir: string;
  #standby: { readonly server: Standby; readonly dataDir: string } | undefined;
  readonly #log: ReturnType<typeof recordingLog>;

  private constructor(parts: {
    readonly server: EmbeddedPostgres;
    readonly dataDir: string;
    readonly log: ReturnType<typeof recordingLog>;
    readonly replicas: readonly Replica[];
    readonly smallDisk: SmallDisk | string;
  }) {
    this.replicas = parts.replicas;
    this.#server = parts.server;
    this.#dataDir = parts.dataDir;
    this.#log = parts.log;
    const hasDisk = typeof parts.smallDisk !== "string";
    this.smallDisk = hasDisk ? parts.smallDisk : undefined;
    this.smallDiskMissing = hasDisk ? undefined : parts.smallDisk;
  }

  static async start(
    env: Readonly<Record<string, string>>,
    { replicas: count }: { readonly replicas: number },
  ): Promise<Cluster> {
    const dataDir = await makeDirectory();
    const log = recordingLog();
    const server = createEmbeddedPostgres({ dataDir, log });
    await server.start();
    const smallDisk = await makeSmallDisk({ url: server.url, dataDir });
    const replicas: Replica[] = [];
    for (let at = 0; at < count; at += 1) {
      replicas.push(await newReplica(at, { url: server.url, dataDir, env }));
    }
    const cluster = new Cluster({ server, dataDir, log, replicas, smallDisk });
    try {
      for (const replica of replicas) await replica.start();
      return cluster;
    } catch (error) {
      await cluster[Symbol.asyncDispose]();
      throw error;
    }
  }

  get url(): string {
    return this.#server.url;
  }

  get grpcAddresses(): readonly string[] {
    return this.replicas.map(({ service }) => service.grpcAddress);
  }

  get httpAddresses(): readonly string[] {
    return this.replicas.map(({ service }) => service.httpAddress);
  }

  replica(at: number): Replica {
    const replica = this.replicas[at];
    if (replica === undefined) throw new Error(`there is no replica ${at}`);
    return replica;
  }

  /** Resolves when the server is up again. */
  async killPostgres(): Promise<void> {
    const before = this.#restarts;
    endProcess(await runningPostmaster(this.#dataDir));
    while (this.#restarts === before) await delay(START_PAUSE_MS);
  }

  /** Signals all of its processes: a signal to the postmaster alone does not suspend the backends. */
  async signalPostgres(name: "SIGSTOP" | "SIGCONT"): Promise<void> {
    const postmaster = await runningPostmaster(this.#dataDir);
    for (const pid of [postmaster, ...(await childrenOf(postmaster))]) signalled(pid, name);
  }

  /** Stops the server for its copy, as for a base backup; then the copy follows it. */
  async startStandby(): Promise<void> {
    await this.#server.stop();
    const dataDir = await copyOfStopped(this.#dataDir);
    await this.#serve(this.#server);
    const server = await Standby.start(dataDir, this.url);
    this.#standby = { server, dataDir };
    await server.caughtUp(this.url);
  }

  async standbyFallsBehind(): Promise<void> {
    await this.#standby?.server.fallBehind();
  }

  /** Rows that the standby does not have are lost and recorded; from now on the standby is the server. */
  async promoteStandby(sessionIds: readonly string[]): Promise<void> {
    const standby = this.#standby;
    if (standby === undefined) throw new Error("no standby follows");
    this.#standby = undefined;
    // Later commits of the old server are never acknowledged, and are still read below.
    for (const { way, listenWay } of this.replicas) {
      way.hold();
      listenWay.hold();
    }
    await nothingRuns(this.url);
    await standby.server.promote();
    const before = await askDatabase(this.url, (sql) => readWitness(sql, sessionIds));
    const after = await askDatabase(standby.server.url, (sql) => readWitness(sql, sessionIds));
    const kept = new Set(after.rows.map(({ id }) => id));
    this.lost.push(...before.rows.filter(({ id }) => !kept.has(id)));
    await this.#server.stop();
    await standby.server[Symbol.asyncDispose]();
    this.#dataDir = standby.dataDir;
    await this.#serve(createEmbeddedPostgres({ dataDir: standby.dataDir, log: this.#log }));
    await delay(TOLD_MS); // Every watch is told before the run may end.
  }

  /** Starts the server, and lets the replicas find it. */
  async #serve(server: EmbeddedPostgres): Promise<void> {
    this.#server = server;
    await server.start();
    const { hostname: host, port } = new URL(server.url);
    for (const { way, listenWay } of this.replicas) {
      for (const one of [way, listenWay]) {
        one.goTo({ host, port: Number(port) });
        one.cut();
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#standby?.server[Symbol.asyncDispose]();
    for (const replica of this.replicas) {
      replica.isMeantToRun = false;
      try {
        await replica.signal("SIGCONT");
        await replica.end("SIGKILL");
      } catch {
        // It has ended already.
      }
      await replica.way.stop();
      await replica.listenWay.stop();
    }
    await this.smallDisk?.empty();
    await this.signalPostgres("SIGCONT").catch(() => undefined);
    await this.#server.stop();
    await this.smallDisk?.remove();
    await cleanUp();
  }

  get #restarts(): number {
    return this.#log.entries.filter(({ event }) => event === RESTARTED).length;
  }
}

async function newReplica(
  at: number,
  of: {
    readonly url: string;
    readonly dataDir: string;
    readonly env: Readonly<Record<string, string>>;
  },
): Promise<Replica> {
  const { hostname, port } = new URL(of.url);
  const target = { host: hostname, port: Number(port) };
  const [way, listenWay] = [await startTcpProxy(target), await startTcpProxy(target)];
  const env = {
    ...of.env,
    DATABASE_URL: throughWay(of.url, way),
    LISTEN_DATABASE_URL: throughWay(of.url, listenWay),
  };
  const clockFile = join(of.dataDir, `clock-${at}`);
  await rm(clockFile, { force: true });
  return new Replica({ name: `replica ${at}`, way, listenWay, clockFile, env });
}

function throughWay(databaseUrl: string, way: TcpProxy): string {
  const url = new URL(databaseUrl);
  url.port = String(way.port);
  return url.href;
}

/** Resolves when the statements in flight at the hold have ended. */
async function nothingRuns(url: string): Promise<void> {
  await askDatabase(url, async (sql) => {
    for (;;) {
      const running = await sql`
        select 1 from pg_stat_activity
        where application_name = 'session-ledger' and state = 'active'
          and wait_event_type is distinct from 'Client'`; // Half a statement changes nothing.
      if (running.length === 0) return;
      await delay(START_PAUSE_MS);
    }
  });
}

function signalled(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // A backend or a worker that has ended meanwhile.
  }
}

/** With one connection, and a second try if the server has just restarted. */
export async function askDatabase<T>(
  url: string,
  ask: (sql: postgres.Sql) => Promise<T>,
): Promise<T> {
  const untilMs = performance.now() + START_LIMIT_MS;
  for (;;) {
    const sql = openSql(url);
    try {
      return await ask(sql);
    } catch (error) {
      if (performance.now() > untilMs) throw error;
      await delay(START_PAUSE_MS);
    } finally {
      await closed(sql);
    }
  }
}
