import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";
import { type Clock, systemClock } from "../base/clock.ts";
import { packageVersion } from "./version.ts";
import { type AuthMetrics, authInstruments } from "./auth-metrics.ts";
import { limitInstruments, type LimitMetrics } from "./limit-metrics.ts";
import { redactionInstruments, type RedactionMetrics } from "./redaction-metrics.ts";
import { retentionInstruments, type RetentionMetrics } from "./retention-metrics.ts";
import { transportInstruments, type TransportMetrics } from "./transport-metrics.ts";

/**
 * The metrics of the service. Names begin with `session_ledger_`, except the usual ones of a
 * Node.js process; docs/operations.md says which to watch. Labels have few values, all of them
 * known here: never a session id, never a text of a caller.
 */
export interface Metrics
  extends AuthMetrics,
    LimitMetrics,
    RedactionMetrics,
    RetentionMetrics,
    TransportMetrics {
  /** The content type of Prometheus text. */
  readonly contentType: string;
  text(): Promise<string>;

  /** The calls of one method; looked up once per method and not once per call. */
  callsOf(method: string): CallMetrics;
  /** A refused call, by the reason that its caller got. */
  refused(reason: string): void;

  readonly batchRows: Histogram;
  readonly queueRows: Gauge;
  readonly queueBytes: Gauge;
  /** The duration of a batch's transaction, from its beginning to the answer to COMMIT. */
  readonly commitSeconds: Histogram;
  readonly rowsStored: Counter<"stream">;
  readonly rowsDeduplicated: Counter;
  readonly sequenceViolations: Counter<"rule">;
  readonly aguiRenamed: Counter<"field">;
  readonly pushStreams: Gauge;
  /** Raw events of push streams, including refused ones, from their hand-over to a commit … */
  readonly pushStreamEvents: Counter;
  readonly pushStreamRefused: Counter;
  /** … and the rows made from them. */
  readonly pushStreamRows: Counter;
  /** Payload bytes that were given to a commit and are not on disk yet. */
  readonly pushStreamBytes: Gauge;
  readonly pushStreamGroups: Counter<"by">;
  readonly watchers: Gauge<"stream">;
  /** From the commit of a row to its delivery to a watcher's connection. */
  readonly watchLagSeconds: Histogram;
  readonly postgresRestarts: Counter;
  /** The free space of the embedded PostgreSQL's disk; absent without one. */
  readonly diskFree: Gauge<"setting">;
  /** Messages between instances about commits. */
  readonly wakeUps: Counter<"adapter" | "direction">;
  /** 1 while wake-ups of other instances can arrive. */
  readonly wakeUpsConnected: Gauge<"adapter">;
  /** Finished requests; `route` is the pattern, and never the path. */
  readonly httpRequests: Counter<"route" | "method" | "status">;
  /** The time to the end of the answer; for a stream, the time it was open. */
  readonly httpSeconds: Histogram<"route">;
  readonly sseStreams: Gauge<"route">;
  /** The estimated memory of the kept transcripts. */
  readonly transcriptBytes: Gauge;
  readonly transcriptRows: Counter;
  /** `cache`: hit, advanced, or miss. */
  readonly transcripts: Counter<"cache">;
  /** AG-UI events that were not sent as stored, by the kind of the change. */
  readonly aguiMended: Counter<"how">;
  /** 1 while a push can be stored, as in /readyz. */
  readonly ready: Gauge;
  /** `outcome`: sent, failed, or dropped because too many were waiting. */
  readonly traceSpans: Counter<"outcome">;
}

export interface CallMetrics {
  /** `code` is gRPC's name of the code. */
  ended(code: string, durationMs: number): void;
}

const PREFIX = "session_ledger_";

// From far below one fsync to above the 5 s deadline of existing runners.
const SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
const POWERS_OF_TWO = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];

