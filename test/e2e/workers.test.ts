/** WORKERS: one service of several processes. Its limits, metrics and ends are those of one. */
import { readFile } from "node:fs/promises";
import { afterEach, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { childrenOf, cleanUp } from "../support/embedded-fixture.ts";
import { eventually, pace } from "../support/eventually.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { PushStreamClient } from "../support/push-stream.ts";
import { newSession, push } from "../support/pushing.ts";
import {
  endService,
  type ServiceOptions,
  type ServiceProcess,
  startService,
} from "../support/service-process.ts";

/** The default of the setting. */
const PUSH_STREAMS_MAX = 1_000;
/** Connections one after the other on which every stream is refused. */
const FULL_MAX = 20;

const { listSessionMessages, watchSessionMessages } = SessionService.method;

const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
  await cleanUp();
});

async function startWorkers(options: ServiceOptions = {}): Promise<ServiceProcess> {
  const service = await startService({ workers: 2, ...options });
  ends.push(() => endService(service));
  return service;
}

/** A client with a separate connection, which one of the workers has. */
function clientOf({ grpcAddress }: ServiceProcess): RpcClient {
  const client = new RpcClient(grpcAddress);
  ends.push(() => Promise.resolve(client.close()));
  return client;
}

/** Without the programs of the embedded PostgreSQL. */
async function workersOf({ pid }: ServiceProcess): Promise<readonly number[]> {
  const children = await childrenOf(pid);
  const commands = await Promise.all(
    children.map((child) => readFile(`/proc/${child}/cmdline`, "utf8").catch(() => "")),
  );
  return children.filter((_, index) => commands[index]?.includes("main.js") === true);
}

async function metricsOf({ opsAddress }: ServiceProcess): Promise<string> {
  return (await fetch(`http://${opsAddress}/metrics`)).text();
}

/** The sum of the values of a metric with these labels. */
function valueOf(metrics: string, name: string): number {
  const values = metrics.split("\n").filter((line) => line.startsWith(name));
  return values.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
}

const PUSHED = 'session_ledger_calls_total{method="PushSessionMessage",code="OK"}';

test.each([{ embedded: true }, { embedded: false }])(
  "several workers serve one port, and their metrics add up (embedded: $embedded)",
  async ({ embedded }) => {
    const service = await startWorkers({ embedded });
    expect(await workersOf(service)).toHaveLength(2);
    const sessionId = newSession();
    const watcher = clientOf(service).serverStream(watchSessionMessages, { sessionId });
    const clients = Array.from({ length: 16 }, () => clientOf(service));
    await Promise.all(clients.map((client) => push(client, "messages", { sessionId })));
    const seqs: bigint[] = [];
    for await (const { seq } of watcher) if (seqs.push(seq) === 16) break;
    expect(seqs).toEqual(Array.from({ length: 16 }, (_, index) => BigInt(index + 1)));
    const metrics = await metricsOf(service);
    expect(valueOf(metrics, PUSHED)).toBe(16);
    expect(valueOf(metrics, "session_ledger_ready")).toBe(1);
    expect(await (await fetch(`http://${service.opsAddress}/readyz`)).json()).toEqual({
      status: "ready",
    });
    const [client = clientOf(service)] = clients;
    const { items } = await client.unary(listSessionMessages, { sessionId });
    expect(items).toHaveLength(16);
  },
);

test("a limit holds for all workers together", async () => {
  const service = await startWorkers();
  let open = 0;
  // The kernel gives each connection to any worker.
  for (let full = 0; full < FULL_MAX; ) {
    const client = clientOf(service);
    const opening = Array.from({ length: 64 }, () =>
      PushStreamClient.open(client, { sessionId: newSession() }),
    );
    const opened = await Promise.allSettled(opening);
    const refused = opened.filter((one) => one.status === "rejected");
    for (const { reason } of refused) expect(reason).toMatchObject({ reason: "TOO_MANY_STREAMS" });
    open += opened.length - refused.length;
    full = refused.length === opened.length ? full + 1 : 0;
  }
  expect(open).toBe(PUSH_STREAMS_MAX);
});

test("a worker that dies is started again, and nothing that was acknowledged is lost", async () => {
  const service = await startWorkers();
  const sessionId = newSession();
  const [victim = 0] = await workersOf(service);
  await push(clientOf(service), "messages", { sessionId });
  const counted = async () => valueOf(await metricsOf(service), PUSHED);
  expect(await counted()).toBe(1);
  let acknowledged = 1;
  const pushing = Array.from({ length: 8 }, async () => {
    const client = clientOf(service);
    for (let nth = 0; nth < 50; nth += 1) {
      const pushed = push(client, "messages", { sessionId }, { deadlineMs: 10_000 });
      await pushed.then(
        () => (acknowledged += 1),
        () => undefined, // Its worker has died.
      );
      if (acknowledged === 40) process.kill(victim, "SIGKILL");
    }
  });
  await Promise.all(pushing);
  await eventually(async () => {
    const workers = await workersOf(service);
    expect(workers).toHaveLength(2);
    expect(workers).not.toContain(victim);
  });
  await expect.poll(() => service.log.join("\n")).toContain("worker_restarted");
  const before = await counted();
  for (const worker of await workersOf(service)) process.kill(worker, "SIGKILL");
  await expect.poll(() => service.log.join("\n").match(/worker_restarted/g)).toHaveLength(3);
  expect(await counted()).toBe(before); // No sum falls.
  const { items } = await clientOf(service).unary(listSessionMessages, {
    sessionId,
    pageSize: 1_000,
  });
  expect(items.length).toBeGreaterThanOrEqual(acknowledged);
});

test("a service whose workers die before they serve is not ready, and ends with the reason", async () => {
  const service = await startWorkers();
  const over = new AbortController();
  const killing = (async () => {
    while (!over.signal.aborted) {
      for (const worker of await workersOf(service)) process.kill(worker, "SIGKILL");
      await pace(20);
    }
  })();
  const ready = async () => (await fetch(`http://${service.opsAddress}/readyz`)).status;
  await expect.poll(ready).toBe(503);
  await expect.poll(() => service.log.join("\n")).toContain("cannot_go_on");
  over.abort();
  await killing;
  // Not by a stop: a signal while a process exits would be its end.
  expect(await service.ended).toBe(1);
});

test("a stop ends all workers", async () => {
  const service = await startWorkers({ embedded: true });
  const workers = await workersOf(service);
  expect(await service.stop()).toBe(0);
  for (const worker of workers) expect(() => process.kill(worker, 0)).toThrow("ESRCH");
});

test("workers end when their parent has died", async () => {
  const service = await startWorkers();
  const workers = await workersOf(service);
  await service.kill("SIGKILL");
  for (const worker of workers) {
    await eventually(async () => expect(() => process.kill(worker, 0)).toThrow("ESRCH"));
  }
});

test("a failed start is reported once, with its reason", async () => {
  const { grpcAddress } = await startWorkers();
  const start = startWorkers({ addresses: { grpcAddress } });
  const failure = await start.then(
    () => "started",
    (error: unknown) => String(error),
  );
  expect(failure).toContain("the service ended with 4");
  expect(failure.match(/in use/g)).toHaveLength(1);
});
