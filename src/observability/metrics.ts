/**
 * The metrics of the service. Names begin with `session_ledger_`, except the usual ones of a
 * Node.js process; docs/operations.md says which to watch. Labels have few values, all of them
 * known here: never a session id, never a text of a caller.
 */
import { type Counter, collectDefaultMetrics, type Registry } from "prom-client";
import { type Clock, systemClock } from "@session-ledger/base/clock";
import { Instruments } from "./instruments.ts";
import { limitInstruments } from "./limit-metrics.ts";
import { packageVersion } from "./version.ts";

export type Metrics = ReturnType<typeof createMetrics>;

/** A metric with its values, as prom-client gives and takes it. */
export type MetricObject = Awaited<ReturnType<Registry["getMetricsAsJSON"]>>[number];

/** The metrics of connections, below any call. */
export type TransportMetrics = ReturnType<typeof transportInstruments>;

export type ServerName = "grpc" | "http";

export interface CallMetrics {
  /** `code` is gRPC's name of the code. */
  recordEnd(code: string, durationMs: number): void;
}

// From far below one fsync to above the 5 s deadline of existing runners.
const SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
// From a waiting runner to a person who comes back the next day.
const WAITS = [0.01, 0.1, 0.5, 1, 5, 15, 60, 300, 1_800, 7_200, 86_400];
const POWERS_OF_TWO = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];

export function createMetrics(clock: Clock = systemClock) {
  const make = new Instruments();
  const { registry } = make;
  collectDefaultMetrics({ register: registry });
  make
    .gauge("build_info", "1, by the version of the service and of Node.js.", ["version", "node"])
    .set({ version: packageVersion(), node: process.version }, 1);

  return {
    contentType: registry.contentType,
    text: (): Promise<string> => registry.metrics(),
    /** For the parent of several workers, which adds them up. */
    json: (): Promise<readonly MetricObject[]> => registry.getMetricsAsJSON(),
    ...callInstruments(make),
    ...ingestInstruments(make),
    ...pushStreamInstruments(make),
    ...turnInstruments(make),
    ...readInstruments(make),
    ...processInstruments(make),
    ...authInstruments(make),
    ...limitInstruments(make, clock),
    ...transportInstruments(make),
  };
}

function callInstruments(make: Instruments) {
  const calls = make.counter("calls_total", "Calls that ended, by method and gRPC code.", [
    "method",
    "code",
  ]);
  const durations = make.histogram(
    "call_duration_seconds",
    "Time of a call, by method; of a watch, the time that it was open.",
    SECONDS,
    ["method"],
  );
  const refusals = make.counter("refused_total", "Refused calls, by reason.", ["reason"]);
  return {
    calls,
    refusals,
    /** The calls of one method; looked up once per method and not once per call. */
    callsOf: (method: string): CallMetrics => {
      const duration = durations.labels({ method });
      const byCode = new Map<string, Counter.Internal>();
      return {
        recordEnd: (code, durationMs) => {
          const existing = byCode.get(code);
          const counter = existing ?? calls.labels({ method, code });
          if (existing === undefined) byCode.set(code, counter);
          counter.inc();
          duration.observe(durationMs / 1_000);
        },
      };
    },
    /** A refused call, by the reason that its caller got. */
    refused: (reason: string): void => {
      refusals.inc({ reason });
    },
    /** `route` is the pattern, and never the path. */
    httpRequests: make.counter(
      "http_requests_total",
      "HTTP requests that ended, by route, method and status.",
      ["route", "method", "status"],
    ),
    /** The time to the end of the answer. */
    httpSeconds: make.histogram(
      "http_request_duration_seconds",
      "Time of a request; of a stream, the time that it was open.",
      SECONDS,
      ["route"],
    ),
    sseStreams: make.gauge("sse_streams", "Open server-sent event streams, by route.", ["route"]),
  };
}

