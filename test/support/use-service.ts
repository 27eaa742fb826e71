/**
 * A service for the tests of a file, and its gRPC client. Files that only send requests to a service with
 * the default settings share one in each worker; such a file uses its own session ids.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll } from "vitest";
import { createLedgerDatabase } from "./database.ts";
import { cleanUp } from "./embedded-fixture.ts";
import { RpcClient } from "./grpc-client.ts";
import {
  endService,
  type ServiceOptions,
  type ServiceProcess,
  startService,
} from "./service-process.ts";

/** A file may not end it: other files may still need it. */
export type UsedService = Omit<ServiceProcess, "stop" | "kill">;

/**
 * Call it at the top of a test file, before the file's own hooks: the service runs when the first hook
 * runs. With options the service belongs to the file and ends after it.
 */
export function useService(options?: ServiceOptions): {
  readonly service: UsedService;
  readonly client: RpcClient;
} {
  let used: ServiceProcess | undefined;
  const running = (): ServiceProcess => {
    if (used === undefined) throw new Error("the service is there from the first hook on");
    return used;
  };
  beforeAll(async () => {
    used = await (options === undefined ? sharedService() : startService(options));
  });
  const client = new RpcClient(() => running().grpcAddress);
  afterAll(async () => {
    client.close();
    if (options !== undefined && used !== undefined) await endService(used);
    await cleanUp();
  });
  const service: UsedService = {
    get pid() {
      return running().pid;
    },
    get grpcAddress() {
      return running().grpcAddress;
    },
    get httpAddress() {
      return running().httpAddress;
    },
    get opsAddress() {
      return running().opsAddress;
    },
    get dataDir() {
      return running().dataDir;
    },
    get databaseUrl() {
      return running().databaseUrl;
    },
    get log() {
      return running().log;
    },
  };
  return { service, client };
}

let shared: Promise<ServiceProcess> | undefined;

/** Ends with its worker, which Vitest ends by SIGTERM. */
function sharedService(): Promise<ServiceProcess> {
  shared ??= startShared();
  return shared;
}

async function startShared(): Promise<ServiceProcess> {
  // Not from makeDirectory: its directories are deleted after each file.
  const dataDir = mkdtempSync(join(tmpdir(), "session-ledger-test-"));
  const { url } = await createLedgerDatabase();
  const service = await startService({ dataDir, env: { DATABASE_URL: url } });
  process.once("SIGTERM", () => {
    process.kill(service.pid, "SIGKILL");
    rmSync(dataDir, { recursive: true, force: true });
    process.kill(process.pid, "SIGTERM"); // Without a listener it ends the worker.
  });
  return service;
}
