import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { ledger } from "../runner/client.ts";
import { timeText } from "../runner/json.ts";
import { type ConnectionOptions, connected } from "./connection.ts";
import { EXIT, type ExitCode } from "./exit.ts";
import type { CliIo } from "./io.ts";
import { Printer } from "./printer.ts";

/** The roles of a session token; a test compares them with the service's table. */
export const TOKEN_ROLES = ["runner", "viewer", "editor"] as const;

export interface TokenOptions extends ConnectionOptions {
  readonly sessionId: string;
  readonly role: (typeof TOKEN_ROLES)[number];
  /** Undefined: the service's default. */
  readonly ttlMs: number | undefined;
  /** True: the token and its end as JSON; else only the token, for `$(…)`. */
  readonly json: boolean;
}

/** Requests a token for one session. */
export async function token(options: TokenOptions, io: CliIo): Promise<ExitCode> {
  const { sessionId, role, ttlMs, json } = options;
  const ttl = ttlMs === undefined ? {} : { ttl: durationFromMs(ttlMs) };
  return connected(io, options, async ({ client, retry }) => {
    // A second token does no harm: it expires like the first.
    const issued = await client.call(ledger.issueSessionToken, { sessionId, role, ...ttl }, retry);
    const expiresAt = timeText(issued.expiresAt);
    const line = json ? JSON.stringify({ token: issued.token, expiresAt }) : issued.token;
    await new Printer(io.stdout, io.signal).print(line);
    return EXIT.done;
  });
}
