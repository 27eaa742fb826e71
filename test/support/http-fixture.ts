import { connect, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { ANONYMOUS } from "../../src/auth/principal.ts";
import { systemClock } from "@session-ledger/base/clock";
import type { Admission } from "../../src/http/plumbing/admission.ts";
import { FastifyServer, type HttpOptions, type HttpParts } from "../../src/http/server.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics, type Metrics } from "../../src/observability/metrics.ts";
import { type LogRecord, logRecords } from "./rpc-fixture.ts";

type Handlers = HttpParts["handlers"];

export interface HttpFixture extends AsyncDisposable {
  readonly server: FastifyServer;
  readonly metrics: Metrics;
  readonly records: readonly LogRecord[];
  /** A request to the API, by its path below the prefix. */
  ask(path: string, init?: RequestInit): Promise<Response>;
  /** The first record with that message, as soon as it exists. */
  recorded(msg: string): Promise<LogRecord>;
}

const API = "/api/ambient/v1";

const notAsked = (): never => {
  throw new Error("nobody should ask for this");
};

/** The given parts of a server; any other part throws. */
export function httpParts(
  given: { readonly handlers?: Partial<Handlers> } & Partial<Omit<HttpParts, "handlers">> = {},
): HttpParts {
  const handlers: Handlers = {
    createSession: notAsked,
    forkSession: notAsked,
    pushEventList: notAsked,
    pushSessionEvents: notAsked,
    listSessions: notAsked,
    searchTexts: notAsked,
    getSession: notAsked,
    updateSession: notAsked,
    updateSessionStatus: notAsked,
    deleteSession: notAsked,
    holdSession: notAsked,
    eraseSession: notAsked,
    issueSessionToken: notAsked,
    getTranscript: notAsked,
    listRuns: notAsked,
    pushSessionMessage: notAsked,
    pushSessionEvent: notAsked,
    listSessionMessages: notAsked,
    cancelRun: notAsked,
    stopRun: notAsked,
    claimTurn: notAsked,
    giveFeedback: notAsked,
    listSessionEvents: notAsked,
    readEventHistory: notAsked,
    readMessageHistory: notAsked,
    watchSessionMessages: notAsked,
    watchSessionEvents: notAsked,
    watchEvents: notAsked,
    watchMessages: notAsked,
    watchSessions: notAsked,
  };
  return {
    runs: { listRuns: notAsked },
    transcripts: { readTranscript: notAsked },
    runAgent: notAsked,
    exports: { exportEvents: notAsked, exportMessages: notAsked, exportHistory: notAsked },
    authenticator: { asks: false, authenticate: notAsked, refusalOf: notAsked },
    authorizer: { authorize: () => undefined },
    log: createLogTo({ write: () => undefined }, "silent"),
    metrics: createMetrics(),
    clock: systemClock,
    ...given,
    handlers: { ...handlers, ...given.handlers },
  };
}

/** Every caller may call everything, also routes that the table does not have. */
export const OPEN: Admission = { expect: () => undefined, admit: () => ANONYMOUS };

export const HTTP_OPTIONS: HttpOptions = {
  address: "127.0.0.1:0",
  requestBytesMax: 65_536,
  connectionsMax: 100,
  heartbeatMs: 15_000,
  logRequests: "all",
  stopLimitMs: 5_000,
  inspector: true,
};

/** An HTTP server over the given handlers on a free loopback port. */
export async function startHttp(
  handlers: Partial<Handlers> = {},
  options: Partial<HttpOptions> = {},
  given: Partial<Omit<HttpParts, "handlers">> = {},
): Promise<HttpFixture> {
  const { log, ...logged } = logRecords();
  const parts = httpParts({ ...given, handlers, log });
  const server = new FastifyServer(parts, { ...HTTP_OPTIONS, ...options });
  await server.start();
  return {
    server,
    metrics: parts.metrics,
    ...logged,
    ask: (path, init) => fetch(`http://${server.address}${API}${path}`, init),
    [Symbol.asyncDispose]: () => server.stop(),
  };
}

/** A raw connection, for bytes that no client sends. */
export function rawConnection(address: string): Socket {
  const [host = "", port] = address.split(":");
  const socket = connect({ host, port: Number(port) });
  socket.on("error", () => undefined); // A reset is an end too.
  return socket;
}

/** Sends bytes and reads to the end of the connection. */
export async function rawExchange(address: string, bytes: string): Promise<string> {
  const socket = rawConnection(address);
  socket.write(bytes);
  try {
    return await text(socket);
  } finally {
    socket.destroy();
  }
}
