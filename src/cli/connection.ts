/** The connection of a command to a running service: its options, client, retries and files. */
import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { type Command, InvalidArgumentError, Option } from "commander";
import { addressText } from "@session-ledger/base/address";
import { type Clock, systemClock } from "@session-ledger/base/clock";
import { codeOf } from "@session-ledger/base/errors";
import { type ClientConfig, loadClientConfig } from "../config/config.ts";
import { createLedgerClient, type LedgerClient } from "@session-ledger/runner/internal/client";
import {
  isSendable,
  type Tls,
  type TokenSource,
} from "@session-ledger/runner/internal/credentials";
import { noConnectionOf, type RpcFailure } from "@session-ledger/runner/internal/failure";
import type { RetryOptions } from "@session-ledger/runner/internal/retry";
import type { SessionWriterOptions } from "@session-ledger/runner/internal/writer/types";
import { durationArgument } from "./arguments.ts";
import { type CliIo, explainCall, tell, UsageError } from "./io.ts";

/** The options of every command that calls a running service. */
export interface ConnectionFlags {
  /** Without it the environment decides, as for both files. */
  readonly address?: string;
  readonly tokenFile?: string;
  readonly caFile?: string;
  /** Milliseconds. */
  readonly retryFor: number;
}

const RETRY_FOR = "60s";

export function addConnectionOptions(command: Command): Command {
  return command
    .option(
      "-a, --address <host:port>",
      "the address of the service; default: SESSION_LEDGER_ADDRESS",
      addressArgument,
    )
    .option("--token-file <path>", "a file with the token; default: SESSION_LEDGER_TOKEN_FILE")
    .option(
      "--ca-file <path>",
      "the authorities to trust, PEM; turns TLS on; default: SESSION_LEDGER_TLS_CA_FILE",
    )
    .addOption(
      new Option("--retry-for <duration>", "how long to retry while the service does not answer")
        .argParser(durationArgument)
        .default(durationArgument(RETRY_FOR), RETRY_FOR),
    );
}

/** Has the rules of the variable that it replaces. */
function addressArgument(text: string): string {
  const loaded = loadClientConfig({ SESSION_LEDGER_ADDRESS: text });
  if (!loaded.ok) throw new InvalidArgumentError("Expected host:port, like 127.0.0.1:9000.");
  return addressText(loaded.config.address);
}

type ClientSettings = Pick<SessionWriterOptions, "address" | "token" | "tls">;

/** The parts that every command with a running service needs. */
export interface Connection {
  readonly client: LedgerClient;
  readonly io: CliIo;
  /** For writers and runners, which have connections of their own. */
  readonly settings: ClientSettings;
  readonly retry: RetryOptions & Required<Pick<RetryOptions, "mayRepeat">>;
}

/** The arguments and the options, as their parsers have made them. */
type Given = Parameters<Parameters<Command["action"]>[0]>;

/** Makes a command one that calls a running service: adds the options, and `run` is its action. */
export function callsService(
  command: Command,
  io: CliIo,
  run: (connection: Connection, ...given: Given) => Promise<void>,
): void {
  addConnectionOptions(command).action((...given: Given) =>
    connected(io, command.opts<ConnectionFlags>(), (connection) => run(connection, ...given)),
  );
}

/** Runs a command with a connection, and always closes the connection. */
export async function connected<T>(
  io: CliIo,
  flags: ConnectionFlags,
  work: (connection: Connection) => Promise<T>,
): Promise<T> {
  const loaded = io.loadClientConfig();
  if (!loaded.ok) throw new UsageError(loaded.problems.join("\n"));
  const { retryFor: retryForMs } = flags;
  const address = flags.address ?? addressText(loaded.config.address);
  const [token, tls] = [tokenOf(loaded.config, flags), tlsOf(loaded.config, flags)];
  const settings = { address, tls, ...(token !== undefined && { token }) };
  const client = clientOf(settings);
  const retry: Connection["retry"] = {
    retryForMs,
    signal: io.signal,
    mayRepeat,
    onRetry: retryReporter({ address, retryForMs }, (line) => tell(io, line)),
  };
  try {
    return await work({ client, io, settings, retry });
  } finally {
    client.close();
  }
}

