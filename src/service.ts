/**
 * Builds every unit and wires them; `start` brings them up in this order and `stop` down in reverse:
 *
 *   traces (if on) ─► ports are free ─► TLS ─► files of tokens and keys are read ─► embedded PostgreSQL (without DATABASE_URL)
 *     ─► schema ─► pool ─► tokens ─► live ─► wake-ups ─► ingest ─► transcripts ─► retention ─► ops port ─► HTTP and gRPC, which stop together ─► readiness
 *
 * So a stop first ends the parts that callers see (health, watches, calls in progress), then
 * commits the waiting pushes and announces them to the other instances, and closes the database
 * last. Used by `serve` and by the end-to-end tests.
 */
import { type Clock, systemClock } from "./base/clock.ts";
import { FairShare } from "./base/fair-share.ts";
import { startAll, stopAll, together, type Unit } from "./base/unit.ts";
import { addressText, type Config } from "./config/config.ts";
import { createAguiJoin } from "./conversation/join.ts";
import { AGUI_LIMITS } from "./conversation/attach.ts";
import { createEraseHandlers, createSessionHandlers } from "./api/sessions.ts";
import { authorisedMethods, authorisedReads, type ServedMethods } from "./api/authorised.ts";
import { createExportHandlers } from "./api/export.ts";
import { createListHandlers } from "./api/pages.ts";
import { OpenGroups } from "./api/push-stream/open-groups.ts";
import { createOrderObserver } from "./api/order.ts";
import { createPushHandlers } from "./api/push.ts";
import { createPushStreamHandlers } from "./api/push-stream/push-streams.ts";
import { createRunsHandlers } from "./api/runs.ts";
import { createTokenHandlers } from "./api/tokens.ts";
import { TRANSCRIPT_LIMITS, Transcripts } from "./conversation/transcripts.ts";
import { createWatchHandlers } from "./api/watch.ts";
import { createOpsServer, type OpsServer } from "./http/ops.ts";
import { CONNECTIONS_BESIDE_STREAMS_MAX } from "./http/plumbing/listener.ts";
import { createHttpServer, type HttpParts, type HttpServer } from "./http/server.ts";
import { createIngest, type Ingest, type IngestLimits } from "./ingest/ingest.ts";
import { createRateLimits } from "./ingest/rate-limits.ts";
import { type Carrier, createNatsCarrier, createPostgresCarrier } from "./live/hints/carrier.ts";
import { createExchange } from "./live/hints/exchange.ts";
import { LIVE_LIMITS, type LiveLimits } from "./live/limits.ts";
import { createLive, type Live } from "./live/live.ts";
import { systemTimers } from "./base/timers.ts";
import type { Log } from "./observability/log.ts";
import { createMetrics, type Metrics } from "./observability/metrics.ts";
import { CommitFailures, createReadiness } from "./observability/readiness.ts";
import type { Tracing, TracingDeps } from "./observability/trace.ts";
import { createTracing } from "./observability/tracing.ts";
import { redactionOptions, createRedactor, type Redactor } from "./redaction/redactor.ts";
import { STILL_TICKS } from "./rpc/incoming.ts";
import { createRpcServer, type RpcServer, type RpcServerDeps } from "./rpc/server.ts";
import { checked, createDoors, type Doors } from "./service-doors.ts";
import {
  createPostgres,
  createRetentionUnits,
  createWriter,
  eraseStore,
  type Postgres,
  sessionStore,
} from "./service-store.ts";
import type { Database } from "./store/database.ts";
import { reasonOf } from "./store/failure.ts";
import { type PageRequest, readLogged, readPage } from "./store/pages.ts";
import { createReader, type LedgerReader } from "./store/reader.ts";
import { checkFree, SERVERS } from "./transport/listen.ts";
import type { StoredRow, StreamName } from "./store/rows.ts";
import { createRunsReader } from "./store/runs.ts";
import { lostAfter } from "./store/streams.ts";

/**
 * A byte that is held for a caller costs up to 2.1 bytes of resident memory, with its copies and
 * garbage (`npm run bench -- hostile`). This factor keeps the growth of memory within
 * RECEIVED_BYTES_MAX and 128 MiB.
 */
const RESIDENT_PER_HELD_BYTE = 1.5;

export interface Service extends Unit {
  /**
   * Rejects with the signal's reason if the signal aborts first; then the start has released
   * everything.
   */
  start(signal?: AbortSignal): Promise<void>;
  /** `host:port`, valid after start. */
  readonly grpcAddress: string;
  readonly httpAddress: string;
  readonly opsAddress: string;
}

