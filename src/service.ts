/**
 * Builds every unit and wires them; `start` brings them up in this order and `stop` down in reverse:
 *
 *   embedded PostgreSQL (without DATABASE_URL) ─► schema ─► pool ─► live ─► ingest ─► ops port
 *     ─► gRPC ─► readiness
 *
 * So a stop first ends what callers see (health, watches, calls under way), then commits what waits,
 * and closes the database last. Used by `serve` and by the end-to-end tests.
 */
import type { SessionService } from "../gen/ambient/v1/sessions_pb.ts";
import { type Clock, systemClock } from "./base/clock.ts";
import { startAll, stopAll, type Unit } from "./base/lifecycle.ts";
import { addressText, type Config } from "./config.ts";
import type { Handlers } from "./handlers/context.ts";
import { createListHandlers } from "./handlers/list.ts";
import { createOrderObserver } from "./handlers/order.ts";
import { createPushHandlers } from "./handlers/push.ts";
import { createSessionHandlers } from "./handlers/sessions.ts";
import { createWatchHandlers } from "./handlers/watch.ts";
import { createOpsServer } from "./http/ops.ts";
import { createHttpServer } from "./http/server.ts";
import type { LedgerWriter } from "./ingest/commit.ts";
import { createIngest, type Ingest, type IngestLimits } from "./ingest/ingest.ts";
import { LIVE_LIMITS, type LiveLimits } from "./live/limits.ts";
import { createLive, type Live } from "./live/live.ts";
import type { Log } from "./observability/log.ts";
import { createMetrics, type Metrics } from "./observability/metrics.ts";
import { createReadiness } from "./observability/readiness.ts";
import { createRpcServer } from "./rpc/server.ts";
import { append } from "./store/append.ts";
import { createDatabase, type Database } from "./store/database.ts";
import { createEmbeddedPostgres } from "./store/embedded/embedded-postgres.ts";
import { readKept } from "./store/kept.ts";
import { migrateUp } from "./store/migrate.ts";
import { type PageRequest, readPage } from "./store/pages.ts";
import type { LedgerReader } from "./store/reader.ts";
import { createReader } from "./store/reads.ts";
import type { StreamName } from "./store/rows.ts";
import * as sessions from "./store/sessions.ts";

export interface Service extends Unit {
  /** `host:port`, valid after start. */
  readonly grpcAddress: string;
  readonly httpAddress: string;
  readonly opsAddress: string;
}

export function createService(config: Config, log: Log): Service {
  const metrics = createMetrics();
  const clock = systemClock;
  const postgres = createPostgres(config, { log, restarted: () => metrics.postgresRestarts.inc() });
  const { database } = postgres;
  const reader = createReader(database);
  const live = createLive({ reader, clock, log, metrics }, liveLimits(config));
  const publish = live.committed.bind(live);
  const writer = createWriter(database, { createMissing: config.sessionPolicy === "auto" });
  const ingest = createIngest({ writer, publish, clock, metrics }, ingestLimits(config));
  const handlers = createHandlers({ database, reader, live, ingest, clock, metrics }, config);
  const rpc = createRpcServer(
    { log, metrics, clock, handlers },
    {
      address: addressText(config.grpcAddress),
      reflection: config.grpcReflection,
      logCalls: config.callLog,
      requestBytesMax: config.requestBytesMax,
      stopLimitMs: config.stopLimitMs,
    },
  );
  const http = createHttpServer(
    { handlers, log, metrics, clock },
    {
      address: addressText(config.httpAddress),
      requestBytesMax: config.requestBytesMax,
      heartbeatMs: config.sseHeartbeatMs,
      stopLimitMs: config.stopLimitMs,
    },
  );
  const readiness = createReadiness(
    () => database.ping(),
    (isReady) => rpc.setServing(isReady),
  );
  const ops = createOpsServer(
    { log, metrics, notReady: () => Promise.resolve(readiness.missing()) },
    { address: addressText(config.opsAddress) },
  );
  const units = [...postgres.units, live, ingest, ops, http, rpc, readiness];
  return {
    start: () => startAll(units),
    stop: () => stopAll(units),
    get grpcAddress() {
      return rpc.address;
    },
    get httpAddress() {
      return http.address;
    },
    get opsAddress() {
      return ops.address;
    },
  };
}