function ingestInstruments(make: Instruments) {
  return {
    queueWait: make.watched(
      "queue_wait_seconds",
      "Time that the oldest push has waited for its batch; 0 when none waits.",
    ),
    batchRows: make.histogram("batch_rows", "Rows of one commit.", POWERS_OF_TWO),
    queueRows: make.gauge("queue_rows", "Rows waiting for a commit or in one."),
    queueBytes: make.gauge("queue_bytes", "Bytes of these rows."),
    /** The duration of a batch's transaction, from its beginning to the answer to COMMIT. */
    commitSeconds: make.histogram("commit_duration_seconds", "Time of one commit.", SECONDS),
    rowsStored: make.counter("rows_stored_total", "Committed rows, by stream.", ["stream"]),
    rowsDeduplicated: make.counter(
      "rows_deduplicated_total",
      "Pushes answered with the row of an earlier push.",
    ),
    aguiRenamed: make.counter(
      "agui_renamed_total",
      "AG-UI events with a renamed field, by the pushed name.",
      ["field"],
    ),
    /** Masked secrets, and members whose value was removed (`key`). */
    redactions: make.counter(
      "redactions_total",
      "Masked secrets, by kind; `key`: by the name of a member.",
      ["kind"],
    ),
    /** `by`: retention, or the erasure of a whole session. */
    rowsErased: make.counter(
      "rows_erased_total",
      "Erased rows, by stream and cause (retention, erase).",
      ["stream", "by"],
    ),
    textsIndexed: make.counter("texts_indexed_total", "Texts stored for search by this instance."),
    indexPassed: make.gauge(
      "search_index_passed_timestamp_seconds",
      "Time at which this instance had stored texts and runs of all rows; 0: it never did.",
    ),
    indexFailures: make.counter(
      "search_index_failures_total",
      "Failures of the index of search; it continues.",
    ),
    retentionPassed: make.gauge(
      "retention_passed_timestamp_seconds",
      "Time of the last complete pass of retention; 0 before.",
    ),
    retentionFailures: make.counter(
      "retention_failures_total",
      "Failed passes of retention; the next one continues.",
    ),
  };
}

function pushStreamInstruments(make: Instruments) {
  return {
    pushStreams: make.gauge("push_streams", "Open push streams."),
    /** Raw events, from their hand-over to a commit … */
    pushStreamEvents: make.counter(
      "push_stream_events_total",
      "Raw events of push streams, refused ones too.",
    ),
    pushStreamRefused: make.counter(
      "push_stream_events_refused_total",
      "Refused raw events of push streams.",
    ),
    /** … and the rows made from them. */
    pushStreamRows: make.counter(
      "push_stream_rows_total",
      "Rows made of the raw events of push streams.",
    ),
    /** Payload bytes that were given to a commit and are not on disk yet. */
    pushStreamBytes: make.gauge(
      "push_stream_unacknowledged_bytes",
      "Payload bytes of push streams on their way to disk.",
    ),
    pushStreamGroups: make.counter(
      "push_stream_groups_total",
      "Rows made of fragments, by cause: event, age, flush, bytes, push, end.",
      ["by"],
    ),
  };
}

/** The sessions with waiting messages; undefined: the database does not say so in time. */
type CountWaiting = () => Promise<{ readonly yes: number; readonly no: number } | undefined>;

function turnInstruments(make: Instruments) {
  let countWaiting: CountWaiting | undefined;
  make.gauge(
    "sessions_waiting",
    "Sessions with messages that wait for a turn, by whether a claim was ever made (yes, no); of the 10,000 that began to wait last.",
    ["claimed"],
    async (gauge) => {
      const { yes, no } = (await countWaiting?.()) ?? {};
      if (yes !== undefined) gauge.set({ claimed: "yes" }, yes);
      if (no !== undefined) gauge.set({ claimed: "no" }, no);
    },
  );
  return {
    /** Each scrape calls `count`. */
    watchWaiting: (count: CountWaiting): void => void (countWaiting = count),
    feedback: make.counter(
      "feedback_total",
      "Stored feedback on messages, by kind (thumbs_up, thumbs_down, other).",
      ["kind"],
    ),
    claims: make.counter(
      "claims_total",
      "Claims of turns, by outcome (claimed, repeated, nothing, lost, run_open, stale_epoch, failed).",
      ["outcome"],
    ),
    claimsWaiting: make.gauge("claims_waiting", "Claims that wait for a message."),
    turnWaitSeconds: make.histogram(
      "turn_wait_seconds",
      "Time of a message from its push to its turn.",
      WAITS,
    ),
    turnMessages: make.histogram("turn_messages", "Messages of one turn.", POWERS_OF_TWO),
    turnEnvelopeTokens: make.counter(
      "turn_envelope_tokens_total",
      "Tokens that runners added around the messages of turns, as they report them.",
    ),
    cancels: make.counter(
      "cancels_total",
      "Cancels of runs, by outcome (asked, repeated, not_found, failed).",
      ["outcome"],
    ),
    cancelledRunsEnded: make.counter(
      "cancelled_runs_ended_total",
      "Cancelled runs that the service ended, because their producer had not after CANCEL_GRACE.",
    ),
  };
}

