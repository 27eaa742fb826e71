import {
  address,
  amount,
  choice,
  directory,
  duration,
  flag,
  natsSubject,
  natsUrl,
  postgresUrl,
  remoteAddress,
  schemaName,
  type Setting,
} from "./setting.ts";
import { CLIENT_DOOR_SETTINGS, DOOR_SETTINGS } from "./doors.ts";

/** The settings of the service; config.ts makes a `Config` of them. */
export const SERVICE_SETTINGS = {
  grpcAddress: address({
    name: "GRPC_ADDRESS",
    fallback: "127.0.0.1:9000",
    meaning:
      "Where gRPC is served. Beyond loopback it needs TLS and tokens, or the ALLOW_ switches.",
  }),
  httpAddress: address({
    name: "HTTP_ADDRESS",
    fallback: "127.0.0.1:8000",
    meaning:
      "Where REST, SSE, AG-UI and CopilotKit clients are served. Beyond loopback it needs TLS and tokens, or the ALLOW_ switches.",
  }),
  opsAddress: address({
    name: "OPS_ADDRESS",
    fallback: "127.0.0.1:8083",
    meaning:
      "Where /healthz, /readyz and /metrics are served. They show no session data, so any address will do.",
  }),
  allowInsecureTransport: flag({
    name: "ALLOW_INSECURE_TRANSPORT",
    fallback: false,
    meaning: "Serve without TLS beyond loopback. Programs on the way can read and change sessions.",
  }),
  allowAnonymous: flag({
    name: "ALLOW_ANONYMOUS",
    fallback: false,
    meaning:
      "Serve without tokens beyond loopback. Every caller that reaches the port may do everything.",
  }),
  databaseUrl: postgresUrl({
    name: "DATABASE_URL",
    meaning: "The PostgreSQL to use. Without it the service runs an embedded one in DATA_DIR.",
  }),
  databaseSchema: schemaName({
    name: "DATABASE_SCHEMA",
    meaning:
      "The schema of the tables, made when missing. Without it, the one that the role finds first, which is public.",
  }),
  dataDir: directory({
    name: "DATA_DIR",
    fallback: ".data",
    meaning: "Where the embedded PostgreSQL keeps its files. Not used with DATABASE_URL.",
  }),
  diskReserveBytes: amount({
    name: "DISK_RESERVE_BYTES",
    fallback: 536_870_912,
    min: 0,
    max: 100_000_000_000_000,
    meaning:
      "Free space of the embedded PostgreSQL's disk below which pushes are UNAVAILABLE (DISK_FULL), and reads go on. Not used with DATABASE_URL.",
  }),
  wakeUps: choice({
    name: "WAKE_UPS",
    fallback: "postgres",
    among: ["postgres", "nats", "poll"],
    meaning:
      "How instances tell each other of commits: NOTIFY, a NATS server, or not at all. Whatever it is, HEAD_POLL_INTERVAL_MS finds what was not told.",
  }),
  listenDatabaseUrl: postgresUrl({
    name: "LISTEN_DATABASE_URL",
    meaning:
      "A direct way to the same database for LISTEN, where DATABASE_URL goes through a pooler that cannot carry it. Without it, DATABASE_URL.",
  }),
  natsUrl: natsUrl({
    name: "NATS_URL",
    meaning: "The NATS server to use with WAKE_UPS=nats.",
  }),
  natsSubject: natsSubject({
    name: "NATS_SUBJECT",
    fallback: "session-ledger.commits",
    meaning:
      "The subject of wake-ups with WAKE_UPS=nats. Instances on different databases need different ones.",
  }),
  runStaleAfterMs: duration({
    name: "RUN_STALE_AFTER",
    fallback: "10m",
    minMs: 1_000,
    maxMs: 720 * 3_600_000,
    meaning:
      "A run without an end in which nothing has happened for so long is called stalled, and AG-UI clients that follow it are let go.",
  }),
  runWaitMs: duration({
    name: "RUN_WAIT",
    fallback: "30s",
    minMs: 100,
    maxMs: 24 * 3_600_000,
    meaning:
      "The longest time that an AG-UI client waits for the first run of a session. Then its answer ends. Clients with follow=true wait on.",
  }),
  sessionPolicy: choice({
    name: "SESSION_POLICY",
    fallback: "auto",
    among: ["auto", "strict"],
    meaning: "auto: a push creates the session it names. strict: an unknown session is NOT_FOUND.",
  }),
  validation: choice({
    name: "VALIDATION",
    fallback: "strict",
    among: ["strict", "lenient", "exact"],
    meaning:
      "strict: an event that no version of AG-UI accepts is refused. lenient: any JSON object is stored, and marked. exact: an event that AG-UI 1.0 does not accept is refused.",
  }),
  grpcReflection: choice({
    name: "GRPC_REFLECTION",
    fallback: "auto",
    among: ["auto", "on", "off"],
    meaning:
      "Whether gRPC clients can ask for the contract. auto: on when GRPC_ADDRESS is loopback.",
  }),
  logLevel: choice({
    name: "LOG_LEVEL",
    fallback: "info",
    among: ["debug", "info", "warn", "error", "silent"],
    meaning:
      "The least important log lines that are written. Audit records are always written, but for silent.",
  }),
  callLog: choice({
    name: "CALL_LOG",
    fallback: "failures",
    among: ["all", "failures"],
    meaning:
      "Which gRPC calls and HTTP requests get a log line: all, or those that failed, and streams.",
  }),
  payloadBytesMax: amount({
    name: "PAYLOAD_BYTES_MAX",
    fallback: 1_048_576,
    min: 1_024,
    // A row has to fit the 4 MiB that gRPC clients accept by default, and a page ends at 3 MiB.
    max: 3_145_728,
    meaning: "Largest payload of one row. Above it: RESOURCE_EXHAUSTED (HTTP 413), nothing stored.",
  }),
  requestBytesMax: amount({
    name: "REQUEST_BYTES_MAX",
    fallback: 4_194_304,
    min: 65_536,
    max: 67_108_864,
    meaning: "Largest request. Above it: RESOURCE_EXHAUSTED (HTTP 413), nothing read.",
  }),
  batchRowsMax: amount({
    name: "BATCH_ROWS_MAX",
    fallback: 512,
    min: 1,
    max: 10_000,
    meaning: "Rows that one commit takes; a full batch closes.",
  }),
  batchBytesMax: amount({
    name: "BATCH_BYTES_MAX",
    fallback: 8_388_608,
    min: 65_536,
    max: 67_108_864,
    meaning: "Payload bytes that one commit takes; a full batch closes.",
  }),
  queueRowsMax: amount({
    name: "QUEUE_ROWS_MAX",
    fallback: 16_384,
    min: 2,
    max: 1_000_000,
    meaning: "Rows that wait for a commit. Above it pushes are RESOURCE_EXHAUSTED (QUEUE_FULL).",
  }),
  queueBytesMax: amount({
    name: "QUEUE_BYTES_MAX",
    fallback: 67_108_864,
    min: 131_072,
    max: 4_294_967_296,
    meaning: "Payload bytes that wait for a commit. Above it: RESOURCE_EXHAUSTED (QUEUE_FULL).",
  }),
  pushStreamsMax: amount({
    name: "PUSH_STREAMS_MAX",
    fallback: 1_000,
    min: 1,
    max: 100_000,
    meaning:
      "PushSessionEvents calls that one instance serves. Above it: RESOURCE_EXHAUSTED (TOO_MANY_STREAMS).",
  }),
  pushStreamBytesMax: amount({
    name: "PUSH_STREAM_BYTES_MAX",
    fallback: 1_048_576,
    min: 1_024,
    max: 67_108_864,
    meaning:
      "Payload bytes of one push stream that are not committed. Above it the service stops reading the stream.",
  }),
  databaseConnections: amount({
    name: "DATABASE_CONNECTIONS",
    fallback: 10,
    min: 3,
    max: 200,
    meaning: "Connections to the database that one instance of the service takes at most.",
  }),
  statementTimeoutMs: amount({
    name: "STATEMENT_TIMEOUT_MS",
    fallback: 5_000,
    min: 100,
    max: 600_000,
    meaning:
      "A statement that runs longer is cancelled, and its callers get UNAVAILABLE. A commit of several sessions is tried again, each session by itself.",
  }),
  lockTimeoutMs: amount({
    name: "LOCK_TIMEOUT_MS",
    fallback: 500,
    min: 10,
    max: 60_000,
    meaning:
      "How long a commit waits for a session that somebody else has locked before it goes on without it.",
  }),
  watchersMax: amount({
    name: "WATCHERS_MAX",
    fallback: 4_096,
    min: 1,
    max: 100_000,
    meaning: "Watches that one instance serves. Above it: RESOURCE_EXHAUSTED (TOO_MANY_WATCHERS).",
  }),
  watchersPerSessionMax: amount({
    name: "WATCHERS_PER_SESSION_MAX",
    fallback: 512,
    min: 1,
    max: 100_000,
    meaning: "Watches of one session on one instance. Above it: RESOURCE_EXHAUSTED.",
  }),
  windowRowsMax: amount({
    name: "WINDOW_ROWS_MAX",
    fallback: 512,
    min: 1,
    max: 100_000,
    meaning: "Newest rows of a watched session that are held in memory.",
  }),
  windowBytesMax: amount({
    name: "WINDOW_BYTES_MAX",
    fallback: 1_048_576,
    min: 1_024,
    max: 67_108_864,
    meaning: "Payload bytes of a watched session that are held in memory.",
  }),
  headPollIntervalMs: amount({
    name: "HEAD_POLL_INTERVAL_MS",
    fallback: 1_000,
    min: 50,
    max: 60_000,
    meaning:
      "How often the watched sessions are looked up: the latest a row of another instance comes.",
  }),
  sseHeartbeatMs: amount({
    name: "SSE_HEARTBEAT_MS",
    fallback: 15_000,
    min: 100,
    max: 600_000,
    meaning: "How often an SSE stream says that it lives; proxies cut what is silent.",
  }),
  transcriptsBytesMax: amount({
    name: "TRANSCRIPTS_BYTES_MAX",
    fallback: 67_108_864,
    min: 1_048_576,
    max: 68_719_476_736,
    meaning:
      "Estimated memory of the transcripts that are kept. The one asked for the longest ago goes first.",
  }),
  stopLimitMs: amount({
    name: "STOP_LIMIT_MS",
    fallback: 10_000,
    min: 100,
    max: 600_000,
    meaning: "How long a stop waits for calls that are under way before it cuts them off.",
  }),
  ...DOOR_SETTINGS,
} as const;

