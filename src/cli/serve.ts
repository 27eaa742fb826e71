/** The commands of the service's own process: start it, and check that it is alive. */
import type { Command } from "commander";
import { type Address, addressText } from "@session-ledger/base/address";
import {
  asksForTokens,
  type Config,
  configHelp,
  settingsThatDiffer,
  whoMayConnect,
} from "../config/config.ts";
import { CLIENT_SETTINGS } from "../config/table.ts";
import { createLog } from "../observability/log.ts";
import { packageVersion } from "../observability/version.ts";
import { type CliIo, EXIT, type ExitCode, explain, printLine, tell, UsageError } from "./io.ts";

/** Called with the exit code of a command; one that does not call it ends with `EXIT.done`. */
export type Finish = (exitCode: number) => void;

export const ENVIRONMENT_HELP = `Environment:\n${configHelp()}`;

export function addProcessCommands(program: Command, io: CliIo, finish: Finish): void {
  program
    .command("serve")
    .summary("start the service, also without a command")
    .description("start the service; `session-ledger help environment` lists its settings")
    .action(async () => finish(await serve(io)));
  program
    .command("version")
    .description("print the version")
    .action(async () => printLine(io, packageVersion()));
  program
    .command("health")
    .summary("check that the service is alive")
    .description("check that the service on this machine is alive; for health checks")
    .action(async () => finish(await health(io)));
  program
    .command("embedded")
    .description("show the embedded database in DATA_DIR")
    .command("url")
    .description("print the connection string of the running database, with its password")
    .action(async () => {
      const config = configOf(io);
      if (config.databaseUrl !== undefined)
        throw new UsageError("DATABASE_URL is set: no embedded database is used");
      const { runningUrl } = await import("../postgres/cluster.ts");
      await printLine(io, await runningUrl(config.dataDir));
    });
}

interface Started {
  readonly grpc: string;
  readonly http: string;
  readonly ops: string;
  /** The place of the rows. */
  readonly data: string;
}

/**
 * Lines for a start at a terminal: the addresses and places, and the next thing to try. Only a
 * terminal gets them: a program that reads the output gets nothing but log records in JSON.
 */
export function startedLines(started: Started, config: Config): readonly string[] {
  const http = `http${config.tlsCertFile === undefined ? "" : "s"}://${started.http}`;
  const settings = settingsThatDiffer(config);
  const page = config.inspector === "on" ? http : "none: INSPECTOR=off";
  return [
    `page      ${page}  (for ${whoMayConnect(config)})`,
    `gRPC      ${started.grpc}`,
    `HTTP      ${http}/openapi.json  (metrics: http://${started.ops}/metrics)`,
    `data      ${started.data}`,
    `demo      ${demoCommand(started, config)}`,
    ...(settings.length === 0 ? [] : [`settings  ${settings.join(" ")}`]),
  ];
}

/** The command that fills the service with something to look at. */
function demoCommand({ grpc }: Started, config: Config): string {
  // Who listens on every address is reached on this machine.
  const address = grpc.replace(/^(?:0\.0\.0\.0|\[::\])(?=:)/, "127.0.0.1");
  const options = [
    ...(address === CLIENT_SETTINGS.address.fallback ? [] : ["--address", address]),
    ...(config.tlsCertFile === undefined ? [] : ["--ca-file", "CA.pem"]),
    ...(asksForTokens(config) ? ["--token-file", "FILE"] : []),
  ];
  return ["npm run -s ledger -- demo", ...options].join(" ");
}

/** The configuration, or every problem with it at once. */
export function configOf(
  io: Pick<CliIo, "stderr" | "loadConfig">,
  warn = (warning: string): void => tell(io, `warning: ${warning}`),
): Config {
  const loaded = io.loadConfig();
  for (const warning of loaded.warnings) warn(warning);
  if (!loaded.ok) throw new UsageError(loaded.problems.join("\nsession-ledger: "));
  return loaded.config;
}

/** Errors at the start go to stderr: as a record where the log is JSON, else as a line. */
async function serve(io: CliIo): Promise<number> {
  const log = io.stdout.isTTY
    ? undefined
    : createLog({ level: "info", pretty: false, to: io.stderr });
  try {
    return await io.serve(configOf(io, log && ((warning) => log.warn({}, warning))));
  } catch (error) {
    const { exitCode, message } = explain(error);
    if (log === undefined) tell(io, message);
    else log.fatal({}, message.replaceAll("\nsession-ledger: ", "; "));
    return exitCode;
  }
}

/** A live service answers this at once. */
const ANSWER_LIMIT_MS = 2_000;

/** For a supervisor that can only run commands. */
async function health(io: CliIo): Promise<ExitCode> {
  const url = `http://${addressText(reachable(configOf(io).opsAddress))}/healthz`;
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(ANSWER_LIMIT_MS) });
    if (response.ok) return EXIT.done;
    tell(io, `${url} answers ${response.status}`);
  } catch (error) {
    tell(io, `${url} does not answer: ${error instanceof Error ? error.message : "unknown"}`);
  }
  return EXIT.unavailable;
}

/** The wildcard address is valid for listening, but not for connecting. */
function reachable({ host, port }: Address): Address {
  return { host: host === "0.0.0.0" ? "127.0.0.1" : host === "::" ? "::1" : host, port };
}
