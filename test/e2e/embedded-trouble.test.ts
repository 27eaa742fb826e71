/** What the service says when the disk under its embedded PostgreSQL fails it. */
import { execFileSync } from "node:child_process";
import { rm, statfs, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { cleanUp, makeDirectory } from "../support/embedded-fixture.ts";
import { eventually } from "../support/eventually.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { failureOf, newSession, push, rowsOf } from "../support/pushing.ts";
import { type ServiceProcess, startService } from "../support/service-process.ts";

let service: ServiceProcess;
let client: RpcClient;

const MIB = 1_048_576;
const RESERVE_MIB = 64;
/** A disk of its own for DATA_DIR, where one can be mounted (by root). */
let disk: string;
let isMounted = false;

beforeAll(async () => {
  disk = await makeDirectory();
  try {
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=320m,mode=755", "tmpfs", disk], {
      stdio: "pipe",
    });
    isMounted = true;
  } catch {
    // The test of a full disk is then skipped.
  }
  const env = { DISK_RESERVE_BYTES: isMounted ? String(RESERVE_MIB * MIB) : "0" };
  service = await startService({ dataDir: join(disk, "data"), env });
  client = new RpcClient(service.grpcAddress);
});

afterAll(async () => {
  client.close();
  await service.stop(); // Its PostgreSQL cannot be found by the files that are gone.
  if (isMounted) execFileSync("umount", ["-l", disk]);
  await cleanUp();
});

async function readyz() {
  const response = await fetch(`http://${service.opsAddress}/readyz`);
  return { status: response.status, why: await response.text() };
}

// Bug: PostgreSQL ended when its log could not grow, reads ended with it, and nobody said "disk full".
test("a disk that is nearly full refuses pushes with DISK_FULL, and reads continue", async (context) => {
  if (!isMounted) context.skip("no tmpfs can be mounted");
  const sessionId = newSession();
  const first = await push(client, "messages", { sessionId });
  const ballast = join(disk, "ballast");
  const { bavail, bsize } = await statfs(disk);
  await writeFile(ballast, Buffer.alloc(bavail * bsize - (RESERVE_MIB / 2) * MIB));
  const message = "the disk of the database is full; nothing was stored";
  const refused = { code: "UNAVAILABLE", reason: "DISK_FULL", message };
  await eventually(async () => {
    expect(await failureOf(push(client, "messages", { sessionId }))).toMatchObject(refused);
  });
  expect(await failureOf(push(client, "events", { sessionId }))).toMatchObject(refused);
  const rows = await rowsOf(client, "messages", sessionId);
  expect(rows[0]).toEqual(first);
  await client.unary(SessionService.method.getSession, { id: sessionId });
  const metrics = await (await fetch(`http://${service.opsAddress}/metrics`)).text();
  const free = /session_ledger_disk_free_bytes\{setting="DATA_DIR"\} (\d+)/.exec(metrics)?.[1];
  expect(Number(free)).toBeLessThan(RESERVE_MIB * MIB);
  await expect.poll(() => service.log.some((line) => line.includes("disk_full"))).toBe(true);
  await rm(ballast);
  const next = await eventually(() => push(client, "messages", { sessionId }));
  expect(next.seq).toBe(BigInt(rows.length + 1));
});

// Bug: PostgreSQL answers from memory and open files, so /readyz said yes. The last test of the file.
test("/readyz is 503 with the reason when DATA_DIR is deleted under the service", async () => {
  await push(client, "messages", { sessionId: newSession() });
  await rm(service.dataDir, { recursive: true });
  await eventually(async () => {
    const failure = await failureOf(push(client, "messages", { sessionId: newSession() }));
    expect(failure.message).toContain("the files of the database are gone");
  });
  const why = expect.stringContaining("DATA_DIR: the database in ");
  await expect.poll(readyz).toEqual({ status: 503, why });
});
