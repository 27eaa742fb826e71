import { type Config, settingsThatDiffer, whoMayConnect } from "../config/config.ts";
import { createLog } from "../observability/log.ts";
import { explain, UsageError } from "./explain.ts";
import { type CliIo, tell } from "./io.ts";

/** Errors at the start go to stderr: as a record where the log is JSON, else as a line. */
export async function serve(io: CliIo): Promise<number> {
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

export interface Started {
  readonly grpc: string;
  readonly http: string;
  readonly ops: string;
  /** The place of the rows. */
  readonly data: string;
}

/** Lines for a start at a terminal: the addresses and places, and the next commands to try. */
export function startedLines(started: Started, config: Config): readonly string[] {
  const http = `http${config.tlsCertFile === undefined ? "" : "s"}://${started.http}`;
  const settings = settingsThatDiffer(config);
  return [
    `gRPC      ${started.grpc}`,
    `HTTP      ${http}`,
    `metrics   http://${started.ops}/metrics`,
    `data      ${started.data}`,
    `open to   ${whoMayConnect(config)}; try ${http}/openapi.json, or the README's examples`,
    ...(settings.length === 0 ? [] : [`settings  ${settings.join(" ")}`]),
  ];
}

/** The configuration, or every problem with it at once. */
export function configOf(
  io: Pick<CliIo, "stderr" | "loadConfig">,
  warn?: (warning: string) => void,
): Config {
  const loaded = io.loadConfig();
  for (const warning of loaded.warnings)
    (warn ?? ((text) => tell(io, `warning: ${text}`)))(warning);
  if (!loaded.ok) throw new UsageError(loaded.problems.join("\nsession-ledger: "));
  return loaded.config;
}
