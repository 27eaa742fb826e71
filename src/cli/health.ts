import { type Address, addressText } from "../config/config.ts";
import { EXIT, type ExitCode } from "./exit.ts";
import { type CliIo, tell } from "./io.ts";
import { configOf } from "./serve.ts";

/** A live service answers this at once. */
const ANSWER_LIMIT_MS = 2_000;

/** Asks the service on this machine whether it is alive; for the health check of a container. */
export async function health(io: CliIo): Promise<ExitCode> {
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
