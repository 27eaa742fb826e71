#!/usr/bin/env node
/**
 * The composition root: arguments and environment in, exit code out. The second SIGINT or SIGTERM
 * ends the process at once. Commands load the service, the store and the import when they need
 * them.
 */
import { once } from "node:events";
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { ServiceError } from "@session-ledger/base/errors";
import { migrateDatabase, retainDatabase } from "./cli/database.ts";
import { type CliIo, endingSignal } from "./cli/io.ts";
import { runCli } from "./cli/program.ts";
import { startedLines } from "./cli/serve.ts";
import { type Config, configForLog, loadClientConfig, loadConfig } from "./config/config.ts";
import { createLog, type Log } from "./observability/log.ts";
import type { Service } from "./service.ts";
import type { WorkerLink } from "./workers.ts";

const ending = endingSignal();
/** An abandoned step of a start, or the channel to the parent of a worker, would keep the process alive. */
let mustExit = false;

const io: CliIo = {
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  signal: ending,
  loadConfig: () => loadConfig(),
  loadClientConfig: () => loadClientConfig(),
  serve,
  migrate: migrateDatabase,
  retention: retainDatabase,
  async importUpstream(argv) {
    const tool = await import("../tools/import-upstream/command.ts");
    return tool.importUpstream(argv, io);
  },
};
const exitCode = await runCli(process.argv.slice(2), io);
if (mustExit) process.exit(exitCode);
process.exitCode = exitCode;

async function serve(config: Config): Promise<number> {
  const { createService } = await import("./service.ts");
  const { WorkerLink } = await import("./workers.ts");
  const link = await WorkerLink.open();
  const pretty = process.stdout.isTTY;
  let isStarting = true;
  const isQuiet = (): boolean => isStarting;
  const whole = createLog({ level: config.logLevel, pretty, to: "stdout", isQuiet });
  const log = link === undefined ? whole : whole.child({ worker: link.task.worker });
  process.on("uncaughtException", (err) => {
    // The state after this error cannot be trusted; the supervisor of the process starts it again.
    log.fatal({ err }, "uncaught exception");
    log.flush(() => process.exit(1));
  });
  const service = createService(config, log, link);
  if (link !== undefined) return serveAsWorker(service, { link, log });
  const data = dataOf(config);
  log.info({ config: configForLog(config) }, "starting");
  try {
    await service.start(ending);
  } catch (error) {
    mustExit = true;
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
  const failure = await failureUnlessEnded(service, ending);
  if (failure !== undefined) log.fatal({ err: failure }, "cannot_go_on");
  log.info({}, "stopping");
  await service.stop();
  log.info({}, "stopped");
  return failure === undefined ? 0 : 1;
}

/** Resolves when the service is to end; with the reason, if it cannot go on. */
async function failureUnlessEnded({ failed }: Service, ended: AbortSignal): Promise<unknown> {
  if (ended.aborted) return undefined;
  const aborted = once(ended, "abort");
  try {
    await (failed === undefined ? aborted : Promise.race([aborted, failed]));
    return undefined;
  } catch (error) {
    return error;
  }
}

/** One of several workers: its parent logs and reports for all of them. */
async function serveAsWorker(
  service: Service,
  { link, log }: { readonly link: WorkerLink; readonly log: Log },
): Promise<number> {
  mustExit = true;
  const ended = AbortSignal.any([ending, link.ending]);
  try {
    await service.start(ended);
  } catch (error) {
    if (ended.aborted) return 0;
    if (!(error instanceof ServiceError)) log.error({ err: error }, "worker_failed");
    await link.failed(error);
    return 1;
  }
  link.serving({ grpc: service.grpcAddress, http: service.httpAddress });
  if (!ended.aborted) await once(ended, "abort");
  await service.stop();
  return 0;
}

/** Absolute: DATA_DIR is relative to the directory in which the service was started. */
function dataOf(config: Config): string {
  const { databaseUrl } = configForLog(config);
  if (databaseUrl !== "embedded") return String(databaseUrl);
  const folder = resolve(config.dataDir);
  return existsSync(join(folder, "postgres")) ? folder : `${folder} (new)`;
}
