/**
 * The end of the service: the first signal lets calls finish and leaves no process or file, the second
 * ends at once, and after a SIGKILL the next start cleans up.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdir, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import {
  Health,
  HealthCheckResponse_ServingStatus as ServingStatus,
} from "@session-ledger/proto/grpc/health/v1/health_pb";
import {
  createLedgerClient,
  ledger,
  type LedgerClient,
} from "@session-ledger/runner/internal/client";
import {
  cleanUp,
  endProcess,
  makeDirectory,
  postmasterPid,
  remainsIn,
  runningPostmaster,
} from "../support/embedded-fixture.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { startTcpProxy } from "../support/broken-network.ts";
import { openDatabase } from "../support/database.ts";
import { capped } from "../support/eventually.ts";
import { holdSession, waitingForLocks } from "../support/ledger.ts";
import { History, plan, PUSH_KINDS, type PushRecord, type Reader } from "../support/history.ts";
import { embeddedUrl, problemsOf, witnessIn } from "../support/history-check.ts";
import { rowOfWire, send } from "../support/history-clients.ts";
import {
  endService,
  runCommand,
  type ServiceProcess,
  startCommand,
  startService,
} from "../support/service-process.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const WRITERS = 16;
/** The default. */
const STOP_LIMIT_MS = 10_000;

/** One for all tests, which come one after the other: making a cluster takes longer than most of them. */
let dataDir: string;
beforeAll(async () => {
  dataDir = await makeDirectory();
});
afterAll(cleanUp);

/** Ended with its test, whatever becomes of it. */
async function serve({
  databaseUrl = "",
  stopLimitMs = STOP_LIMIT_MS,
} = {}): Promise<ServiceProcess> {
  const env = { STOP_LIMIT_MS: String(stopLimitMs) };
  const service = await startService({ dataDir, databaseUrl, env });
  onTestFinished(() => endService(service));
  return service;
}

function addressOf(server: Server): string {
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  return `127.0.0.1:${address.port}`;
}

function says(service: ServiceProcess, text: string): boolean {
  return service.log.some((line) => line.includes(text));
}

/** Its session has one row, whatever a test kills next. */
const FIRST = { sessionId: "held", eventType: "user", payload: "", idempotencyKey: "first" };
const ANOTHER = { ...FIRST, idempotencyKey: "another" };

/** Holds a session, so that a push into it is under way for as long as this is. */
async function stuckPush(
  service: ServiceProcess,
  client: LedgerClient,
): Promise<{ readonly push: Promise<unknown> }> {
  await client.call(ledger.pushSessionMessage, FIRST);
  const sql = postgres(await embeddedUrl(service.dataDir), { max: 2, onnotice: () => undefined });
  const held = await holdSession(sql, FIRST.sessionId);
  onTestFinished(async () => {
    await held.release();
    await sql.end({ timeout: 1 });
  });
  const push = client.call(ledger.pushSessionMessage, ANOTHER, { deadlineMs: 60_000 });
  push.catch(() => undefined); // Looked at later.
  await expect.poll(() => waitingForLocks(sql)).toBe(1);
  return { push };
}