export function createService(config: Config, log: Log): Service {
  const metrics = createMetrics();
  const clock = systemClock;
  const heldMax = config.receivedBytesMax / RESIDENT_PER_HELD_BYTE;
  const memory = new FairShare({ max: heldMax, stillTicksMax: STILL_TICKS });
  metrics.limitUse.share("bytes", memory);
  const tracing = createTracingOf(config, { log, metrics });
  const postgres = createPostgres(config, { log, metrics });
  const { database } = postgres;
  const reader = createReader(database);
  const transcripts = createTranscripts({ database, reader, metrics }, config);
  const lost = (sessionId: string): void => transcripts.forget(sessionId);
  const live = createLive({ reader, clock, log, metrics, lost }, liveLimits(config));
  database.onOtherServer(() => live.otherServer());
  const exchange = createExchange({ wakeUps: live, log, metrics }, createCarrier(postgres, config));
  const publish = (rows: readonly StoredRow[]): void => {
    live.committed(rows);
    exchange.committed(rows);
  };
  const groups = new OpenGroups();
  const deleted = (sessionId: string): void => {
    groups.deleted(sessionId);
    live.deleted(sessionId);
    exchange.deleted(sessionId);
    transcripts.drop(sessionId);
  };
  const retention = createRetentionUnits(config, { database, live, transcripts, log, metrics });
  const commits = new CommitFailures(clock);
  const { refusal } = postgres;
  const writer = createWriter(database, config, { ...metrics, commits, refusal });
  const ingest = createIngest({ writer, publish, clock, metrics }, ingestLimits(config));
  const doors = createDoors({ database, log, metrics, clock }, config);
  const handlers = createHandlers(
    { database, reader, live, deleted, ingest, groups, clock, metrics, doors },
    config,
  );
  const edges = { log, metrics, clock, handlers, doors, tracer: tracing, memory };
  const { rpc, http } = createEdges({ ...edges, database, reader, transcripts, live }, config);
  const { ops, readiness } = createReadinessUnits(
    { probe: postgres.probe, commits, rpc, log, metrics },
    config,
  );
  const units = [
    tracing,
    freePorts(config),
    doors.tls,
    checked(doors),
    ...postgres.units,
    doors.authenticator,
    live,
    exchange,
    ingest,
    transcripts,
    ...retention,
    ops,
    together([http, rpc]),
    readiness,
  ].filter((unit) => unit !== undefined);
  return new BuiltService(units, { rpc, http, ops });
}

/** The two servers that callers reach. */
function createEdges(
  parts: Omit<Parameters<typeof createHttp>[0], "join"> & { readonly live: Live },
  config: Config,
) {
  const { live, transcripts, clock, metrics, doors } = parts;
  const join = createAguiJoin(
    { live, transcripts, clock, metrics, timers: systemTimers },
    { ...AGUI_LIMITS, ...config },
  );
  const http = createHttp({ ...parts, join }, config);
  return { rpc: createRpc({ ...parts, ...doors }, config), http };
}

/** A port in use is reported before PostgreSQL is started, which takes seconds. */
function freePorts({ grpcAddress: grpc, httpAddress: http, opsAddress: ops }: Config): Unit {
  return {
    async start() {
      for (const name of ["grpc", "http", "ops"] as const) {
        const address = addressText({ grpc, http, ops }[name]);
        await checkFree({ address, what: SERVERS[name] });
      }
    },
    stop: () => Promise.resolve(),
  };
}

type Servers = Readonly<Record<"rpc" | "http" | "ops", { readonly address: string }>>;

class BuiltService implements Service {
  readonly #units: readonly Unit[];
  readonly #servers: Servers;

  constructor(units: readonly Unit[], servers: Servers) {
    this.#units = units;
    this.#servers = servers;
  }

