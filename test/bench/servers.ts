/** The measured servers, and the witness of the rows that the first has really stored. */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { readFile, realpath } from "node:fs/promises";
import { join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";
import postgres from "postgres";
import { z } from "zod";
import { makeDirectory, runningPostmaster } from "../support/embedded-fixture.ts";
import { GO_CLIENT } from "../support/foreign-clients.ts";
import { planFor } from "../support/tools.ts";
import type { Bench } from "./bench.ts";
import { startProcess } from "./processes.ts";

export interface Target {
  readonly name: string;
  readonly address: string;
  readonly pid: number;
  /** Undefined where nothing is stored. */
  readonly witness: Witness | undefined;
  /** Its calls are served by its children. */
  readonly hasWorkers?: boolean;
  /** What callers need where there is TLS and who calls is asked. */
  readonly door?: Door;
}

export interface Door {
  /** PEM. */
  readonly authority: string;
  readonly token: string;
}

/** What a client cannot know: HTTP 200 is also the answer to a call that failed. */
interface Witness {
  /** Event rows in the table. */
  rowsOf(sessionIds: readonly string[]): Promise<number>;
  /** Raw events that these rows stand for. */
  eventsOf(sessionIds: readonly string[]): Promise<number>;
  /** Sessions that have any. */
  sessionsAmong(sessionIds: readonly string[]): Promise<number>;
  /** Pushes answered with an earlier row, since the start. */
  deduplicated(): Promise<number>;
  readonly postmasterPid: number;
}

export interface Ledger extends Target {
  readonly httpAddress: string;
  readonly witness: Witness;
  readonly databaseUrl: string;
  readonly sql: postgres.Sql;
  /** The directory that holds the cluster: on the disk whose fsync counts. */
  readonly clusterHome: string;
  stop(): Promise<void>;
}

/** Settings of the user stay, except for the addresses and the storage. */
const ADDRESSES = {
  GRPC_ADDRESS: "127.0.0.1:0",
  HTTP_ADDRESS: "127.0.0.1:0",
  OPS_ADDRESS: "127.0.0.1:0",
} as const;

/** One caller pushes as fast as it can here; `against` has a part with limits. */
const UNLIMITED = {
  // Settings that older checkouts have.
  PRINCIPAL_MESSAGES_PER_SECOND: "0",
  SESSION_MESSAGES_PER_SECOND: "0",
  PRINCIPAL_BYTES_PER_SECOND: "0",
  SESSION_BYTES_PER_SECOND: "0",
  SESSION_ROWS_MAX: "1000000000000",
  SESSION_BYTES_MAX: "100000000000000",
} as const;

/** The limit of watchers of one session. Older checkouts have a setting for it. */
export function watchersOfOneSession(count: number): Readonly<Record<string, string>> {
  // One caller gets half of them; the limit of one session is an eighth of all.
  return { WATCHERS_MAX: String(16 * count), WATCHERS_PER_SESSION_MAX: String(2 * count) };
}

/** Without announcements between the instances. */
export function pollOnly(checkout: string | undefined): Readonly<Record<string, string>> {
  return checkout === undefined ? { LISTEN_DATABASE_URL: "off" } : { WAKE_UPS: "poll" };
}

const startedSchema = z.object({ msg: z.literal("embedded_postgres_started"), port: z.int() });
const servingSchema = z.object({
  msg: z.literal("serving"),
  grpc: z.string(),
  http: z.string(),
  ops: z.string(),
});
const addressSchema = z.object({ address: z.string() });

/** The service as a user starts it: with an embedded PostgreSQL, durable, in a new DATA_DIR. */
export async function startLedger(
  bench: Bench,
  options: {
    readonly nodeArgs?: readonly string[];
    readonly env?: Readonly<Record<string, string>>;
    /** The folder of the checkout to start; this one unless it is given. */
    readonly checkout?: string | undefined;
    /** In place of the bundle: src/main.ts, whose functions have their own names and files. */
    readonly fromSources?: boolean;
  } = {},
): Promise<Ledger> {
  const dataDir = await makeDirectory();
  let port = 0;
  const { pid, ready, ...server } = await startProcess(bench, {
    script:
      options.fromSources === true
        ? new URL("../../src/main.ts", import.meta.url)
        : await mainOf(options.checkout),
    nodeArgs: options.nodeArgs ?? [],
    env: {
      ...ADDRESSES,
      ...UNLIMITED,
      DATABASE_URL: "",
      DATA_DIR: dataDir,
      LOG_LEVEL: "info",
      ...options.env,
    },
    readyBy: (line) => {
      port = startedSchema.safeParse(line).data?.port ?? port;
      return servingSchema.safeParse(line).data;
    },
  });
  const cluster = await realpath(join(dataDir, "postgres"));
  const password = (await readFile(join(cluster, "password"), "utf8")).trim();
  const databaseUrl = `postgres://postgres:${password}@127.0.0.1:${port}/postgres`;
  const sql = postgres(databaseUrl, { max: 1, onnotice: () => undefined });
  bench.undo.defer(() => sql.end({ timeout: 1 }));
  const witness = createWitness(sql, {
    opsAddress: ready.ops,
    postmasterPid: await runningPostmaster(dataDir),
  });
  const clusterHome = join(cluster, "..");
  return {
    name: "service",
    address: ready.grpc,
    httpAddress: ready.http,
    pid,
    witness,
    databaseUrl,
    sql,
    clusterHome,
    stop: () => server.stop(),
  };
}

/** What `npm start` runs there: a bundle, or the sources where the checkout is older than the bundle. */
async function mainOf(checkout = fileURLToPath(new URL("../..", import.meta.url))): Promise<URL> {
  const folder = resolve(checkout);
  const bundler = join(folder, "tools/bundle.ts");
  if (!existsSync(bundler)) return pathToFileURL(join(folder, "src/main.ts"));
  await promisify(execFile)(process.execPath, [bundler]);
  return pathToFileURL(join(folder, "dist/main.js"));
}

export interface Replica extends Target {
  readonly httpAddress: string;
  readonly readyMs: number;
  stop(): Promise<void>;
}

/** Another service on the ledger's PostgreSQL. */
export async function startReplica(
  bench: Bench,
  ledger: Ledger,
  env: Readonly<Record<string, string>> = {},
  checkout?: string,
): Promise<Replica> {
  const { pid, ready, readyMs, ...server } = await startProcess(bench, {
    script: await mainOf(checkout),
    env: {
      ...ADDRESSES,
      ...UNLIMITED,
      DATABASE_URL: ledger.databaseUrl,
      LOG_LEVEL: "info",
      ...env,
    },
    readyBy: (line) => servingSchema.safeParse(line).data,
  });
  return {
    name: "replica",
    address: ready.grpc,
    httpAddress: ready.http,
    pid,
    readyMs,
    witness: ledger.witness,
    stop: () => server.stop(),
  };
}

/** Streams the same rows to every watch once all are there: what gRPC alone costs a fan-out. */
export async function startNoopStreams(
  bench: Bench,
  load: { readonly watchers: number; readonly rows: number },
): Promise<Target> {
  const { pid, ready } = await startProcess(bench, {
    script: new URL("./noop-stream-server.ts", import.meta.url),
    args: [String(load.watchers), String(load.rows)],
    env: {},
    readyBy: (line) => addressSchema.safeParse(line).data,
  });
  return { name: "no-op streams", address: ready.address, pid, witness: undefined };
}

/** The same adapter and messages over a handler that stores nothing: what gRPC alone costs. */
export async function startNoop(bench: Bench): Promise<Target> {
  const { pid, ready } = await startProcess(bench, {
    script: new URL("../support/noop-server.ts", import.meta.url),
    env: {},
    readyBy: (line) => addressSchema.safeParse(line).data,
  });
  return { name: "no-op", address: ready.address, pid, witness: undefined };
}

/** The same over grpc-go, built for this run; undefined without Go. */
export async function startGoNoop(bench: Bench): Promise<Target | undefined> {
  const plan = planFor("go", process.env);
  if (plan.kind !== "run") {
    bench.progress("without the no-op server of grpc-go: `go` is not installed");
    return undefined;
  }
  const program = join(await makeDirectory(), "noop-server");
  const source = fileURLToPath(new URL("./noop-server.go", import.meta.url));
  await promisify(execFile)(plan.path, ["build", "-o", program, source], { cwd: GO_CLIENT });
  const { pid, ready } = await startProcess(bench, {
    script: program,
    env: {},
    readyBy: (line) => addressSchema.safeParse(line).data,
  });
  return { name: "no-op of grpc-go", address: ready.address, pid, witness: undefined };
}

/** Plain grpc-js that decodes and acknowledges the frames of push streams. */
export async function startNoopPush(
  bench: Bench,
  options: { readonly windowBytes: number; readonly pace: "eager" | "lazy" },
): Promise<Target> {
  const { pid, ready } = await startProcess(bench, {
    script: new URL("./noop-push-server.ts", import.meta.url),
    args: [String(options.windowBytes), options.pace],
    env: {},
    readyBy: (line) => addressSchema.safeParse(line).data,
  });
  return { name: `no-op push, ${options.pace}`, address: ready.address, pid, witness: undefined };
}

/** On the ledger's PostgreSQL, which serves one of the two at a time. */
export async function startRowByRow(bench: Bench, ledger: Ledger): Promise<Target> {
  const { pid, ready } = await startProcess(bench, {
    script: new URL("./row-by-row-server.ts", import.meta.url),
    env: { ...ADDRESSES, ...UNLIMITED, DATABASE_URL: ledger.databaseUrl },
    readyBy: (line) => addressSchema.safeParse(line).data,
  });
  return { name: "row by row", address: ready.address, pid, witness: ledger.witness };
}

function createWitness(
  sql: postgres.Sql,
  options: { readonly opsAddress: string; readonly postmasterPid: number },
): Witness {
  return {
    postmasterPid: options.postmasterPid,
    async rowsOf(sessionIds) {
      const [row] = await sql<{ count: number }[]>`
        select count(*)::int as count from session_events where session_id = any(${sessionIds})`;
      return row?.count ?? 0;
    },
    async eventsOf(sessionIds) {
      const [row] = await sql<{ sum: number }[]>`
        select coalesce(sum(event_count), 0)::int as sum from session_events
        where session_id = any(${sessionIds})`;
      return row?.sum ?? 0;
    },
    async sessionsAmong(sessionIds) {
      const [row] = await sql<{ count: number }[]>`
        select count(*)::int as count from sessions where id = any(${sessionIds}) and event_seq > 0`;
      return row?.count ?? 0;
    },
    async deduplicated() {
      const answer = await fetch(`http://${options.opsAddress}/metrics`);
      const count = /^session_ledger_rows_deduplicated_total (\d+)$/m.exec(await answer.text());
      if (count === null) throw new Error("the service does not count repeated pushes");
      return Number(count[1]);
    },
  };
}
