/** What the service says when the disk under its embedded PostgreSQL fails it. */
import { rm } from "node:fs/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { cleanUp } from "../support/embedded-fixture.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { newSession, push } from "../support/pushing.ts";
import { type ServiceProcess, startService } from "../support/service-process.ts";

let service: ServiceProcess;
let client: RpcClient;

beforeAll(async () => {
  service = await startService();
  client = new RpcClient(service.grpcAddress);
});

afterAll(async () => {
  client.close();
  await service.stop(); // Its PostgreSQL cannot be found by the files that are gone.
  await cleanUp();
});

async function readyz() {
  const response = await fetch(`http://${service.opsAddress}/readyz`);
  return { status: response.status, why: await response.text() };
}

// Bug: PostgreSQL answers from memory and open files, so /readyz said yes. The last test of the file.
test("/readyz says no and why when DATA_DIR is deleted under the service", async () => {
  await push(client, "messages", { sessionId: newSession() });
  await rm(service.dataDir, { recursive: true });
  const why = expect.stringContaining("DATA_DIR: the database in ");
  await expect.poll(readyz, { timeout: 20_000 }).toEqual({ status: 503, why });
});
