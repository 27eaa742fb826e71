#!/usr/bin/env node
/**
 * The composition root: arguments and environment in, exit code out. The first SIGINT or SIGTERM
 * starts an orderly stop, the second ends the process at once.
 *
 * The service and the store are imported by the commands that need them: `push` and `tail` start
 * without them.
 */
import { once } from "node:events";
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import type { ImportRequest, MigrateCommand } from "./cli/io.ts";
import { runCli } from "./cli/program.ts";
import { startedLines } from "./cli/serve.ts";
import { type Config, configForLog, loadClientConfig, loadConfig } from "./config/config.ts";
import { createLog } from "./observability/log.ts";
import type { Database } from "./store/database.ts";
import type { ImportReport } from "./import/report.ts";
import type { MigrationStatus, SchemaOptions } from "./store/migrate.ts";
import type { RetentionOptions, RetentionSummary } from "./maintenance/pass.ts";

/** 128 + SIGINT, as a shell reports it. */
const EXIT_INTERRUPTED = 130;
/** A command runs one statement at a time, and a pool that lost a connection opens another. */
const COMMAND_CONNECTIONS = 2;

const ending = new AbortController();
/**
 * An abandoned step of a start, such as a connection without an answer, would keep the process
 * alive.
 */
let isStartLeft = false;
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    if (ending.signal.aborted) process.exit(EXIT_INTERRUPTED);
    ending.abort();
  });
}

async function serve(config: Config): Promise<number> {
  const { createService } = await import("./service.ts");
  const pretty = process.stdout.isTTY;
  let isStarting = true;
  const isQuiet = (): boolean => isStarting;
  const log = createLog({ level: config.logLevel, pretty, to: "stdout", isQuiet });
  process.on("uncaughtException", (err) => {
    // The state after this error cannot be trusted; the supervisor of the process starts it again.
    log.fatal({ err }, "uncaught exception");
    log.flush(() => process.exit(1));
  });
  const data = dataOf(config);
  const service = createService(config, log);
  log.info({ config: configForLog(config) }, "starting");
  try {
    await service.start(ending.signal);
  } catch (error) {
    isStartLeft = true;
    if (!ending.signal.aborted) throw error;
    log.info({}, "stopped");
    return 0;
  }
  const { grpcAddress: grpc, httpAddress: http, opsAddress: ops } = service;
  log.info({ grpc, http, ops, data }, "serving");
  isStarting = false;
  if (pretty) {
    const lines = startedLines({ grpc, http, ops, data }, config);
    process.stdout.write(`${lines.join("\n")}\n`);
  }
  if (!ending.signal.aborted) await once(ending.signal, "abort");
  log.info({}, "stopping");
  await service.stop();
  log.info({}, "stopped");
  return 0;
}

/**
 * The absolute path, because DATA_DIR is relative to the directory in which the service was
 * started.
 */
function dataOf(config: Config): string {
  const { databaseUrl } = configForLog(config);
  if (databaseUrl !== "embedded") return String(databaseUrl);
  const folder = resolve(config.dataDir);
  return existsSync(join(folder, "postgres")) ? folder : `${folder} (new)`;
}

/** Runs with the URL of the service's database; an embedded one is started and stopped for it. */
async function withDatabaseUrl<T>(config: Config, work: (url: string) => Promise<T>): Promise<T> {
  const { inSchema } = await import("./store/database.ts");
  if (config.databaseUrl !== undefined) {
    const { databaseUrl: url, databaseSchema } = config;
    const { naming } = await import("./store/failure.ts");
    return naming({ setting: "DATABASE_URL", url }, () => work(inSchema(url, databaseSchema)));
  }
  const { createEmbeddedPostgres } = await import("./postgres/embedded-postgres.ts");
  const log = createLog({ level: "warn", pretty: process.stderr.isTTY, to: "stderr" });
  const embedded = createEmbeddedPostgres({ dataDir: config.dataDir, log });
  await embedded.start();
  try {
    return await work(inSchema(embedded.url, config.databaseSchema));
  } finally {
    await embedded.stop();
  }
}

async function migrate(
  command: MigrateCommand,
  options: { readonly force: boolean },
  config: Config,
): Promise<MigrationStatus> {
  const { migrateDown, migrateUp, migrationStatus } = await import("./store/migrate.ts");
  const run = { up: migrateUp, down: migrateDown, status: migrationStatus }[command];
  const { databaseSchema: schema } = config;
  return withDatabaseUrl(config, (url) => run(url, { ...options, schema }));
}

async function embeddedUrl({ dataDir }: Config): Promise<string> {
  const { runningUrl } = await import("./postgres/cluster.ts");
  return runningUrl(dataDir);
}

async function withDatabase<T>(
  config: Config,
  prepare: (url: string, options: SchemaOptions) => Promise<unknown>,
  work: (database: Database) => Promise<T>,
): Promise<T> {
  const { createDatabase } = await import("./store/database.ts");
  return withDatabaseUrl(config, async (url) => {
    await prepare(url, { schema: config.databaseSchema });
    const { statementTimeoutMs, lockTimeoutMs } = config;
    const limits = { connectionsMax: COMMAND_CONNECTIONS, statementTimeoutMs, lockTimeoutMs };
    const database = createDatabase({ url: () => url, ...limits });
    try {
      await database.start();
      return await work(database);
    } finally {
      await database.stop();
    }
  });
}

async function retention(
  options: RetentionOptions,
  config: Config,
): Promise<RetentionSummary | undefined> {
  const { refuseOtherSchema } = await import("./store/migrate.ts");
  const { retentionPass } = await import("./maintenance/pass.ts");
  return withDatabase(config, refuseOtherSchema, (database) =>
    retentionPass({ database }, options),
  );
}

async function importFrom(request: ImportRequest, config: Config): Promise<ImportReport> {
  const { importLedger } = await import("./import/import.ts");
  const { openSource, sourceName } = await import("./import/source.ts");
  const { migrateUp } = await import("./store/migrate.ts");
  const redaction = await redactionOf(config);
  const { sourceUrl, progressed, ...options } = request;
  return withDatabase(config, migrateUp, async (target) => {
    const { statementTimeoutMs } = config;
    const source = openSource({ url: sourceUrl, statementTimeoutMs });
    try {
      await source.start();
      const named = { ...options, sourceName: sourceName(sourceUrl) };
      return await importLedger({ source, target, progressed, redaction }, named);
    } finally {
      await source.stop();
    }
  });
}

/**
 * Undefined with REDACTION=off. A command has no metrics endpoint, so its findings are not counted.
 */
async function redactionOf(config: Config) {
  const { redactionOptions } = await import("./redaction/configured.ts");
  const { createRedactor } = await import("./redaction/redactor.ts");
  const options = redactionOptions(config);
  return options && createRedactor(options, () => undefined);
}

const exitCode = await runCli(process.argv.slice(2), {
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  signal: ending.signal,
  loadConfig: () => loadConfig(),
  loadClientConfig: () => loadClientConfig(),
  serve,
  migrate,
  embeddedUrl,
  retention,
  importFrom,
});
if (isStartLeft) process.exit(exitCode);
process.exitCode = exitCode;