describe("SIGTERM with pushes in flight and watches open", () => {
  const history = new History();
  const statuses: unknown[] = [];
  let watchesEnded: readonly unknown[];
  let healthEnded: unknown;
  let exitCode: number | null;
  let tookMs: number;
  let service: ServiceProcess;

  /** Until a push is refused, so that one is under way whenever the signal comes. */
  async function write(client: LedgerClient, writer: number): Promise<void> {
    for (let turn = 0; ; turn += 1) {
      const kind = PUSH_KINDS[(turn + writer) % PUSH_KINDS.length] ?? "event";
      const options = { sessionId: `session-${writer % 4}`, kind, keyed: turn % 2 === 0 };
      const push: PushRecord = history.push(plan(history, options));
      try {
        await send({ history, client }, push, { retryForMs: 0 });
      } catch {
        return;
      }
    }
  }

  /** Resolves with what the watch ended with. */
  async function watch(client: LedgerClient, reader: Reader): Promise<unknown> {
    const { sessionId } = reader;
    try {
      for await (const row of client.watch(ledger.watchSessionEvents, { sessionId })) {
        reader.saw(rowOfWire(row));
      }
      return "no failure";
    } catch (error) {
      return error;
    }
  }

  beforeAll(async () => {
    service = await startService({ dataDir });
    const client = createLedgerClient({ address: service.grpcAddress });
    const health = new RpcClient(service.grpcAddress);
    const watchHealth = async (): Promise<void> => {
      const watched = health.serverStream(Health.method.watch, {});
      for await (const { status } of watched) statuses.push(status);
    };
    const healthWatchEnds = watchHealth().catch((error: unknown) => error);
    const readers = Array.from({ length: WRITERS }, (_, at) =>
      history.reader("watch", { stream: "events", sessionId: `session-${at % 4}` }),
    );
    const watching = readers.map((reader) => watch(client, reader));
    const writing = Array.from({ length: WRITERS }, (_, writer) => write(client, writer));
    await Promise.all(readers.map((reader) => reader.until(100n)));
    const startMs = performance.now();
    exitCode = await service.stop();
    tookMs = performance.now() - startMs;
    watchesEnded = await Promise.all(watching);
    await Promise.all(writing);
    healthEnded = await healthWatchEnds;
    client.close();
    health.close();
  });

  test("health is NOT_SERVING, and its watch ends", () => {
    expect(statuses[0]).toBe(ServingStatus.SERVING);
    expect(statuses.at(-1)).toBe(ServingStatus.NOT_SERVING);
    expect(healthEnded).toMatchObject({ code: "UNAVAILABLE" });
  });

  test("watches end with UNAVAILABLE", () => {
    const shutDown = { code: "UNAVAILABLE", reason: "SHUTTING_DOWN" };
    expect(watchesEnded).toMatchObject(watchesEnded.map(() => shutDown));
  });

  test("every push is acknowledged or UNAVAILABLE", () => {
    const answers = history.pushes.flatMap(({ attempts }) => attempts.map(({ answer }) => answer));
    const others = answers.filter((answer) => answer.kind !== "acknowledged");
    expect(others).toHaveLength(WRITERS);
    for (const { reason } of others) expect(["SHUTTING_DOWN", "UNAVAILABLE"]).toContain(reason);
  });

  test("the process ends with 0, within its limit, and leaves no other process", async () => {
    expect(exitCode).toBe(0);
    expect(tookMs).toBeLessThan(STOP_LIMIT_MS);
    await expect.poll(() => says(service, '"stopped"')).toBe(true);
    expect(await remainsIn(dataDir)).toEqual([]);
  });

  test("every acknowledged push exists after the next start", async () => {
    const next = await serve();
    const witness = await witnessIn(next.dataDir, history.sessionIds());
    expect(problemsOf(history, witness)).toEqual([]);
  });
});

test("a push that waits for a locked session does not delay a stop beyond its limit", async () => {
  const service = await serve({ stopLimitMs: 1_000 });
  const client = createLedgerClient({ address: service.grpcAddress });
  const { push } = await stuckPush(service, client);
  const startMs = performance.now();
  expect(await service.stop()).toBe(0);
  expect(performance.now() - startMs).toBeLessThan(8_000); // It would be tried for 10 s.
  await expect(push).rejects.toMatchObject({ code: "UNAVAILABLE" });
  expect(await remainsIn(dataDir)).toEqual([]);
  client.close();
});

test("the same signal twice at once, as npm sends it after Ctrl-C, is one", async () => {
  // Regression: `npm start` and Ctrl-C ended with 130 in the middle of a stop.
  const service = await serve({ stopLimitMs: 1_000 });
  const client = createLedgerClient({ address: service.grpcAddress });
  const { push } = await stuckPush(service, client);
  const ended = service.stop();
  await expect.poll(() => says(service, '"stopping"'), { interval: 1 }).toBe(true);
  await service.kill("SIGTERM");
  expect(await ended).toBe(0);
  await expect(push).rejects.toMatchObject({ code: "UNAVAILABLE" });
  expect(await remainsIn(dataDir)).toEqual([]);
  client.close();
});

