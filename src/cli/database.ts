/**
 * The commands that work on the database itself, without a service. The store and the embedded
 * server are imported when a command needs them: `push` and `tail` start without them.
 */
import type { Config } from "../config/config.ts";
import type { RetentionOptions, RetentionSummary } from "../maintenance/retention.ts";
import { createLog } from "../observability/log.ts";
import type { Database } from "../store/database.ts";
import type { MigrationStatus, SchemaOptions } from "../store/migrate.ts";
import type { MigrateCommand } from "./io.ts";

/** A command runs one statement at a time, and a pool that lost a connection opens another. */
const CONNECTIONS_MAX = 2;

export async function migrateDatabase(
  command: MigrateCommand,
  options: { readonly force: boolean },
  config: Config,
): Promise<MigrationStatus> {
  const { migrateDown, migrateUp, migrationStatus } = await import("../store/migrate.ts");
  const run = { up: migrateUp, down: migrateDown, status: migrationStatus }[command];
  const { databaseSchema: schema } = config;
  return withDatabaseUrl(config, (url) => run(url, { ...options, schema }));
}

export async function embeddedUrl({ dataDir }: Config): Promise<string> {
  const { runningUrl } = await import("../postgres/cluster.ts");
  return runningUrl(dataDir);
}

export async function retainDatabase(
  options: RetentionOptions,
  config: Config,
): Promise<RetentionSummary | undefined> {
  const { refuseOtherSchema } = await import("../store/migrate.ts");
  const { retentionPass } = await import("../maintenance/retention.ts");
  return withDatabase(config, refuseOtherSchema, (database) =>
    retentionPass({ database }, options),
  );
}

/** `prepare` runs first: it checks or migrates the schema. */
export async function withDatabase<T>(
  config: Config,
  prepare: (url: string, options: SchemaOptions) => Promise<unknown>,
  work: (database: Database) => Promise<T>,
): Promise<T> {
  const { createDatabase } = await import("../store/database.ts");
  return withDatabaseUrl(config, async (url) => {
    await prepare(url, { schema: config.databaseSchema });
    const { statementTimeoutMs, lockTimeoutMs } = config;
    const limits = { connectionsMax: CONNECTIONS_MAX, statementTimeoutMs, lockTimeoutMs };
    const database = createDatabase({ url: () => url, ...limits });
    try {
      await database.start();
      return await work(database);
    } finally {
      await database.stop();
    }
  });
}

/** Runs with the URL of the service's database; an embedded one is started and stopped for it. */
async function withDatabaseUrl<T>(config: Config, work: (url: string) => Promise<T>): Promise<T> {
  const { inSchema } = await import("../store/database.ts");
  if (config.databaseUrl !== undefined) {
    const { databaseUrl: url, databaseSchema } = config;
    const { naming } = await import("../store/failure.ts");
    return naming({ setting: "DATABASE_URL", url }, () => work(inSchema(url, databaseSchema)));
  }
  const { createEmbeddedPostgres } = await import("../postgres/embedded-postgres.ts");
  const log = createLog({ level: "warn", pretty: process.stderr.isTTY, to: "stderr" });
  const embedded = createEmbeddedPostgres({ dataDir: config.dataDir, log });
  await embedded.start();
  try {
    return await work(inSchema(embedded.url, config.databaseSchema));
  } finally {
    await embedded.stop();
  }
}