/** The settings of commands that call a running service. */
export const CLIENT_SETTINGS = {
  address: remoteAddress({
    name: "SESSION_LEDGER_ADDRESS",
    fallback: "127.0.0.1:9000",
    meaning: "The service that `push`, `tail`, `export` and `sessions` speak to; `--address` wins.",
  }),
  ...CLIENT_DOOR_SETTINGS,
} as const;

type Limit = {
  [K in keyof typeof SERVICE_SETTINGS]: (typeof SERVICE_SETTINGS)[K] extends Setting<infer T>
    ? [T] extends [number]
      ? K
      : never
    : never;
}[keyof typeof SERVICE_SETTINGS];

/** Limits that depend on each other: `times` the first must not be above the second. */
export const RELATIONS: readonly {
  readonly low: Limit;
  readonly high: Limit;
  readonly times: number;
  readonly why: string;
}[] = [
  {
    low: "payloadBytesMax",
    high: "requestBytesMax",
    times: 1,
    why: "a request carries a payload",
  },
  { low: "payloadBytesMax", high: "batchBytesMax", times: 1, why: "a batch carries a row" },
  {
    low: "batchRowsMax",
    high: "queueRowsMax",
    times: 2,
    why: "one batch is in flight while the next fills",
  },
  {
    low: "batchBytesMax",
    high: "queueBytesMax",
    times: 2,
    why: "one batch is in flight while the next fills",
  },
  {
    low: "pushStreamBytesMax",
    high: "queueBytesMax",
    times: 2,
    why: "what one stream has under way must leave room in the queue",
  },
  {
    low: "requestBytesMax",
    high: "receivedBytesMax",
    times: 2,
    why: "one large request must not be all that is received",
  },
  {
    low: "lockTimeoutMs",
    high: "statementTimeoutMs",
    times: 2,
    why: "a locked session must be told from a stuck database",
  },
  {
    low: "watchersPerSessionMax",
    high: "watchersMax",
    times: 1,
    why: "the watches of one session are among all watches",
  },
];