export function createMetrics(clock: Clock = systemClock): Metrics {
  const registry = new Registry();
  const registers = [registry];
  collectDefaultMetrics({ register: registry });
  new Gauge({
    name: `${PREFIX}build_info`,
    help: "1, by the version of the service and of Node.js.",
    labelNames: ["version", "node"],
    registers,
  }).set({ version: packageVersion(), node: process.version }, 1);

  return {
    contentType: registry.contentType,
    text: () => registry.metrics(),
    ...callInstruments(registers),
    ...ingestInstruments(registers),
    ...pushStreamInstruments(registers),
    watchers: new Gauge({
      name: `${PREFIX}watchers`,
      help: "Open watches.",
      labelNames: ["stream"],
      registers,
    }),
    watchLagSeconds: new Histogram({
      name: `${PREFIX}watch_lag_seconds`,
      help: "Time from the commit of a row to its hand-over to a watcher's connection.",
      buckets: SECONDS,
      registers,
    }),
    postgresRestarts: new Counter({
      name: `${PREFIX}postgres_restarts_total`,
      help: "Restarts of the embedded PostgreSQL after it ended by itself.",
      registers,
    }),
    diskFree: new Gauge({
      name: `${PREFIX}disk_free_bytes`,
      help: "Free space on the disk of the embedded PostgreSQL, by setting.",
      labelNames: ["setting"],
      registers,
    }),
    ...wakeUpInstruments(registers),
    ...httpInstruments(registers),
    ...transcriptInstruments(registers),
    ...authInstruments(registers),
    ...limitInstruments(registers, clock),
    ...redactionInstruments(registers),
    ...retentionInstruments(registers),
    ...transportInstruments(registers),
    ...processInstruments(registers),
  };
}

function wakeUpInstruments(registers: Registry[]): Pick<Metrics, "wakeUps" | "wakeUpsConnected"> {
  return {
    wakeUps: new Counter({
      name: `${PREFIX}wake_ups_total`,
      help: "Announcements of commits, by adapter and direction (sent, received).",
      labelNames: ["adapter", "direction"],
      registers,
    }),
    wakeUpsConnected: new Gauge({
      name: `${PREFIX}wake_ups_connected`,
      help: "1 while wake-ups of other instances arrive; 0 while only the poll works.",
      labelNames: ["adapter"],
      registers,
    }),
  };
}

function httpInstruments(
  registers: Registry[],
): Pick<Metrics, "httpRequests" | "httpSeconds" | "sseStreams"> {
  return {
    httpRequests: new Counter({
      name: `${PREFIX}http_requests_total`,
      help: "HTTP requests that ended, by route, method and status.",
      labelNames: ["route", "method", "status"],
      registers,
    }),
    httpSeconds: new Histogram({
      name: `${PREFIX}http_request_duration_seconds`,
      help: "Time of a request; of a stream, the time that it was open.",
      labelNames: ["route"],
      buckets: SECONDS,
      registers,
    }),
    sseStreams: new Gauge({
      name: `${PREFIX}sse_streams`,
      help: "Open server-sent event streams, by route.",
      labelNames: ["route"],
      registers,
    }),
  };
}

function transcriptInstruments(
  registers: Registry[],
): Pick<Metrics, "transcriptBytes" | "transcriptRows" | "transcripts" | "aguiMended"> {
  return {
    transcriptBytes: new Gauge({
      name: `${PREFIX}transcript_bytes`,
      help: "Estimated memory of kept transcripts.",
      registers,
    }),
    transcriptRows: new Counter({
      name: `${PREFIX}transcript_rows_total`,
      help: "Rows read to update transcripts.",
      registers,
    }),
    transcripts: new Counter({
      name: `${PREFIX}transcripts_total`,
      help: "Requested transcripts, by state in memory: hit, advanced, miss.",
      labelNames: ["cache"],
      registers,
    }),
    aguiMended: new Counter({
      name: `${PREFIX}agui_mended_total`,
      help: "Events that AG-UI clients got in another form, by change.",
      labelNames: ["how"],
      registers,
    }),
  };
}

