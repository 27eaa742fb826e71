/**
 * Builds every unit and wires them; `start` brings them up in this order and `stop` down in reverse:
 *
 *   traces ─► ports are free ─► TLS ─► files of tokens ─► embedded PostgreSQL ─► schema ─► pool
 *     ─► tokens ─► live ─► feeds ─► wake-ups ─► ingest ─► transcripts ─► cancels ─► retention
 *     ─► texts of search ─► ops port ─► HTTP and gRPC together ─► waiting claims ─► readiness
 *
 * So a stop first ends the parts that callers see, then commits and announces the waiting pushes,
 * and closes the database last.
 */
import { randomUUID } from "node:crypto";
import { MESSAGE_ROOM_BYTES } from "@session-ledger/agui/payload";
import { authorisedMethods, authorisedReads, type ServedMethods } from "./handlers/authorised.ts";
import { createExportHandlers } from "./handlers/export.ts";
import { createFeedHandlers } from "./handlers/feed.ts";
import { createGiveFeedback } from "./handlers/feedback.ts";
import { createSearchHandlers } from "./handlers/search.ts";
import { createListHandlers } from "./handlers/pages.ts";
import { createPushSessionEvent } from "./handlers/push-session-event.ts";
import { createPushSessionMessage } from "./handlers/push-session-message.ts";
import { createEventListHandlers } from "./handlers/push-list.ts";
import { createPushSessionEvents } from "./handlers/push-stream/push-streams.ts";
import { withReadSlot } from "./handlers/long-reads.ts";
import { createForkSession } from "./handlers/fork.ts";
import { createErasureHandlers } from "./handlers/erasure.ts";
import { createSessionHandlers } from "./handlers/sessions.ts";
import { createAguiRun } from "./handlers/agui-run.ts";
import { createIssueSessionToken } from "./handlers/tokens.ts";
import { createCancelHandlers } from "./handlers/turns/cancel-run.ts";
import { createClaimTurn } from "./handlers/turns/claim-turn.ts";
import { createWatchHandlers } from "./handlers/watch.ts";
import { createAudit, RoleAndScope } from "./auth/authorizer.ts";
import { Authenticator } from "./auth/authenticator.ts";
import { addressText, parseAddress } from "@session-ledger/base/address";
import { systemClock } from "@session-ledger/base/clock";
import { Budget } from "./base/budget.ts";
import { systemTimers } from "@session-ledger/base/timers";
import { startAll, stopAll, together, type Unit } from "./base/unit.ts";
import { type Config, PARENT_CONNECTIONS, shareOf } from "./config/config.ts";
import { AGUI_LIMITS } from "./conversation/attach.ts";
import { createAguiJoin } from "./conversation/join.ts";
import { OpsServer } from "./http/ops.ts";
import { CONNECTIONS_WITHOUT_STREAM_MAX } from "./http/plumbing/listener.ts";
import { FastifyServer } from "./http/server.ts";
import { createRateLimits } from "./ingest/rate-limits.ts";
import type { Log } from "./observability/log.ts";
import { createMetrics } from "./observability/metrics.ts";
import { createReadiness } from "./observability/readiness.ts";
import type { Tracing } from "./observability/trace.ts";
import { LoadedTracing } from "./observability/tracing.ts";
import { redactionOptions, createRedactor } from "@session-ledger/agui/redaction/redactor";
import { GrpcServer } from "./rpc/server.ts";
import { type ServiceBase, type Core, createCore, createRetention } from "./service-core.ts";
import { createPostgres } from "./service-store.ts";
import type { Database } from "./store/database.ts";
import { createFeedbackStore } from "./store/feedback.ts";
import { reasonOf, sessionNotFound } from "./store/failure.ts";
import { getSession, ownerOf, readCapabilities } from "./store/sessions.ts";
import { createCancelStore } from "./store/cancels.ts";
import { lostAfter } from "./store/streams.ts";
import { createTokenKeyStore } from "./store/token-keys.ts";
import { createReader } from "./store/reader.ts";
import { createTurnStore } from "./store/turns.ts";
import { findTexts } from "./search/find.ts";
import { TextIndex } from "./search/index-unit.ts";
import { checkFree, SERVERS } from "./transport/listen.ts";
import { TlsMaterial } from "./transport/watched-files.ts";
import { type WorkerLink, Workers, type WorkerTask } from "./workers.ts";

