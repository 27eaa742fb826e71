import { randomUUID } from "node:crypto";
import { chmod, mkdtemp, readdir, rm, stat, statfs } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { TestProject } from "vitest/node";
import { createEmbeddedPostgres } from "../../src/postgres/embedded-postgres.ts";
import { migrateUp } from "../../src/store/migrate.ts";
import { bundle } from "../../tools/bundle.ts";
import { cleanUp, withSql } from "./embedded-fixture.ts";
import { SharedServices } from "./shared-services.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** The one server of a run, as a superuser; test/support/database.ts makes databases in it. */
    readonly postgresUrl: string;
    /** A database of that server with the tables of the service and no rows. */
    readonly postgresTemplate: string;
    /** Where a worker asks for a service of a profile: test/support/shared-services.ts. */
    readonly sharedServices: string;
    /** The project of a worker: the shared services of each are its own. */
    readonly project: string;
  }
}

const BUNDLE = fileURLToPath(new URL("../../dist", import.meta.url));

const PREFIX = "session-ledger-test-server-";

const MEMORY_FOLDER = "/dev/shm";
/** A run writes about a quarter of this. */
const MEMORY_FREE_BYTES_MIN = 8 * 2 ** 30;

/** The default is 100; each worker has services with pools of ten. */
const CONNECTIONS_MAX = 400;

/** A younger directory may belong to a run that has made it and not locked it yet. */
const SWEEP_AGE_MS_MIN = 60_000;

const quiet = { info: () => undefined, warn: () => undefined };

/**
 * Makes the bundle of the service, and one server for all projects of a run: the one of
 * DATABASE_URL_TEST, or else the embedded unit of the service in a directory that is deleted at the end,
 * so that every run also starts and stops that unit. The unit tests use neither.
 */
export async function setup(project: TestProject): Promise<(() => Promise<void>) | undefined> {
  if (project.vitest.projects.every(({ name }) => name === "unit")) return undefined;
  await bundle(BUNDLE);
  // Several hundred processes compile the same files: with the cache a start takes 0.3 s less.
  process.env["NODE_COMPILE_CACHE"] ??= join(tmpdir(), "session-ledger-compile-cache");
  const given = process.env["DATABASE_URL_TEST"];
  if (given !== undefined) {
    const services = await provide(project, given);
    return async () => {
      await services.stop();
      await cleanUp();
    };
  }
  const folder = await runFolder();
  // The directories of tests are there too: a new cluster, and its every commit, waits for the disk.
  process.env["TMPDIR"] = folder;
  await sweepKilledRuns(folder);
  const dataDir = await mkdtemp(join(folder, PREFIX));
  await chmod(dataDir, 0o755); // As root the server is another user, who has to come in.
  const server = createEmbeddedPostgres({ dataDir, log: quiet });
  await server.start();
  await withSql(server.url, async (sql) => {
    await sql.unsafe(`alter system set max_connections = ${CONNECTIONS_MAX}`);
    // It would visit each of some hundred databases once a minute, all of which are dropped soon.
    await sql.unsafe("alter system set autovacuum = off");
  });
  await server.stop();
  await server.start();
  const services = await provide(project, server.url);
  return async () => {
    await services.stop();
    await cleanUp();
    await server.stop();
    await rm(dataDir, { recursive: true });
  };
}

/**
 * In memory if the machine has enough: a push that waits for the disk of a busy machine takes a hundred
 * times as long. Tests of durability end processes and not the machine, and a file in memory outlives its
 * process as one on disk does.
 */
export async function runFolder(): Promise<string> {
  const free = await statfs(MEMORY_FOLDER).then(
    ({ bavail, bsize }) => bavail * bsize,
    () => 0,
  );
  return free >= MEMORY_FREE_BYTES_MIN ? MEMORY_FOLDER : tmpdir();
}

async function provide(project: TestProject, url: string): Promise<SharedServices> {
  const postgresTemplate = `template_${randomUUID().replaceAll("-", "")}`;
  await withSql(url, (sql) => sql`create database ${sql(postgresTemplate)} template template0`);
  const template = new URL(url);
  template.pathname = `/${postgresTemplate}`;
  await migrateUp(template.href);
  project.provide("postgresUrl", url);
  project.provide("postgresTemplate", postgresTemplate);
  const services = new SharedServices(template.href);
  project.provide("sharedServices", await services.start());
  return services;
}

/** A killed run leaves its server running; the unit stops it, and skips servers of other owners. */
async function sweepKilledRuns(folder: string): Promise<void> {
  for (const name of await readdir(folder)) {
    if (!name.startsWith(PREFIX)) continue;
    const dataDir = join(folder, name);
    const leftover = createEmbeddedPostgres({ dataDir, log: quiet });
    try {
      if (Date.now() - (await stat(dataDir)).birthtimeMs < SWEEP_AGE_MS_MIN) continue;
      await leftover.start();
      await leftover.stop();
      await rm(dataDir, { recursive: true, force: true });
    } catch {
      // Its run lives, another run sweeps it, or it belongs to another user.
    }
  }
}
