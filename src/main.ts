#!/usr/bin/env node
/**
 * The composition root: arguments and environment in, exit code out. The first SIGINT or SIGTERM asks
 * whatever runs to end in order, the second ends the process at once.
 *
 * The service and the store are imported by the commands that need them: `push` and `tail` start
 * without them.
 */
import type { MigrateCommand } from "./cli/io.ts";
import { runCli } from "./cli/program.ts";
import { type Config, configForLog, loadClientConfig, loadConfig } from "./config.ts";
import { createLog } from "./observability/log.ts";
import type { MigrationStatus } from "./store/migrate.ts";

/** 128 + SIGINT, as a shell reports it. */
const EXIT_INTERRUPTED = 130;

const ending = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    if (ending.signal.aborted) process.exit(EXIT_INTERRUPTED);
    ending.abort();
  });
}

async function serve(config: Config): Promise<number> {
  const { createService } = await import("./service.ts");
  const pretty = process.stdout.isTTY;
  const log = createLog({ level: config.logLevel, pretty, to: "stdout" });
  process.on("uncaughtException", (err) => {
    // What is half done cannot be trusted any more; whoever runs us starts us again.
    log.fatal({ err }, "uncaught exception");
    log.flush(() => process.exit(1));
  });
  const service = createService(config, log);
  log.info({ config: configForLog(config) }, "starting");
  await service.start();
  const { grpcAddress: grpc, httpAddress: http, opsAddress: ops } = service;
  log.info({ grpc, http, ops }, "serving");
  if (!ending.signal.aborted) {
    await new Promise((resolve) =>
      ending.signal.addEventListener("abort", resolve, { once: true }),
    );
  }
  log.info({}, "stopping");
  await service.stop();
  log.info({}, "stopped");
  return 0;
}

async function migrate(command: MigrateCommand, config: Config): Promise<MigrationStatus> {
  const { migrateDown, migrateUp, migrationStatus } = await import("./store/migrate.ts");
  const run = { up: migrateUp, down: migrateDown, status: migrationStatus }[command];
  if (config.databaseUrl !== undefined) return run(config.databaseUrl);
  const { createEmbeddedPostgres } = await import("./store/embedded/embedded-postgres.ts");
  const log = createLog({ level: "warn", pretty: process.stderr.isTTY, to: "stderr" });
  const embedded = createEmbeddedPostgres({ dataDir: config.dataDir, log });
  await embedded.start();
  try {
    return await run(embedded.url);
  } finally {
    await embedded.stop();
  }
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
});
process.exitCode = exitCode;
