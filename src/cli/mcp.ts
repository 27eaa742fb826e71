/**
 * The command `mcp`: sessions as tools for coding assistants, by the Model Context Protocol.
 *
 *   stdin, stdout   one assistant of this machine, with the token of the command
 *   --http          assistants that send a token in each request, which the service judges. A request
 *                   without one has the token of the command on loopback, and is refused elsewhere
 *
 * The SDK is loaded when the command runs: it would slow the start of the others.
 */
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { McpServer } from "@modelcontextprotocol/server";
import { type Command, InvalidArgumentError } from "commander";
import { type Address, addressText, parseAddress } from "@session-ledger/base/address";
import { codeOf } from "@session-ledger/base/errors";
import { createLedgerClient, ledger } from "@session-ledger/runner/internal/client";
import { RpcFailure } from "@session-ledger/runner/internal/failure";
import { isLoopback } from "../config/config.ts";
import { packageVersion } from "../observability/version.ts";
import { callsService, type Connection } from "./connection.ts";
import { type CliIo, printLine, tell, UsageError } from "./io.ts";

/** A model waits for each call, so the time of --retry-for is at most this. */
const RETRY_FOR_MAX_MS = 5_000;
const PATH = "/mcp";
const BEARER = /^Bearer +(\S+)$/i;

export function addMcp(program: Command, io: CliIo): void {
  const command = program
    .command("mcp")
    .summary("serve sessions as tools to coding assistants")
    .description(
      "serve sessions as tools to coding assistants, by the Model Context Protocol on stdin and stdout",
    )
    .option("--write", "also the tools that send messages and answer questions")
    .option(
      "--http <host:port>",
      `Streamable HTTP at ${PATH} of this address instead, which is printed`,
      httpAddress,
    );
  callsService(command, io, async (connection, { http, write: canWrite = false }: McpFlags) => {
    const retryForMs = Math.min(connection.retry.retryForMs, RETRY_FOR_MAX_MS);
    const patient = { ...connection, retry: { ...connection.retry, retryForMs } };
    if (http === undefined) await serveStdio(patient, { canWrite });
    else await serveHttp(patient, http, { canWrite });
  });
}

interface McpFlags {
  readonly write?: boolean;
  readonly http?: Address;
}

interface Rights {
  readonly canWrite: boolean;
}

function httpAddress(text: string): Address {
  const address = parseAddress(text);
  if (address === undefined)
    throw new InvalidArgumentError("Expected host:port, like 127.0.0.1:8765.");
  return address;
}

/** A server for one connection of stdin, or for one request of HTTP. */
async function loadTools({ canWrite }: Rights): Promise<(connection: Connection) => McpServer> {
  const sdk = await import("@modelcontextprotocol/server");
  const { addReads } = await import("./mcp-reads.ts");
  const { addWrites } = await import("./mcp-writes.ts");
  const instructions = "The recorded sessions of AI agents: their texts, runs and open questions.";
  return (connection) => {
    const named = { name: "session-ledger", version: packageVersion() };
    const server = new sdk.McpServer(named, { instructions });
    addReads(server, connection);
    if (canWrite) addWrites(server, connection);
    return server;
  };
}

/** Resolves at the end of stdin, when the reader of stdout is gone, or when the user ends the command. */
async function serveStdio(connection: Connection, rights: Rights): Promise<void> {
  const { io } = connection;
  const sdk = await import("@modelcontextprotocol/server/stdio");
  const serverFor = await loadTools(rights);
  const handle = sdk.serveStdio(() => serverFor(connection), {
    transport: new sdk.StdioServerTransport(io.stdin, io.stdout),
    onerror: ({ message }) => tell(io, message),
  });
  const ended = Promise.withResolvers<void>();
  for (const event of ["end", "close"]) io.stdin.once(event, ended.resolve);
  for (const event of ["error", "close"]) io.stdout.once(event, ended.resolve);
  await Promise.race([ended.promise, aborted(io.signal)]);
  await handle.close();
}

async function serveHttp(connection: Connection, address: Address, rights: Rights): Promise<void> {
  const { io } = connection;
  const isLocal = isLoopback(address);
  if (!isLocal) await requireTokens(connection);
  const answer = await mcpAnswers(connection, { address, isLocal, ...rights });
  const server = createServer((request, response) => {
    respond(request, response, answer).catch((error: unknown) => {
      if (!response.destroyed) tell(io, String(error));
      response.destroy();
    });
  });
  await listen(server, address);
  try {
    await printLine(io, `http://${addressText({ ...address, port: portOf(server) })}${PATH}`);
    await aborted(io.signal);
  } finally {
    server.close();
    server.closeAllConnections();
  }
}

