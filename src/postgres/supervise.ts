/**
 * Reacts to a server that does not start, or does not stay up: another port, a wait, or a refusal.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "./free-port.ts";
import { clearLeftover } from "./leftover.ts";
import { refusal } from "./refusal.ts";
import { LaunchError, type LaunchOptions, type Server, launch } from "./server.ts";

/** Tries with ports that were free and then taken before the server could listen. */
const PORTS_TRIED_MAX = 5;

export async function launchOnFreePort(
  options: Omit<LaunchOptions, "port">,
): Promise<{ readonly server: Server; readonly port: number }> {
  const { limits, log, signal } = options;
  const limit = AbortSignal.timeout(limits.startMs);
  let delayMs = limits.restartDelayMsMin;
  for (let portsTried = 1; ; ) {
    const port = await freePort();
    try {
      return { port, server: await launch({ ...options, port }) };
    } catch (error) {
      if (!(error instanceof LaunchError)) throw error;
      const mayTryAgain = {
        port_taken: portsTried < PORTS_TRIED_MAX,
        memory_in_use: !limit.aborted,
        other: false,
      };
      if (!mayTryAgain[error.failure]) throw refusal(error.message, error);
      if (error.failure === "port_taken") portsTried += 1;
      log.warn({ failure: error.failure }, "embedded_postgres_start_tried_again");
      await sleep(delayMs, undefined, { signal });
      delayMs = Math.min(2 * delayMs, limits.restartDelayMsMax);
    }
  }
}

/** Runs until the signal; then stops the server, and only then resolves. */
export async function keepRunning(
  first: Server,
  options: LaunchOptions & { readonly restarted: () => void },
): Promise<void> {
  const { log, signal, restarted } = options;
  const { promise: aborted, resolve } = Promise.withResolvers<"aborted">();
  signal.addEventListener("abort", () => resolve("aborted"), { once: true });
  if (signal.aborted) resolve("aborted");

  for (let server = first; ; ) {
    const exit = await Promise.race([aborted, server.exited]);
    if (signal.aborted) {
      log.info({ signal: await server.stop() }, "embedded_postgres_stopped");
      return;
    }
    log.warn({ pid: server.pid, exit }, "embedded_postgres_died");
    server = await relaunch(options);
    log.warn({ pid: server.pid, port: options.port }, "embedded_postgres_restarted");
    restarted();
  }
}

/** Rejects only when the unit is stopped meanwhile. */
async function relaunch(options: LaunchOptions): Promise<Server> {
  const { limits, log, signal } = options;
  let delayMs = limits.restartDelayMsMin;
  for (;;) {
    await sleep(delayMs, undefined, { signal });
    delayMs = Math.min(2 * delayMs, limits.restartDelayMsMax);
    try {
      await clearLeftover(options.pgData, options);
      return await launch(options);
    } catch (error) {
      signal.throwIfAborted();
      log.warn({ err: error }, "embedded_postgres_restart_failed");
    }
  }
}
