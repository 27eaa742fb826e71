/** `backup` of the embedded database while pushes go on, and `restore` of it elsewhere. */
import { appendFile, cp, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { cleanUp, makeDirectory, withSql } from "../support/embedded-fixture.ts";
import { eventually } from "../support/eventually.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { eventsOf, whole } from "../support/push-stream.ts";
import {
  endService,
  runCommand,
  type ServiceProcess,
  startService,
} from "../support/service-process.ts";

const { pushSessionEvent } = SessionService.method;

let service: ServiceProcess;
let client: RpcClient;
let folder: string;
const ends: (() => Promise<unknown> | void)[] = [];

beforeAll(async () => {
  service = await startService({ embedded: true });
  client = new RpcClient(service.grpcAddress);
  folder = await makeDirectory();
});

afterAll(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
  client.close();
  await endService(service);
  await cleanUp();
});

const backup = (name: string, dataDir = service.dataDir) =>
  runCommand(["backup", join(folder, name)], { env: { DATA_DIR: dataDir } });

const restore = (name: string, dataDir: string) =>
  runCommand(["restore", join(folder, name)], { env: { DATA_DIR: dataDir } });

function pushOne(value: number): Promise<{ readonly seq: bigint }> {
  const { payload = "" } = whole(value);
  return client.unary(pushSessionEvent, { sessionId: "s", eventType: "CUSTOM", payload });
}

async function valuesAt(dataDir: string): Promise<readonly string[]> {
  const restored = await startService({ dataDir });
  ends.push(() => endService(restored));
  const rpc = new RpcClient(restored.grpcAddress);
  ends.push(() => rpc.close());
  return (await eventsOf(rpc, "s")).map(({ seq, payload }) => `${seq} ${payload}`);
}

test("a backup during pushes has every row acknowledged before it, and is a prefix", async () => {
  const acknowledged: string[] = [];
  const ending = new AbortController();
  const pushing = (async () => {
    for (let value = 1; !ending.signal.aborted; value += 1) {
      const { seq } = await pushOne(value);
      acknowledged.push(`${seq} ${whole(value).payload}`);
    }
  })();
  await eventually(() => expect(acknowledged.length).toBeGreaterThan(200));
  const before = [...acknowledged];
  const made = await backup("running");
  const during = [...acknowledged];
  await pushOne(0);
  ending.abort();
  await pushing;
  expect(made).toMatchObject({
    exitCode: 0,
    stderr: expect.stringMatching(/^session-ledger: backed up to .*: \d+ files with \d+ bytes\n$/),
  });
  expect(during.length).toBeGreaterThan(before.length);
  expect((await readdir(folder)).filter((name) => name.includes("partial"))).toEqual([]);
  const slots = await withSql(
    await urlOf(service.dataDir),
    (sql) => sql`
    select slot_name from pg_replication_slots`,
  );
  expect(slots).toEqual([]);

  const dataDir = await makeDirectory();
  expect(await restore("running", dataDir)).toMatchObject({
    exitCode: 0,
    stderr: expect.stringContaining(`restored into ${dataDir}`),
  });
  const rows = await valuesAt(dataDir);
  expect(rows.length).toBeGreaterThanOrEqual(before.length);
  expect(rows).toEqual(acknowledged.slice(0, rows.length));
});

async function urlOf(dataDir: string): Promise<string> {
  const { stdout } = await runCommand(["embedded", "url"], { env: { DATA_DIR: dataDir } });
  return stdout.trim();
}

describe("a backup of a stopped service", () => {
  let stopped: string;
  beforeAll(async () => {
    const quiet = await startService({ embedded: true });
    const rpc = new RpcClient(quiet.grpcAddress);
    for (const value of [1, 2, 3])
      await rpc.unary(pushSessionEvent, {
        sessionId: "s",
        eventType: "CUSTOM",
        payload: whole(value).payload ?? "",
      });
    rpc.close();
    await quiet.stop();
    stopped = quiet.dataDir;
    await backup("stopped", stopped);
  });

  test("has all of its rows", async () => {
    const dataDir = await makeDirectory();
    expect(await restore("stopped", dataDir)).toMatchObject({ exitCode: 0 });
    expect(await valuesAt(dataDir)).toHaveLength(3);
  });

  test("replaces no backup, and no database", async () => {
    const again = await backup("stopped", stopped);
    expect(again).toMatchObject({ exitCode: 4, stderr: expect.stringContaining("exists already") });
    const over = await restore("stopped", stopped);
    expect(over).toMatchObject({
      exitCode: 4,
      stderr: expect.stringContaining("has a database already"),
    });
    const running = await restore("stopped", service.dataDir);
    expect(running).toMatchObject({ exitCode: 4, stderr: expect.stringContaining("is in use") });
  });

  test.each([
    [
      "a changed file",
      (root: string) => appendFile(join(root, "data", "PG_VERSION"), "x"),
      "PG_VERSION",
    ],
    ["a missing file", (root: string) => rm(join(root, "password")), "lacks its file password"],
    ["no list", (root: string) => rm(join(root, LIST)), "is no backup"],
    [
      "a list of a newer version",
      (root: string) => writeFile(join(root, LIST), '{"version":2}'),
      "newer",
    ],
  ])("with %s is refused, and nothing of it stays", async (_, damage, said) => {
    const name = `damaged ${said}`;
    await cp(join(folder, "stopped"), join(folder, name), { recursive: true });
    await damage(join(folder, name));
    const dataDir = await makeDirectory();
    const run = await restore(name, dataDir);
    expect(run).toMatchObject({ exitCode: 4, stderr: expect.stringContaining(said) });
    expect((await readdir(dataDir)).filter((entry) => entry !== "session-ledger.lock")).toEqual([]);
  });

  test("is of the embedded database alone", async () => {
    const env = { DATABASE_URL: "postgres://127.0.0.1:1/none" };
    for (const args of [
      ["backup", join(folder, "own")],
      ["restore", join(folder, "stopped")],
    ]) {
      const run = await runCommand(args, { env });
      expect(run).toMatchObject({
        exitCode: 2,
        stderr: expect.stringContaining("DATABASE_URL is set"),
      });
    }
  });
});

const LIST = "session-ledger-backup.json";
