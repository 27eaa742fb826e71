import { addressText } from "../config.ts";
import { createLedgerClient, type LedgerClient } from "../runner/client.ts";
import type { RetryOptions } from "../runner/retry.ts";
import { explainCall, UsageError } from "./explain.ts";
import { type CliIo, tell } from "./io.ts";

export interface ConnectionOptions {
  /** From `--address`; without it the environment decides. */
  readonly address: string | undefined;
  readonly retryForMs: number;
}

/** What every command that speaks to a running service works with. */
export interface Connection {
  readonly client: LedgerClient;
  readonly retry: RetryOptions;
}

/** Runs a command with a connection, and lets go of it whatever happens. */
export async function connected<T>(
  io: CliIo,
  options: ConnectionOptions,
  work: (connection: Connection) => Promise<T>,
): Promise<T> {
  const address = options.address ?? addressOf(io);
  const client = createLedgerClient({ address });
  const retry: RetryOptions = {
    retryForMs: options.retryForMs,
    signal: io.signal,
    onRetry: (failure, count) => {
      if (count > 1) return; // The first says it all; the last is told when there is no more.
      const forSeconds = Math.round(options.retryForMs / 1_000);
      tell(io, `${address}: ${explainCall(failure)}; trying again for ${forSeconds} s`);
    },
  };
  try {
    return await work({ client, retry });
  } finally {
    client.close();
  }
}

function addressOf(io: CliIo): string {
  const loaded = io.loadClientConfig();
  if (!loaded.ok) throw new UsageError(loaded.problems.join("\n"));
  return addressText(loaded.config.address);
}