/**
 * A byte for a caller costs up to 2.1 bytes of resident memory, with copies and garbage
 * (`npm run bench -- hostile`). With this factor it grows by at most RECEIVED_BYTES_MAX and 128 MiB.
 */
const RESIDENT_PER_HELD_BYTE = 1.5;
/** One caller may hold half of the memory, so a request of the largest size always has room. */
const REQUESTS_MIN = 4;

export interface Service extends Unit {
  /** Rejects with the signal's reason if it aborts first; then everything is released. */
  start(signal?: AbortSignal): Promise<void>;
  /** `host:port`, valid after start. */
  readonly grpcAddress: string;
  readonly httpAddress: string;
  readonly opsAddress: string;
  /** Rejects when the service has failed and must be stopped. */
  readonly failed?: Promise<never>;
}

/** `link`: this process is one of several workers, and its parent does what is done once. */
export function createService(whole: Config, log: Log, link?: WorkerLink): Service {
  const base: ServiceBase = {
    log,
    metrics: createMetrics(),
    clock: systemClock,
    instance: randomUUID(),
  };
  if (whole.workers > 1 && link === undefined) return createParent(whole, base);
  const config = link === undefined ? whole : configOfWorker(whole, link.task);
  const { metrics } = base;
  const tracing = createTracingOf(config, base);
  const postgres = createPostgres(config, base, link?.task);
  const access = createAccess(config, base, postgres.writes);
  const core = createCore(config, base, postgres);
  const isShared = link !== undefined;
  const { rpc, http } = createEdges(config, {
    ...base,
    ...core,
    access,
    tracer: tracing,
    isShared,
  });
  const changed = (isReady: boolean): void => {
    metrics.ready.set(isReady ? 1 : 0);
    rpc.setServing(isReady);
    link?.missing(readiness.missing());
  };
  link?.onScrape(metrics.json);
  const { probe } = postgres;
  const readiness = createReadiness({ probe, reasonOf, commits: core.commits, log, changed });
  const ops = new OpsServer(
    { log, metrics, notReady: () => Promise.resolve(readiness.missing()) },
    { address: addressText(config.opsAddress) },
  );
  const isAlone = link === undefined;
  const units = [
    tracing,
    isAlone ? beginning(() => checkPorts(config)) : undefined,
    access.tls,
    // A service with invalid files must not create or migrate a database first.
    beginning(() => access.authenticator.check()),
    ...postgres.made,
    ...postgres.units,
    access.authenticator,
    core.live,
    core.feeds,
    core.hints,
    core.ingest,
    core.transcripts,
    core.cancels,
    ...(isAlone ? [core.retention, core.texts, ops] : []),
    together([http, rpc]),
    core.waits,
    readiness,
  ];
  return serviceOf(units, (server) => ({ grpc: rpc, http, ops })[server].address);
}

function serviceOf(
  all: readonly (Unit | undefined)[],
  addressOf: (server: keyof typeof SERVERS) => string,
  failed?: Promise<never>,
): Service {
  const units = all.filter((unit) => unit !== undefined);
  return {
    start: (signal) => startAll(units, signal && { signal }),
    stop: () => stopAll(units),
    ...(failed && { failed }),
    get grpcAddress() {
      return addressOf("grpc");
    },
    get httpAddress() {
      return addressOf("http");
    },
    get opsAddress() {
      return addressOf("ops");
    },
  };
}

/** A check of the start, which nothing has to stop. */
function beginning(start: () => Promise<void>): Unit {
  return { start, stop: () => Promise.resolve() };
}

/** The settings of one of several workers: its part of the limits, and the ports that the first one took. */
function configOfWorker(config: Config, { grpc, http }: WorkerTask): Config {
  const grpcAddress = parseAddress(grpc) ?? config.grpcAddress;
  const httpAddress = parseAddress(http) ?? config.httpAddress;
  return { ...shareOf(config), grpcAddress, httpAddress };
}

