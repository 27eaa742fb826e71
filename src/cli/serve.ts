import type { Config } from "../config.ts";
import { UsageError } from "./explain.ts";
import { type CliIo, tell } from "./io.ts";

export async function serve(io: CliIo): Promise<number> {
  return io.serve(configOf(io));
}

/** The configuration, or every problem with it at once. */
export function configOf(io: CliIo): Config {
  const loaded = io.loadConfig();
  for (const warning of loaded.warnings) tell(io, `warning: ${warning}`);
  if (!loaded.ok) throw new UsageError(loaded.problems.join("\nsession-ledger: "));
  return loaded.config;
}