  start(signal?: AbortSignal): Promise<void> {
    return startAll(this.#units, signal && { signal });
  }

  stop(): Promise<void> {
    return stopAll(this.#units);
  }

  get grpcAddress(): string {
    return this.#servers.rpc.address;
  }

  get httpAddress(): string {
    return this.#servers.http.address;
  }

  get opsAddress(): string {
    return this.#servers.ops.address;
  }
}

function createTranscripts(
  parts: { readonly database: Database; readonly reader: LedgerReader; readonly metrics: Metrics },
  { transcriptsBytesMax: bytesMax }: Config,
): Transcripts {
  const { database, reader, metrics } = parts;
  const transcripts = new Transcripts(
    { reader: { ...reader, loggedAfter: (page) => readLogged(database, page) }, metrics },
    { ...TRANSCRIPT_LIMITS, bytesMax },
  );
  database.onOtherServer(() => transcripts.forgetAll());
  return transcripts;
}

/** The units that report the state of the service: the ops port, and gRPC's health. */
function createReadinessUnits(
  parts: {
    readonly probe: () => Promise<void>;
    readonly commits: CommitFailures;
    readonly rpc: RpcServer;
    readonly log: Log;
    readonly metrics: Metrics;
  },
  config: Config,
): { readonly ops: OpsServer; readonly readiness: Unit } {
  const { rpc, log, metrics } = parts;
  const changed = (isReady: boolean): void => {
    metrics.ready.set(isReady ? 1 : 0);
    rpc.setServing(isReady);
  };
  const readiness = createReadiness({ ...parts, reasonOf, changed });
  const ops = createOpsServer(
    { log, metrics, notReady: () => Promise.resolve(readiness.missing()) },
    { address: addressText(config.opsAddress) },
  );
  return { ops, readiness };
}

function createRpc(parts: RpcServerDeps, config: Config): RpcServer {
  return createRpcServer(parts, {
    address: addressText(config.grpcAddress),
    reflection: config.grpcReflection,
    logCalls: config.callLog,
    requestBytesMax: config.requestBytesMax,
    stopLimitMs: config.stopLimitMs,
    limits: config,
  });
}

interface HandlerParts {
  readonly database: Database;
  readonly reader: LedgerReader;
  readonly live: Live;
  /** Called after a deletion that is on disk. */
  readonly deleted: (sessionId: string) => void;
  readonly ingest: Ingest;
  readonly groups: OpenGroups;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly doors: Doors;
}

/** All served methods; a missing method answers UNIMPLEMENTED. */
function createHandlers(parts: HandlerParts, config: Config): ServedMethods {
  const { database, reader, live, deleted, ingest, groups, clock, metrics, doors } = parts;
  const order = createOrderObserver(metrics);
  const rates = createRateLimits({ clock, metrics }, config);
  const redactor = createRedactorOf(config, metrics);
  const pushed = { ingest, groups, order, clock, rates, redactor };
  const pages = {
    readPage: <S extends StreamName>(request: PageRequest<S>) => readPage(database, request),
  };
  return authorisedMethods(doors, {
    ...createPushHandlers(pushed, config),
    ...createPushStreamHandlers(
      { ...pushed, timers: systemTimers, metrics, lostAfter: (told) => lostAfter(database, told) },
      { ...config, redactor },
    ),
    ...createListHandlers({ ...reader, ...pages }),
    ...createSessionHandlers(sessionStore(database), deleted, redactor),
    ...createEraseHandlers(eraseStore(database, metrics), deleted),
    ...createWatchHandlers({ live, reader }, config),
    ...createTokenHandlers(
      { tokens: doors.authenticator.sessionTokens, store: sessionStore(database), ...doors },
      config,
    ),
  });
}

/** The carrier of announcements between instances; none with WAKE_UPS=poll. */
function createCarrier(
  { database, url }: Pick<Postgres, "database" | "url">,
  { wakeUps, listenDatabaseUrl, databaseSchema: schema, natsUrl = "", natsSubject }: Config,
): Carrier | undefined {
  switch (wakeUps) {
    case "postgres":
      return createPostgresCarrier({ database, url: () => listenDatabaseUrl ?? url(), schema });
    case "nats":
      return createNatsCarrier({ url: natsUrl, subject: natsSubject });
    case "poll":
      return undefined;
  }
}

function liveLimits(config: Config): LiveLimits {
  return {
    ...LIVE_LIMITS,
    watchersMax: config.watchersMax,
    watchersPerSessionMax: config.watchersPerSessionMax,
    headPollIntervalMs: config.headPollIntervalMs,
    // Longer than the store's own deadline for an answer.
    readLimitMs: config.statementTimeoutMs + 5_000,
    // Half of the pool: many clients that return after a restart must leave room for pushes.
    pageReadsMax: Math.max(1, Math.floor(config.databaseConnections / 2)),
  };
}

interface HttpServerParts
  extends Omit<HttpParts, "runs" | "transcripts" | "exports" | "authenticator" | "authorizer"> {
  readonly database: Database;
  readonly reader: LedgerReader;
  readonly transcripts: Transcripts;
  readonly doors: Doors;
}

function createHttp(
  { database, reader, transcripts, join, doors, ...parts }: HttpServerParts,
  config: Config,
): HttpServer {
  const runsReader = { ...reader, ...createRunsReader(database) };
  const reads = authorisedReads(doors, {
    runs: createRunsHandlers({ reader: runsReader, clock: parts.clock }, config),
    transcripts: {
      readTranscript: ({ sessionId, upToSeq }, { signal }) =>
        transcripts.read(sessionId, { upToSeq, signal }),
    },
    exports: createExportHandlers(reader, parts.metrics.limitUse),
    join,
  });
  return createHttpServer(
    { ...parts, ...doors, ...reads },
    {
      address: addressText(config.httpAddress),
      requestBytesMax: config.requestBytesMax,
      connectionsMax: config.watchersMax + CONNECTIONS_BESIDE_STREAMS_MAX,
      heartbeatMs: config.sseHeartbeatMs,
      logRequests: config.callLog,
      stopLimitMs: config.stopLimitMs,
    },
  );
}

function ingestLimits(config: Config): IngestLimits {
  const { batchRowsMax: rowsMax, batchBytesMax: bytesMax } = config;
  return { ...config, batch: { rowsMax, bytesMax } };
}

/**
 * Undefined without OTEL_EXPORTER_OTLP_ENDPOINT. The first of all units, so that it sees the last
 * call end.
 */
function createTracingOf(config: Config, deps: TracingDeps): Tracing | undefined {
  const { otlpEndpoint: endpoint, otelServiceName: serviceName } = config;
  return endpoint === undefined
    ? undefined
    : createTracing(deps, { endpoint, serviceName, sampleRatio: config.otelSampleRatio });
}

/** Undefined with REDACTION=off. */
function createRedactorOf(config: Config, { redactions }: Metrics): Redactor | undefined {
  const options = redactionOptions(config);
  return options && createRedactor(options, (kind) => redactions.inc({ kind }));
}