/** The service decides the rights of each caller, unless it asks for no token. */
async function requireTokens({ settings, retry }: Connection): Promise<void> {
  const { address, tls } = settings;
  const client = createLedgerClient({ address, tls });
  try {
    await client.call(ledger.listSessions, { size: 1 }, retry);
  } catch (error) {
    if (error instanceof RpcFailure && error.code === "UNAUTHENTICATED") return;
    throw error;
  } finally {
    client.close();
  }
  throw new UsageError(
    `--http: expected a loopback address, like 127.0.0.1:8765, because the service at ${address} asks for no token`,
  );
}

/** Answers of the SDK are whole or a stream; `sent` is called after the last byte. */
interface McpAnswer {
  readonly response: Response;
  readonly sent?: () => Promise<void>;
}

type Answers = (request: Request) => Promise<McpAnswer>;

async function mcpAnswers(
  connection: Connection,
  { address, isLocal, canWrite }: Rights & { readonly address: Address; readonly isLocal: boolean },
): Promise<Answers> {
  const sdk = await import("@modelcontextprotocol/server");
  const serverFor = await loadTools({ canWrite });
  const { io, settings } = connection;
  // A page of another site could otherwise reach the port by a name that it lets point here.
  const { host } = address;
  const hosts = [...sdk.localhostAllowedHostnames(), host.includes(":") ? `[${host}]` : host];
  return async (request) => {
    const refused =
      (isLocal ? sdk.hostHeaderValidationResponse(request, hosts) : undefined) ??
      sdk.originValidationResponse(request, sdk.localhostAllowedOrigins());
    if (refused !== undefined) return { response: refused };
    if (new URL(request.url).pathname !== PATH)
      return { response: new Response(null, { status: 404 }) };
    const given = request.headers.get("authorization");
    const token = BEARER.exec(given ?? "")?.[1];
    if (token === undefined && (given !== null || !isLocal)) return { response: unauthorized() };
    // A client for each request: its token is the caller's. Clients of one address share a connection.
    const client =
      token === undefined ? connection.client : createLedgerClient({ ...settings, token });
    const caller = { ...connection, client };
    const handler = sdk.createMcpHandler(() => serverFor(caller), {
      onerror: ({ message }) => tell(io, message),
    });
    const sent = async (): Promise<void> => {
      await handler.close();
      if (client !== connection.client) client.close();
    };
    try {
      return { response: await handler.fetch(request), sent };
    } catch (error) {
      await sent();
      throw error;
    }
  };
}

function unauthorized(): Response {
  const error = { code: -32_001, message: "Authorization: expected Bearer and a token" };
  return Response.json(
    { jsonrpc: "2.0", error, id: null },
    { status: 401, headers: { "www-authenticate": "Bearer" } },
  );
}

async function respond(
  request: IncomingMessage,
  response: ServerResponse,
  answer: Answers,
): Promise<void> {
  const leaving = new AbortController();
  response.once("close", () => leaving.abort());
  const answered = await answer(webRequest(request, leaving.signal));
  const { status, headers, body } = answered.response;
  try {
    response.writeHead(status, Object.fromEntries(headers));
    if (body === null) response.end();
    else await pipeline(Readable.fromWeb(body), response);
  } finally {
    await answered.sent?.();
  }
}

function webRequest(request: IncomingMessage, signal: AbortSignal): Request {
  const { method = "GET", url = "/" } = request;
  const headers = new Headers();
  for (const [name, values = []] of Object.entries(request.headersDistinct))
    for (const value of values) headers.append(name, value);
  const hasBody = method !== "GET" && method !== "HEAD";
  return new Request(new URL(`http://localhost${url}`), {
    method,
    headers,
    signal,
    ...(hasBody ? { body: Readable.toWeb(request), duplex: "half" } : {}),
  });
}

async function listen(server: Server, { host, port }: Address): Promise<void> {
  try {
    await once(server.listen(port, host), "listening");
  } catch (cause) {
    const address = addressText({ host, port });
    throw new UsageError(`--http: ${address} cannot be used (${codeOf(cause)})`, { cause });
  }
}

function portOf(server: Server): number {
  const address: string | AddressInfo | null = server.address();
  return typeof address === "object" && address !== null ? address.port : 0;
}

async function aborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, "abort");
}