/** The process above several workers (workers.ts). */
function createParent(config: Config, base: ServiceBase): Service {
  const { log, metrics, instance } = base;
  const postgres = createPostgres({ ...config, databaseConnections: PARENT_CONNECTIONS }, base);
  const { database } = postgres;
  const { authenticator, tls } = createAccess(config, base, postgres.writes);
  const retention = createRetention(config, { database, log, metrics, erased: () => undefined });
  const texts = new TextIndex(
    { ...base, database, reader: createReader(database) },
    { holder: instance, language: config.searchLanguage, isGentle: true },
  );
  const { grpcAddress, httpAddress, stopLimitMs, workers: count } = config;
  const given = { grpc: addressText(grpcAddress), http: addressText(httpAddress) };
  const task = () => ({ ...given, databaseUrl: postgres.givenUrl(), pgData: postgres.pgData() });
  const workers = new Workers({ log, count, task, stopLimitMs, metrics: metrics.json });
  const ops = new OpsServer(
    {
      log,
      metrics: { contentType: metrics.contentType, text: () => workers.metricsText() },
      notReady: () => Promise.resolve(workers.missing),
    },
    { address: addressText(config.opsAddress) },
  );
  const units = [
    beginning(() => checkPorts(config)),
    // Files that no worker could read are found before a database is made.
    beginning(async () => {
      await tls?.start();
      await tls?.stop();
    }),
    beginning(() => authenticator.check()),
    ...postgres.made,
    ...postgres.units,
    retention,
    texts,
    ops,
    workers,
  ];
  const addressOf = (server: keyof typeof SERVERS): string =>
    server === "ops" ? ops.address : (workers.addresses?.[server] ?? given[server]);
  return serviceOf(units, addressOf, workers.failed);
}

/** A port in use is reported before PostgreSQL is started, which takes seconds. */
async function checkPorts(config: Config): Promise<void> {
  const { grpcAddress: grpc, httpAddress: http, opsAddress: ops } = config;
  for (const name of ["grpc", "http", "ops"] as const) {
    const address = addressText({ grpc, http, ops }[name]);
    await checkFree({ address, what: SERVERS[name] });
  }
}

/**
 * Undefined without OTEL_EXPORTER_OTLP_ENDPOINT. The first unit, so that it sees the last call end.
 */
function createTracingOf(config: Config, base: ServiceBase): Tracing | undefined {
  const { otlpEndpoint: endpoint, otelServiceName: serviceName } = config;
  return endpoint === undefined
    ? undefined
    : new LoadedTracing(base, { endpoint, serviceName, sampleRatio: config.otelSampleRatio });
}

type Access = ReturnType<typeof createAccess>;

/** Authentication and authorisation of callers. */
function createAccess(config: Config, base: ServiceBase, database: Database) {
  const audit = createAudit(base);
  const owners = { ownerOf: (sessionId: string) => ownerOf(database, sessionId) };
  const keys = createTokenKeyStore(database);
  const { tlsCertFile: certFile, tlsKeyFile: keyFile, tlsClientCaFile: clientCaFile } = config;
  const hasTls = certFile !== undefined && keyFile !== undefined;
  return {
    audit,
    authorizer: new RoleAndScope({ owners, audit, notFound: sessionNotFound }),
    authenticator: new Authenticator({ ...base, audit, keys }, config),
    /** Undefined: neither server is encrypted. */
    tls: hasTls ? new TlsMaterial(base, { certFile, keyFile, clientCaFile }) : undefined,
  };
}

interface EdgeParts extends ServiceBase, Core {
  readonly access: Access;
  /** Other workers listen on the same ports. */
  readonly isShared: boolean;
  readonly tracer: Tracing | undefined;
}

