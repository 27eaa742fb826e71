import { chmod, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { createEmbeddedPostgres } from "../../src/store/embedded/embedded-postgres.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** The one server of a run, as a superuser; test/support/database.ts makes databases in it. */
    readonly postgresUrl: string;
  }
}

/**
 * One server for a whole run: the one of DATABASE_URL_TEST, or else the service's own embedded unit in
 * a directory that is deleted at the end, so that every run also starts and stops that unit.
 */
export async function setup(project: TestProject): Promise<() => Promise<void>> {
  const given = process.env["DATABASE_URL_TEST"];
  if (given !== undefined) {
    project.provide("postgresUrl", given);
    return () => Promise.resolve();
  }
  const dataDir = await mkdtemp(join(tmpdir(), "session-ledger-test-"));
  await chmod(dataDir, 0o755); // As root the server is another user, who has to come in.
  const quiet = { info: () => undefined, warn: () => undefined };
  const server = createEmbeddedPostgres({ dataDir, log: quiet });
  await server.start();
  project.provide("postgresUrl", server.url);
  return async () => {
    await server.stop();
    await rm(dataDir, { recursive: true });
  };
}
