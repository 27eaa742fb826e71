#!/usr/bin/env node
/**
 * The composition root: arguments and environment in, exit code out. The second SIGINT or SIGTERM
 * ends the process at once. Commands load the service, the store and the import when they need
 * them.
 */
import { once } from "node:events";
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { embeddedUrl, migrateDatabase, reindexDatabase, retainDatabase } from "./cli/database.ts";
import { type CliIo, endingSignal } from "./cli/io.ts";
import { runCli } from "./cli/program.ts";
import { startedLines } from "./cli/serve.ts";
import { type Config, configForLog, loadClientConfig, loadConfig } from "./config/config.ts";
import { createLog } from "./observability/log.ts";

const ending = endingSignal();
/** An abandoned step of a start would keep the process alive. */
let isStartLeft = false;

const io: CliIo = {
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  signal: ending,
  loadConfig: () => loadConfig(),
  loadClientConfig: () => loadClientConfig(),
  serve,
  migrate: migrateDatabase,
  embeddedUrl,
  retention: retainDatabase,
  reindex: (sessionId, config) => reindexDatabase({ sessionId, signal: ending }, config),
  async importUpstream(argv) {
    const tool = await import("../tools/import-upstream/command.ts");
    return tool.importUpstream(argv, io);
  },
};
const exitCode = await runCli(process.argv.slice(2), io);
if (isStartLeft) process.exit(exitCode);
process.exitCode = exitCode;

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
    await service.start(ending);
  } catch (error) {
    isStartLeft = true;
    if (!ending.aborted) throw error;
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
  if (!ending.aborted) await once(ending, "abort");
  log.info({}, "stopping");
  await service.stop();
  log.info({}, "stopped");
  return 0;
}

/** Absolute: DATA_DIR is relative to the directory in which the service was started. */
function dataOf(config: Config): string {
  const { databaseUrl } = configForLog(config);
  if (databaseUrl !== "embedded") return String(databaseUrl);
  const folder = resolve(config.dataDir);
  return existsSync(join(folder, "postgres")) ? folder : `${folder} (new)`;
}