function readInstruments(make: Instruments) {
  return {
    feedLag: make.watched(
      "feed_lag_seconds",
      "Time between the clock of the database and the place of the feed that is furthest behind; 0 without feeds.",
    ),
    countInstances: make.watched(
      "instances_heard",
      "Other instances that were heard of in the last minute.",
    ),
    watchers: make.gauge("watchers", "Open watches.", ["stream"]),
    watchLagSeconds: make.histogram(
      "watch_lag_seconds",
      "Time from the commit of a row to its hand-over to a watcher's connection.",
      SECONDS,
    ),
    wakeUps: make.counter(
      "wake_ups_total",
      "Announcements of commits, by direction (sent, received). None is sent for sessions that no other instance watches.",
      ["direction"],
    ),
    wakeUpsConnected: make.gauge(
      "wake_ups_connected",
      "1 while wake-ups of other instances arrive; 0 while only the poll works. Absent with LISTEN_DATABASE_URL=off.",
    ),
    transcriptBytes: make.gauge("transcript_bytes", "Estimated memory of kept transcripts."),
    transcriptRows: make.counter("transcript_rows_total", "Rows read to update transcripts."),
    transcripts: make.counter(
      "transcripts_total",
      "Requested transcripts, by state in memory: hit, advanced, miss.",
      ["cache"],
    ),
    aguiInputs: make.counter(
      "agui_typed_total",
      "Inputs of AG-UI clients with new messages or answers, by outcome: stored, repeated; no_runner.",
      ["outcome"],
    ),
    aguiMended: make.counter(
      "agui_mended_total",
      "Events that AG-UI clients got in another form, by change.",
      ["how"],
    ),
  };
}

function processInstruments(make: Instruments) {
  return {
    ready: make.gauge("ready", "1 while /readyz is ready."),
    postgresRestarts: make.counter(
      "postgres_restarts_total",
      "Restarts of the embedded PostgreSQL after it ended by itself.",
    ),
    /** Absent without an embedded PostgreSQL. */
    diskFree: make.gauge(
      "disk_free_bytes",
      "Free space on the disk of the embedded PostgreSQL, by setting.",
      ["setting"],
    ),
    /** Dropped: too many spans were waiting. */
    traceSpans: make.counter(
      "trace_spans_total",
      "Ended spans, by outcome: sent, failed, dropped.",
      ["outcome"],
    ),
  };
}

function authInstruments(make: Instruments) {
  return {
    /** `outcome`: accepted, or the cause of the refusal; `kind`: of the token, or unknown. */
    authentications: make.counter(
      "authentications_total",
      "Authenticated calls, by kind of token and outcome.",
      ["kind", "outcome"],
    ),
    tokenChecks: make.counter(
      "token_checks_total",
      "Checks of signed tokens, by way: known, refused before, or verified.",
      ["result"],
    ),
    /** `outcome`: changed, same, failed. */
    keyRefreshes: make.counter(
      "key_refreshes_total",
      "Readings of the keys of tokens, by keys (oidc, session) and outcome.",
      ["keys", "outcome"],
    ),
    authFileReloads: make.counter(
      "auth_file_reloads_total",
      "Changes of a file of tokens or keys, by file and outcome (changed, failed).",
      ["file", "outcome"],
    ),
    denied: make.counter("denied_total", "Denials, by action and reason.", ["action", "reason"]),
  };
}

function transportInstruments(make: Instruments) {
  return {
    connections: make.gauge("connections", "Open connections, by server (grpc, http).", ["server"]),
    /** `why`: limit; preface: no HTTP/2; flood: tiny pieces, or unanswered HTTP requests. */
    connectionsClosed: make.counter(
      "connections_closed_total",
      "Connections closed by the service, by server and reason (limit, preface, flood).",
      ["server", "why"],
    ),
    tlsHandshakesFailed: make.counter(
      "tls_handshakes_failed_total",
      "Failed or slow TLS handshakes, by server.",
      ["server"],
    ),
    tlsReloads: make.counter(
      "tls_reloads_total",
      "Changes of the files of TLS, by outcome (changed, failed).",
      ["outcome"],
    ),
    /** Absent without TLS. */
    tlsExpiry: make.gauge(
      "tls_certificate_expiry_timestamp_seconds",
      "End of the served certificate, in seconds since the epoch.",
      ["file"],
    ),
    receivedBytes: make.gauge(
      "received_bytes",
      "Memory held for callers: requests, unstored events, unread answers and their rows.",
    ),
  };
}