/** The items of all pages; `pageAt` gets the token of a page. */
export async function* allPages<P extends { readonly nextPageToken: string }, R>(
  pageAt: (pageToken: string) => Promise<P>,
  itemsOf: (page: P) => readonly R[],
): AsyncGenerator<R, void, undefined> {
  let pageToken = "";
  do {
    const page = await pageAt(pageToken);
    yield* itemsOf(page);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
}

/** A restarting service also closes connections; other failures need a person. */
function mayRepeat(failure: RpcFailure): boolean {
  if (!failure.mayPass) return false;
  const kind = noConnectionOf(failure);
  return kind === undefined || kind === "closed" || kind === "nobody";
}

/** A failure is not reported twice within this time: each line of a push may fail again. */
const REPORT_AGAIN_MS = 10_000;

/** Reports the first failure in a row; the last one is thrown when no retry is left. */
export function retryReporter(
  { address, retryForMs }: { readonly address: string; readonly retryForMs: number },
  say: (line: string) => void,
  clock: Pick<Clock, "monotonicMs"> = systemClock,
): (failure: RpcFailure, count: number) => void {
  const reportedMs = new Map<string, number>();
  return (failure, count) => {
    const kind = failure.reason ?? failure.code;
    const nowMs = clock.monotonicMs();
    if (count > 1 || nowMs - (reportedMs.get(kind) ?? Number.NEGATIVE_INFINITY) < REPORT_AGAIN_MS)
      return;
    reportedMs.set(kind, nowMs);
    // The next refusal is final, unless the token has changed by then.
    const isRefused = failure.code === "UNAUTHENTICATED";
    const forHow = isRefused ? "once more" : `again for ${Math.round(retryForMs / 1_000)} s`;
    say(`${address}: ${explainCall(failure)}; trying ${forHow}`);
  };
}

function clientOf(settings: ClientSettings): LedgerClient {
  // Node deprecates an IP address as the name in TLS (DEP0123), which grpc-js sends.
  process.noDeprecation = true;
  try {
    return createLedgerClient(settings);
  } catch (error) {
    // Only values of options and of the environment can cause a TypeError here.
    if (error instanceof TypeError) throw new UsageError(error.message, { cause: error });
    throw error;
  }
}

/** The option replaces both variables. */
function tokenOf(
  { token, tokenFile: variable }: ClientConfig,
  { tokenFile: option }: ConnectionFlags,
): TokenSource | undefined {
  if (option !== undefined) return tokenFrom("--token-file", option);
  if (variable === undefined) return token;
  if (token !== undefined) {
    throw new UsageError(
      "SESSION_LEDGER_TOKEN and SESSION_LEDGER_TOKEN_FILE: expected one of them",
    );
  }
  return tokenFrom("SESSION_LEDGER_TOKEN_FILE", variable);
}

/** Reads the file once now, so that a wrong file is reported as one. */
function tokenFrom(name: string, path: string): TokenSource {
  tokenIn(name, read(name, path));
  return async () => tokenIn(name, await readFile(path, "utf8"));
}

function tokenIn(name: string, text: string): string {
  const token = text.trim();
  if (!isSendable(token)) throw new UsageError(`${name}: expected one token of printable ASCII`);
  return token;
}

function tlsOf(
  { tls, tlsCaFile, tlsClientCertFile, tlsClientKeyFile }: ClientConfig,
  { caFile }: ConnectionFlags,
): Tls {
  const files = {
    ca:
      caFile === undefined
        ? tlsCaFile && read("SESSION_LEDGER_TLS_CA_FILE", tlsCaFile)
        : read("--ca-file", caFile),
    cert: tlsClientCertFile && read("SESSION_LEDGER_TLS_CERT_FILE", tlsClientCertFile),
    key: tlsClientKeyFile && read("SESSION_LEDGER_TLS_KEY_FILE", tlsClientKeyFile),
  };
  if ((files.cert === undefined) !== (files.key === undefined)) {
    throw new UsageError(
      "SESSION_LEDGER_TLS_CERT_FILE and SESSION_LEDGER_TLS_KEY_FILE: expected both or neither",
    );
  }
  const given = Object.entries(files).filter(([, text]) => text !== undefined);
  return given.length === 0 ? tls === "on" : Object.fromEntries(given);
}

function read(name: string, path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    const why = codeOf(cause) || "it is not a file";
    throw new UsageError(`${name}: ${JSON.stringify(path)} cannot be read (${why})`, { cause });
  }
}