test("a stop ends within its limit with pushes and watches in a database black hole", async () => {
  const database = await openDatabase();
  const { sql } = database;
  const url = new URL(database.url);
  const proxy = await startTcpProxy({ host: url.hostname, port: Number(url.port) });
  onTestFinished(async () => {
    await proxy.stop();
    await database.stop();
  });
  url.port = String(proxy.port);
  url.searchParams.set("lock_timeout", "2500");
  const service = await serve({ databaseUrl: url.href, stopLimitMs: 1_000 });
  const client = createLedgerClient({ address: service.grpcAddress });
  const request = { sessionId: "s", eventType: "user", payload: "hello" };
  await client.call(ledger.pushSessionMessage, request);
  const attached = Promise.withResolvers<void>();
  const following = (async () => {
    const watch = client.watch(
      ledger.watchSessionMessages,
      { sessionId: "s" },
      { onAttached: attached.resolve },
    );
    for await (const row of watch) expect(row.sessionId).toBe("s");
  })();
  const ended = following.catch((error: unknown) => error);
  await attached.promise;
  // The push uses an open connection: the opening of a connection has another limit.
  await using held = await holdSession(sql, "s");
  const pushing = client.call(ledger.pushSessionMessage, request, { deadlineMs: 60_000 });
  const refused = pushing.catch((error: unknown) => error);
  await expect.poll(() => waitingForLocks(sql), { interval: 5 }).toBe(1);
  proxy.holdAnswers();
  await held.release();

  const exitCode = await capped(service.stop()).catch(() => "killed");
  await service.kill("SIGKILL");
  expect(exitCode).toBe(0);
  expect(await refused).toMatchObject({ code: "UNAVAILABLE" });
  expect(await ended).toMatchObject({ code: "UNAVAILABLE" });
  client.close();
});

describe("the embedded database after", () => {
  async function endedBySecondSignal(): Promise<void> {
    const service = await serve();
    const client = createLedgerClient({ address: service.grpcAddress });
    await stuckPush(service, client);
    const ended = service.stop();
    await expect.poll(() => says(service, '"stopping"')).toBe(true);
    const startMs = performance.now();
    await service.kill("SIGINT");
    expect(await ended).toBe(130);
    expect(performance.now() - startMs).toBeLessThan(STOP_LIMIT_MS); // Which the push would take.
    client.close();
  }

  async function endedByKill(): Promise<void> {
    const service = await serve();
    const client = createLedgerClient({ address: service.grpcAddress });
    await client.call(ledger.pushSessionMessage, FIRST);
    expect(await service.kill("SIGKILL")).toBe(null);
    client.close();
  }

  test.each([
    ["a second signal, which ends the process at once with 130,", endedBySecondSignal],
    ["a SIGKILL", endedByKill],
  ])("%s is recovered by the next start", async (_, end) => {
    await end();
    const leftover = await runningPostmaster(dataDir);
    const next = await serve();
    expect(says(next, "embedded_postgres_leftover_stopped")).toBe(true);
    expect(await postmasterPid(dataDir)).not.toBe(leftover);
    const { counters } = await witnessIn(dataDir, [FIRST.sessionId]);
    expect(counters.get(FIRST.sessionId)?.messages).toBe(1n);
    expect(await next.stop()).toBe(0);
    expect(await remainsIn(dataDir)).toEqual([]);
  });
});

describe("SIGTERM during the start", () => {
  test("during initdb ends with 0, and the next start creates the database", async () => {
    const fresh = await makeDirectory();
    const command = startCommand(["serve"], { DATA_DIR: fresh });
    await expect
      .poll(() => readdir(fresh), { interval: 5 })
      .toContainEqual(expect.stringContaining("initdb"));
    command.kill("SIGTERM");
    expect(await command.result).toEqual({ exitCode: 0, stderr: "" });
    expect(await remainsIn(fresh)).toEqual([]);
  });

  test.each([
    ["before anything is up", "starting"],
    ["while PostgreSQL starts", "embedded_postgres_log"],
    ["while the schema is made", "embedded_postgres_started"],
    ["while it begins to serve", "schema is up to date"],
  ])("%s ends with 0 and leaves no process", async (_, moment) => {
    const command = startCommand(["serve"], { DATA_DIR: dataDir });
    let isMoment = false;
    for await (const line of command.stdout) {
      if (isMoment || !line.includes(moment)) continue;
      isMoment = true;
      command.kill("SIGTERM");
    }
    expect(isMoment).toBe(true);
    expect(await command.result).toEqual({ exitCode: 0, stderr: "" });
    expect(await remainsIn(dataDir)).toEqual([]);
  });
});