/** The two servers that callers reach. */
function createEdges(config: Config, parts: EdgeParts) {
  const { access, database, reader, live, transcripts, clock, metrics, isShared } = parts;
  const requestBytesMax = Math.max(
    config.requestBytesMax,
    config.payloadBytesMax + MESSAGE_ROOM_BYTES,
  );
  const memory = new Budget({
    max: Math.max(config.receivedBytesMax / RESIDENT_PER_HELD_BYTE, REQUESTS_MIN * requestBytesMax),
  });
  metrics.limitUse.share("bytes", memory);
  const handlers = createHandlers(config, parts);
  const shared = { ...parts, ...access, memory, handlers };
  const { stopLimitMs } = config;
  const rpc = new GrpcServer(shared, {
    address: addressText(config.grpcAddress),
    isShared,
    reflection: config.grpcReflection,
    logCalls: config.callLog,
    requestBytesMax,
    stopLimitMs,
    limits: config,
  });
  const capabilitiesOf = (sessionId: string) => readCapabilities(database, sessionId);
  const join = createAguiJoin(
    { live, transcripts, clock, metrics, timers: systemTimers, capabilitiesOf },
    { ...AGUI_LIMITS, ...config },
  );
  const reads = authorisedReads(access, {
    ...parts.conversation.reads,
    exports: createExportHandlers(reader, metrics.limitUse),
    runAgent: createAguiRun({ join, transcripts, push: handlers.pushSessionMessage, metrics }),
  });
  const http = new FastifyServer(
    { ...shared, ...reads },
    {
      address: addressText(config.httpAddress),
      isShared,
      requestBytesMax,
      connectionsMax:
        config.watchersMax +
        config.pushStreamsMax +
        Math.ceil(CONNECTIONS_WITHOUT_STREAM_MAX / config.workers),
      origins: config.httpOrigins ?? [],
      modelPrices: config.modelPrices ?? {},
      inspector: config.inspector === "on",
      heartbeatMs: config.sseHeartbeatMs,
      logRequests: config.callLog,
      stopLimitMs,
    },
  );
  return { rpc, http };
}

/** All served methods; a missing method answers UNIMPLEMENTED. */
function createHandlers(config: Config, parts: EdgeParts): ServedMethods {
  const { database, reader, live, feeds, news, ingest, groups, clock, metrics, access, waits } =
    parts;
  const { cancels, readSlots } = parts;
  const look = (): void => cancels.look();
  const rates = createRateLimits({ clock, metrics }, config);
  const redaction = redactionOptions(config); // Undefined with REDACTION=off.
  const redactor =
    redaction && createRedactor(redaction, (kind) => metrics.redactions.inc({ kind }));
  const pushed = { ingest, groups, clock, metrics, rates, redactor };
  const sessionOf = (id: string) => getSession(database, id);
  const { sessionTokens: tokens } = access.authenticator;
  const searches = createSearchHandlers({ find: (asked) => findTexts(database, asked) }, config);
  const sessions = createSessionHandlers(database, news, redactor);
  const { onChange } = news;
  const fork = createForkSession({ database, onChange, refusal: parts.refusal, rates });
  return authorisedMethods(access, {
    pushSessionMessage: createPushSessionMessage(pushed, config),
    pushSessionEvent: createPushSessionEvent(pushed, config),
    ...createEventListHandlers(pushed, config),
    pushSessionEvents: createPushSessionEvents(
      {
        ...pushed,
        timers: systemTimers,
        metrics,
        lostAfter: (opening) => lostAfter(database, opening),
        onCancelledRun: look,
      },
      { ...config, redactor },
    ),
    claimTurn: createClaimTurn(
      { ...pushed, turns: createTurnStore(database), waits, metrics },
      config,
    ),
    ...createCancelHandlers({
      ...pushed,
      cancels: createCancelStore(database),
      transcripts: parts.transcripts,
      onCancel: news.onCancel,
      metrics,
    }),
    giveFeedback: createGiveFeedback({
      ...pushed,
      store: createFeedbackStore(database),
      transcripts: parts.transcripts,
      metrics,
    }),
    ...createListHandlers(reader),
    searchTexts: withReadSlot(readSlots, searches.searchTexts),
    ...sessions,
    listSessions: withReadSlot(readSlots, sessions.listSessions),
    forkSession: withReadSlot(readSlots, fork),
    ...parts.conversation.handlers,
    ...createErasureHandlers({ database, metrics }, news, redactor),
    ...createWatchHandlers({ live, reader }, config),
    ...createFeedHandlers(feeds, access.audit),
    issueSessionToken: createIssueSessionToken(
      { tokens, getSession: sessionOf, ...access },
      config,
    ),
  });
}
