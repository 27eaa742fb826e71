/**
 * The way of the rows: into the database, to watchers, to other instances, and out of it again.
 * Part of service.ts.
 */
import { OpenGroups } from "./handlers/push-stream/open-groups.ts";
import { createConversation } from "./handlers/conversation.ts";
import { createReadSlots } from "./handlers/long-reads.ts";
import { ArrivalWaits } from "./handlers/turns/arrival-waits.ts";
import { Cancels } from "./handlers/turns/cancels.ts";
import type { Clock } from "@session-ledger/base/clock";
import { systemTimers, within } from "@session-ledger/base/timers";
import type { Config } from "./config/config.ts";
import { TRANSCRIPT_LIMITS, Transcripts } from "./conversation/transcripts.ts";
import { Ingest } from "./ingest/ingest.ts";
import { Feeds, FEED_LIMITS } from "./live/feeds.ts";
import { Subscriptions } from "./live/hints/subscriptions.ts";
import { createHintBus, type HintBus, type WakeUps } from "./live/hints/hint-bus.ts";
import { createTransport, type Transport } from "./live/hints/transport.ts";
import { LIVE_LIMITS, type LiveLimits } from "./live/limits.ts";
import { Live } from "./live/live.ts";
import { Retention } from "./maintenance/retention.ts";
import { TextIndex } from "./search/index-unit.ts";
import { Pace } from "./search/pace.ts";
import type { Log } from "./observability/log.ts";
import type { Metrics } from "./observability/metrics.ts";
import { CommitFailures } from "./observability/readiness.ts";
import { createWriter, type Postgres } from "./service-store.ts";
import { createCancelStore } from "./store/cancels.ts";
import type { Database } from "./store/database.ts";
import { createFeedReader } from "./store/feed.ts";
import { createReader } from "./store/reader.ts";
import type { StoredRow } from "./store/rows.ts";
import { createRunsReader } from "./store/runs.ts";
import { countWaiting } from "./store/turns.ts";

/** A scrape waits no longer for the database: the other metrics matter most when it is gone. */
const WAITING_LIMIT_MS = 500;

export interface ServiceBase {
  readonly log: Log;
  readonly metrics: Metrics;
  readonly clock: Clock;
  /** The name of this instance for the other instances. Another one after each start. */
  readonly instance: string;
}

export type Core = ReturnType<typeof createCore>;

export function createCore(config: Config, base: ServiceBase, postgres: Postgres) {
  const { log, metrics, clock, instance } = base;
  const { database, readConnections, refusal } = postgres;
  const readSlots = createReadSlots(readConnections);
  const reader = createReader(database);
  const transcripts = new Transcripts(
    { reader, metrics, pastTurns: readSlots },
    { ...TRANSCRIPT_LIMITS, bytesMax: config.transcriptsBytesMax },
  );
  database.onOtherServer(() => transcripts.forgetAll());
  const subscriptions = new Subscriptions();
  const onLost = (sessionId: string): void => transcripts.forget(sessionId);
  const live = new Live(
    { reader, clock, log, metrics, onLost, subscriptions },
    liveLimits(config, readConnections),
  );
  database.onOtherServer(() => live.onOtherServer());
  const feeds = new Feeds(
    {
      reader: createFeedReader(database),
      watchLimits: live.limits,
      clock,
      log,
      metrics,
      subscriptions,
    },
    { ...FEED_LIMITS, pollIntervalMs: config.headPollIntervalMs },
  );
  const groups = new OpenGroups();
  const wakeUps = wakeUpsOf(live, feeds, () => cancels.look());
  const hints = createHintBus(
    { instance, wakeUps, subscriptions, log, metrics, clock },
    transportOf(config, postgres, instance),
  );
  const commits = new CommitFailures(clock);
  const writer = createWriter(postgres.writes, config, { ...metrics, commits, refusal });
  const publish = (rows: readonly StoredRow[]): void => {
    live.onCommit(rows);
    feeds.wake();
    hints.announceCommit(rows);
  };
  const { batchRowsMax: rowsMax, batchBytesMax: bytesMax } = config;
  const pace = new Pace(clock);
  const ingest = new Ingest(
    { writer, publish, clock, metrics, onCommit: pace.committed.bind(pace) },
    { ...config, batch: { rowsMax, bytesMax } },
  );
  metrics.queueWait(() => ingest.waitedMs() / 1_000);
  const ends = { cancels: createCancelStore(database), ingest, transcripts, groups };
  const cancels = new Cancels({ ...base, ...ends, timers: systemTimers }, config);
  const news = newsOf({ groups, live, feeds, hints, transcripts, cancels });
  /** Called for each session that lost rows at its beginning. */
  const erased = (sessionId: string): void => {
    live.onErase(sessionId);
    transcripts.forget(sessionId);
  };
  const retention = createRetention(config, { database, log, metrics, erased });
  const language = config.searchLanguage;
  const texts = new TextIndex(
    { ...base, database, reader, pace },
    { holder: instance, language, isGentle: true },
  );
  metrics.watchWaiting(() => waitingIn(database));
  const waits = new ArrivalWaits({ live, clock, timers: systemTimers, metrics });
  const runsReader = { ...reader, ...createRunsReader(database) };
  const conversation = createConversation({ reader: runsReader, clock, transcripts }, config);
  const reads = { transcripts, conversation, readSlots, database, reader, live, feeds };
  const writes = { commits, refusal, ingest, groups, cancels, news };
  return { ...reads, ...writes, hints, waits, retention, texts };
}

