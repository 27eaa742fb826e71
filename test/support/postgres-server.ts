import { randomUUID } from "node:crypto";
import { chmod, mkdtemp, readdir, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { TestProject } from "vitest/node";
import { createEmbeddedPostgres } from "../../src/postgres/embedded-postgres.ts";
import { migrateUp } from "../../src/store/migrate.ts";
import { bundle } from "../../tools/bundle.ts";
import { withSql } from "./embedded-fixture.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** The one server of a run, as a superuser; test/support/database.ts makes databases in it. */
    readonly postgresUrl: string;
    /** A database of that server with the tables of the service and no rows. */
    readonly postgresTemplate: string;
  }
}

const BUNDLE = fileURLToPath(new URL("../../dist", import.meta.url));

const PREFIX = "session-ledger-test-server-";

/** A younger directory may be of a run that has made it and not locked it yet. */
const SWEEP_AGE_MS_MIN = 60_000;

const quiet = { info: () => undefined, warn: () => undefined };

/**
 * Makes the bundle of the service, and one server for a whole run: the one of DATABASE_URL_TEST, or else the service's own embedded unit in
 * a directory that is deleted at the end, so that every run also starts and stops that unit.
 */
export async function setup(project: TestProject): Promise<() => Promise<void>> {
  await bundle(BUNDLE);
  const given = process.env["DATABASE_URL_TEST"];
  if (given !== undefined) {
    await provide(project, given);
    return () => Promise.resolve();
  }
  await sweepKilledRuns();
  const dataDir = await mkdtemp(join(tmpdir(), PREFIX));
  await chmod(dataDir, 0o755); // As root the server is another user, who has to come in.
  const server = createEmbeddedPostgres({ dataDir, log: quiet });
  await server.start();
  await provide(project, server.url);
  return async () => {
    await server.stop();
    await rm(dataDir, { recursive: true });
  };
}

async function provide(project: TestProject, url: string): Promise<void> {
  const postgresTemplate = `template_${randomUUID().replaceAll("-", "")}`;
  await withSql(url, (sql) => sql`create database ${sql(postgresTemplate)} template template0`);
  const template = new URL(url);
  template.pathname = `/${postgresTemplate}`;
  await migrateUp(template.href);
  project.provide("postgresUrl", url);
  project.provide("postgresTemplate", postgresTemplate);
}

/** A run that was killed leaves its server running; the unit knows how to stop it, and whose it is not. */
async function sweepKilledRuns(): Promise<void> {
  for (const name of await readdir(tmpdir())) {
    if (!name.startsWith(PREFIX)) continue;
    const dataDir = join(tmpdir(), name);
    const leftover = createEmbeddedPostgres({ dataDir, log: quiet });
    try {
      if (Date.now() - (await stat(dataDir)).birthtimeMs < SWEEP_AGE_MS_MIN) continue;
      await leftover.start();
      await leftover.stop();
      await rm(dataDir, { recursive: true, force: true });
    } catch {
      // Its run lives, or another one sweeps it, or it belongs to another user.
    }
  }
}
