/** The private port for orchestrators and Prometheus. It serves no session data. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { packageVersion } from "../observability/version.ts";
import { within } from "@session-ledger/base/timers";
import type { Unit } from "../base/unit.ts";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";
import { close, listen, SERVERS } from "../transport/listen.ts";

interface OpsDeps {
  readonly log: Log;
  readonly metrics: Pick<Metrics, "contentType" | "text">;
  /** The parts that are not ready, each with its reason. */
  readonly notReady: () => Promise<readonly string[]>;
}

interface OpsAnswer {
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
}

/** An orchestrator asks every few seconds; a check that takes longer counts as "not ready". */
const READY_LIMIT_MS = 2_000;
const HEADERS_LIMIT_MS = 5_000;
const REQUEST_LIMIT_MS = 10_000;
const HEADER_BYTES_MAX = 8 * 1024;
const CONNECTIONS_MAX = 100;
const STOP_LIMIT_MS = 1_000;
const CHECK_FAILED: readonly string[] = ["the readiness check"];

export class OpsServer implements Unit {
  readonly #server: Server;
  /** `host:port`, after the start with the port that was taken. */
  address: string;
  #started: Promise<void> | undefined;
  #stopped: Promise<void> | undefined;

  constructor(deps: OpsDeps, options: { readonly address: string }) {
    this.address = options.address;
    this.#server = createServer(
      {
        maxHeaderSize: HEADER_BYTES_MAX,
        headersTimeout: HEADERS_LIMIT_MS,
        requestTimeout: REQUEST_LIMIT_MS,
      },
      (request, response) => void respond(deps, request, response),
    );
    this.#server.maxConnections = CONNECTIONS_MAX;
  }

  start(): Promise<void> {
    this.#started ??= this.#listen();
    return this.#started;
  }

  stop(): Promise<void> {
    this.#stopped ??= this.#end();
    return this.#stopped;
  }

  async #listen(): Promise<void> {
    this.address = await listen(this.#server, { address: this.address, what: SERVERS.ops });
  }

  async #end(): Promise<void> {
    await this.#started?.catch(() => undefined);
    const timer = setTimeout(() => this.#server.closeAllConnections(), STOP_LIMIT_MS);
    await close(this.#server);
    clearTimeout(timer);
  }
}

async function respond(
  deps: OpsDeps,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const answer = await answerTo(deps, request).catch((error: unknown) => {
    deps.log.error({ err: error }, "ops request failed");
    return problem(500, "internal error");
  });
  response.writeHead(answer.status, {
    "content-type": answer.contentType,
    "content-length": Buffer.byteLength(answer.body),
    "cache-control": "no-store",
    ...(answer.status === 405 ? { allow: "GET, HEAD" } : {}),
  });
  response.end(request.method === "HEAD" ? "" : answer.body);
}

async function answerTo(deps: OpsDeps, request: IncomingMessage): Promise<OpsAnswer> {
  const [path, query] = request.url?.split("?", 2) ?? [];
  const isKnown = path === "/healthz" || path === "/readyz" || path === "/metrics";
  if (!isKnown) return problem(404, "not found");
  if (request.method !== "GET" && request.method !== "HEAD") return problem(405, "read only");
  if (path === "/healthz") return json(200, { status: "alive", version: packageVersion() });
  if (path === "/readyz") return readiness(deps, new URLSearchParams(query).getAll("exclude"));
  const { contentType } = deps.metrics;
  return { status: 200, contentType, body: await deps.metrics.text() };
}

/** `exclude` names parts that do not count, as in Kubernetes: `?exclude=database`. */
async function readiness(deps: OpsDeps, exclude: readonly string[]): Promise<OpsAnswer> {
  const asked = deps.notReady().catch((error: unknown) => {
    deps.log.error({ err: error }, "readiness check failed");
    return CHECK_FAILED;
  });
  const limit = { limitMs: READY_LIMIT_MS, onTimeout: () => CHECK_FAILED };
  const missing = await within(asked, limit);
  const notReady = missing.filter((part) => !exclude.some((name) => isOf(part, name)));
  return notReady.length === 0
    ? json(200, { status: "ready" })
    : json(503, { status: "not ready", notReady });
}

/** A part is `database: why`, of a worker `worker 1: database: why`. */
function isOf(part: string, name: string): boolean {
  return part.replace(/^worker \d+: /, "").startsWith(`${name}:`);
}

function json(status: number, body: object): OpsAnswer {
  return { status, contentType: "application/json", body: `${JSON.stringify(body)}\n` };
}

function problem(status: number, title: string): OpsAnswer {
  return { ...json(status, { title, status }), contentType: "application/problem+json" };
}