function callInstruments(registers: Registry[]): Pick<Metrics, "callsOf" | "refused"> {
  const calls = new Counter({
    name: `${PREFIX}calls_total`,
    help: "Calls that ended, by method and gRPC code.",
    labelNames: ["method", "code"],
    registers,
  });
  const durations = new Histogram({
    name: `${PREFIX}call_duration_seconds`,
    help: "Time of a call, by method; of a watch, the time that it was open.",
    labelNames: ["method"],
    buckets: SECONDS,
    registers,
  });
  const refusals = new Counter({
    name: `${PREFIX}refused_total`,
    help: "Refused calls, by reason.",
    labelNames: ["reason"],
    registers,
  });
  return {
    callsOf: (method) => {
      const duration = durations.labels({ method });
      const byCode = new Map<string, Counter.Internal>();
      return {
        ended: (code, durationMs) => {
          const known = byCode.get(code);
          const counter = known ?? calls.labels({ method, code });
          if (known === undefined) byCode.set(code, counter);
          counter.inc();
          duration.observe(durationMs / 1_000);
        },
      };
    },
    refused: (reason) => refusals.inc({ reason }),
  };
}

function pushStreamInstruments(
  registers: Registry[],
): Pick<
  Metrics,
  | "pushStreams"
  | "pushStreamEvents"
  | "pushStreamRefused"
  | "pushStreamRows"
  | "pushStreamBytes"
  | "pushStreamGroups"
> {
  return {
    pushStreams: new Gauge({
      name: `${PREFIX}push_streams`,
      help: "Open push streams.",
      registers,
    }),
    pushStreamEvents: new Counter({
      name: `${PREFIX}push_stream_events_total`,
      help: "Raw events of push streams, refused ones too.",
      registers,
    }),
    pushStreamRefused: new Counter({
      name: `${PREFIX}push_stream_events_refused_total`,
      help: "Refused raw events of push streams.",
      registers,
    }),
    pushStreamRows: new Counter({
      name: `${PREFIX}push_stream_rows_total`,
      help: "Rows made of the raw events of push streams.",
      registers,
    }),
    pushStreamBytes: new Gauge({
      name: `${PREFIX}push_stream_unacknowledged_bytes`,
      help: "Payload bytes of push streams on their way to disk.",
      registers,
    }),
    pushStreamGroups: new Counter({
      name: `${PREFIX}push_stream_groups_total`,
      help: "Rows made of fragments, by cause: event, age, flush, bytes, push, end.",
      labelNames: ["by"],
      registers,
    }),
  };
}

function ingestInstruments(
  registers: Registry[],
): Pick<
  Metrics,
  | "batchRows"
  | "queueRows"
  | "queueBytes"
  | "commitSeconds"
  | "rowsStored"
  | "rowsDeduplicated"
  | "sequenceViolations"
  | "aguiRenamed"
> {
  return {
    batchRows: new Histogram({
      name: `${PREFIX}batch_rows`,
      help: "Rows of one commit.",
      buckets: POWERS_OF_TWO,
      registers,
    }),
    queueRows: new Gauge({
      name: `${PREFIX}queue_rows`,
      help: "Rows waiting for a commit or in one.",
      registers,
    }),
    queueBytes: new Gauge({
      name: `${PREFIX}queue_bytes`,
      help: "Bytes of these rows.",
      registers,
    }),
    commitSeconds: new Histogram({
      name: `${PREFIX}commit_duration_seconds`,
      help: "Time of one commit.",
      buckets: SECONDS,
      registers,
    }),
    rowsStored: new Counter({
      name: `${PREFIX}rows_stored_total`,
      help: "Committed rows, by stream.",
      labelNames: ["stream"],
      registers,
    }),
    rowsDeduplicated: new Counter({
      name: `${PREFIX}rows_deduplicated_total`,
      help: "Pushes answered with the row of an earlier push.",
      registers,
    }),
    aguiRenamed: new Counter({
      name: `${PREFIX}agui_renamed_total`,
      help: "AG-UI events with a renamed field, by the pushed name.",
      labelNames: ["field"],
      registers,
    }),
    sequenceViolations: new Counter({
      name: `${PREFIX}agui_sequence_violations_total`,
      help: "AG-UI events out of the protocol's order, by rule.",
      labelNames: ["rule"],
      registers,
    }),
  };
}

function processInstruments(registers: Registry[]): Pick<Metrics, "ready" | "traceSpans"> {
  return {
    ready: new Gauge({
      name: `${PREFIX}ready`,
      help: "1 while /readyz is ready.",
      registers,
    }),
    traceSpans: new Counter({
      name: `${PREFIX}trace_spans_total`,
      help: "Ended spans, by outcome: sent, failed, dropped.",
      labelNames: ["outcome"],
      registers,
    }),
  };
}