interface HandlerParts {
  readonly database: Database;
  readonly reader: LedgerReader;
  readonly live: Live;
  readonly ingest: Ingest;
  readonly clock: Clock;
  readonly metrics: Metrics;
}

/** Everything that is served; a method that is not here answers UNIMPLEMENTED. */
function createHandlers(
  parts: HandlerParts,
  config: Config,
): Partial<Handlers<typeof SessionService>> {
  const { database, reader, live, ingest, clock, metrics } = parts;
  const order = createOrderObserver(metrics);
  const pages = {
    readPage: <S extends StreamName>(request: PageRequest<S>) => readPage(database, request),
  };
  return {
    ...createPushHandlers({ ingest, clock, order }, config),
    ...createListHandlers({ ...reader, ...pages }),
    ...createSessionHandlers(sessionStore(database), live.deleted.bind(live)),
    ...createWatchHandlers({ live, reader }, config),
  };
}

function createWriter(
  database: Database,
  options: { readonly createMissing: boolean },
): LedgerWriter {
  return {
    append: (pushes, { wait }) => append(database, pushes, { ...options, wait }),
    readKept: (addresses) => readKept(database, addresses),
  };
}

function liveLimits(config: Config): LiveLimits {
  return {
    ...LIVE_LIMITS,
    watchersMax: config.watchersMax,
    watchersPerSessionMax: config.watchersPerSessionMax,
    windowRowsMax: config.windowRowsMax,
    windowBytesMax: config.windowBytesMax,
    headPollIntervalMs: config.headPollIntervalMs,
    // Past the store's own deadline for an answer.
    readLimitMs: config.statementTimeoutMs + 5_000,
    // Half of the pool: a crowd that comes back after a restart must leave room for pushes.
    pageReadsMax: Math.max(1, Math.floor(config.databaseConnections / 2)),
  };
}

function ingestLimits(config: Config): IngestLimits {
  const { batchRowsMax: rowsMax, batchBytesMax: bytesMax } = config;
  return { ...config, batch: { rowsMax, bytesMax } };
}

/** The database and what has to be up before it: the embedded server, unless there is another, and the schema. */
function createPostgres(
  config: Config,
  hooks: { readonly log: Log; readonly restarted: () => void },
): { readonly database: Database; readonly units: readonly Unit[] } {
  const { databaseUrl, dataDir } = config;
  const embedded =
    databaseUrl === undefined ? createEmbeddedPostgres({ dataDir, ...hooks }) : undefined;
  const url = (): string => databaseUrl ?? embedded?.url ?? "";
  const database = createDatabase({
    url,
    connectionsMax: config.databaseConnections,
    statementTimeoutMs: config.statementTimeoutMs,
    lockTimeoutMs: config.lockTimeoutMs,
  });
  const schema: Unit = {
    async start() {
      const { applied } = await migrateUp(url());
      hooks.log.info({ schema: applied.at(-1) }, "schema is up to date");
    },
    stop: () => Promise.resolve(),
  };
  return { database, units: [...(embedded === undefined ? [] : [embedded]), schema, database] };
}

function sessionStore(database: Database): Parameters<typeof createSessionHandlers>[0] {
  return {
    createSession: (session) => sessions.createSession(database, session),
    getSession: (id) => sessions.getSession(database, id),
    listSessions: (page) => sessions.listSessions(database, page),
    updateSessionStatus: (id, status) => sessions.updateSessionStatus(database, id, status),
    deleteSession: (id) => sessions.deleteSession(database, id),
  };
}