interface NewsParts {
  readonly groups: OpenGroups;
  readonly live: Live;
  readonly feeds: Feeds;
  readonly hints: HintBus;
  readonly transcripts: Transcripts;
  readonly cancels: Cancels;
}

/** Called after a change of a session that is on disk. */
function newsOf({ groups, live, feeds, hints, transcripts, cancels }: NewsParts) {
  return {
    onCancel: (): void => {
      cancels.look();
      hints.announceCancel();
    },
    onChange: (sessionId: string): void => {
      feeds.wake();
      hints.announceChange(sessionId);
    },
    onDelete: (sessionId: string): void => {
      groups.onDelete(sessionId);
      live.onDelete(sessionId);
      feeds.wake();
      hints.announceDelete(sessionId);
      transcripts.drop(sessionId);
    },
  };
}

function waitingIn(database: Database) {
  const limit = { limitMs: WAITING_LIMIT_MS, onTimeout: () => undefined };
  return within(countWaiting(database), limit).catch(() => undefined);
}

/** Undefined: nothing is erased by its age. */
export function createRetention(
  { retentionAfterMs: afterMs, retentionIntervalMs: intervalMs }: Config,
  parts: ConstructorParameters<typeof Retention>[0],
): Retention | undefined {
  return afterMs === undefined ? undefined : new Retention(parts, { afterMs, intervalMs });
}

/** News of other instances. Feeds only need to know that some arrived. */
function wakeUpsOf(live: Live, feeds: Feeds, onCancel: () => void): WakeUps {
  return {
    onHint: (sessionId, head) => {
      live.onHint(sessionId, head);
      feeds.wake();
    },
    onCancel,
    onMissed: () => {
      live.onMissed();
      feeds.wake();
    },
    onLost: () => live.onLost(),
    onRestored: () => live.onRestored(),
  };
}

function liveLimits(config: Config, connections: number): LiveLimits {
  return {
    ...LIVE_LIMITS,
    windowsBytesMax: Math.floor(LIVE_LIMITS.windowsBytesMax / config.workers),
    watchersMax: config.watchersMax,
    watchersPerSessionMax: config.watchersPerSessionMax,
    headPollIntervalMs: config.headPollIntervalMs,
    // Longer than the store's own deadline for an answer.
    readLimitMs: config.statementTimeoutMs + 5_000,
    // Half of the pool: many clients that return after a restart must leave room for other reads.
    pageReadsMax: Math.max(1, Math.floor(connections / 2)),
  };
}

/** The transport of announcements between instances, if LISTEN is not off. */
function transportOf(
  { listenDatabaseUrl: listenUrl, databaseSchema: schema }: Config,
  { database, url }: Postgres,
  instance: string,
): Transport | undefined {
  if (listenUrl === "off") return undefined;
  return createTransport({ database, url: () => listenUrl ?? url(), schema, instance });
}