test("ends a start at once with 0 while the database does not answer", async () => {
  const silent = createServer().listen(0, "127.0.0.1");
  onTestFinished(() => void silent.close());
  await once(silent, "listening");
  const command = startCommand(["serve"], { DATABASE_URL: `postgres://x@${addressOf(silent)}/x` });
  const [socket] = await once(silent, "connection");
  const startMs = performance.now();
  command.kill("SIGTERM");
  expect((await command.result).exitCode).toBe(0);
  expect(performance.now() - startMs).toBeLessThan(8_000); // A connection is waited for for 10 s.
  socket.destroy();
});

test("ends the service under `npm start` too", async () => {
  const addresses = { GRPC_ADDRESS: "127.0.0.1:0", HTTP_ADDRESS: "127.0.0.1:0" };
  const env = { ...process.env, ...addresses, OPS_ADDRESS: "127.0.0.1:0", DATA_DIR: dataDir };
  const npm = spawn("npm", ["start"], { cwd: ROOT, env, stdio: ["ignore", "pipe", "inherit"] });
  onTestFinished(async () => {
    npm.kill("SIGKILL");
    const postmaster = await postmasterPid(dataDir);
    if (postmaster !== undefined) endProcess(postmaster);
  });
  for await (const line of createInterface({ input: npm.stdout })) {
    if (line.includes('"serving"')) break;
  }
  npm.kill("SIGTERM");
  await once(npm, "exit");
  await expect.poll(() => remainsIn(dataDir)).toEqual([]);
});

describe("a refused start", () => {
  test.skipIf(process.platform !== "linux")(
    "on a DATA_DIR where no directory can be made reports it, and does not try for ever",
    async () => {
      const refused = await runCommand(["serve"], { env: { DATA_DIR: "/proc/session-ledger/x" } });
      expect(refused.exitCode).toBe(4);
      expect(refused.stderr).toContain("DATA_DIR /proc/session-ledger/x cannot be written: ENOENT");
    },
    20_000,
  );

  test.each([["serve"], ["dump", "--output", "none"], ["backup", "none"]])(
    "on a DATA_DIR that is a file reports it in one sentence: %s",
    async (...args) => {
      const file = join(await makeDirectory(), "file");
      await writeFile(file, "");
      for (const [place, name] of [
        [file, file],
        [join(file, "below"), file],
      ] as const) {
        const refused = await runCommand(args, { env: { DATA_DIR: place } });
        expect(refused.exitCode).toBe(4);
        expect(refused.stderr).toMatch(/is a file, and no directory/);
        expect(refused.stderr).toContain(name);
        expect(refused.stderr).not.toMatch(/EEXIST|ENOTDIR|\n {4}at /);
        expect(refused.stderr.trim().split("\n")).toHaveLength(1);
      }
    },
  );

  test("on the DATA_DIR of another service names that one, which continues", async () => {
    const service = await serve();
    const refused = await runCommand(["serve"], { env: { DATA_DIR: dataDir } });
    expect(refused.exitCode).toBe(4);
    expect(refused.stderr).toContain(`DATA_DIR ${dataDir} is in use`);
    expect(refused.stderr).toContain(`process ${service.pid}`);
    const client = createLedgerClient({ address: service.grpcAddress });
    const request = { sessionId: "s", eventType: "user", payload: "still there" };
    await expect(client.call(ledger.pushSessionMessage, request)).resolves.toMatchObject({
      seq: 1n,
    });
    client.close();
  });

  test.each(["GRPC_ADDRESS", "HTTP_ADDRESS", "OPS_ADDRESS"])(
    "on a taken %s names the address before PostgreSQL is started",
    async (name) => {
      const other = createServer().listen(0, "127.0.0.1");
      await once(other, "listening");
      const address = addressOf(other);
      const fresh = await makeDirectory();
      const refused = await runCommand(["serve"], { env: { DATA_DIR: fresh, [name]: address } });
      expect(refused.exitCode).toBe(4);
      expect(refused.stderr).toContain(address);
      expect(refused.stderr).toContain("in use");
      // Logs are JSON where there is no terminal, and so is this.
      expect(JSON.parse(refused.stderr)).toMatchObject({ level: "fatal" });
      expect(await readdir(fresh)).toEqual([]);
      other.close();
    },
  );
});
