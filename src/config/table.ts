/** The settings, one row each: the source of the parser, of `--help` and of docs/configuration.md. */
import { PAYLOAD_BYTES_MAX } from "@session-ledger/agui/payload";
import { parseOrigins } from "@session-ledger/base/address";
import {
  ADDRESS,
  amount,
  BYTES,
  choice,
  DIRECTORY,
  duration,
  FILE,
  FLAG,
  list,
  optional,
  or,
  POSTGRES_URL,
  RATIO,
  REMOTE_ADDRESS,
  SCHEMA_NAME,
  secretText,
  setting,
  TERABYTE,
  TEXT,
  textOf,
  MODEL_PRICES,
  WEB_URL,
} from "./kinds.ts";

/** The settings of the service, one row each; config.ts makes a `Config` of them. */
export const SERVICE_SETTINGS = {
  grpcAddress: setting("GRPC_ADDRESS", ADDRESS, "127.0.0.1:9000").means(
    "The address of gRPC. Beyond loopback it needs TLS and tokens, or the ALLOW_ switches.",
  ),
  httpAddress: setting("HTTP_ADDRESS", ADDRESS, "127.0.0.1:8000").means(
    "The address of REST, SSE, AG-UI and CopilotKit. Beyond loopback it needs what GRPC_ADDRESS needs.",
  ),
  httpOrigins: optional("HTTP_ORIGINS", {
    expected: "origins like https://chat.example, separated by commas, without a path; no *",
    parse: parseOrigins,
  }).means("Web origins whose pages may call HTTP (CORS), separated by commas. Not set: none."),
  inspector: setting("INSPECTOR", choice("on", "off"), "on").means(
    "Whether HTTP serves the inspector.",
  ),
  modelPrices: optional("MODEL_PRICES", MODEL_PRICES).means(
    "Cost of a million tokens in USD, given to a model and by it, for the inspector: `small=0.5/2,large=3/15`.",
  ),
  opsAddress: setting("OPS_ADDRESS", ADDRESS, "127.0.0.1:8083").means(
    "The address of /healthz, /readyz and /metrics, without session data.",
  ),
  allowInsecureTransport: setting("ALLOW_INSECURE_TRANSPORT", FLAG, "false").means(
    "Serve without TLS beyond loopback: machines on the path can read and change sessions.",
  ),
  allowAnonymous: setting("ALLOW_ANONYMOUS", FLAG, "false").means(
    "Serve without tokens beyond loopback: every caller has all rights.",
  ),
  databaseUrl: optional("DATABASE_URL", POSTGRES_URL).means(
    "The PostgreSQL to use; without it an embedded one. Parameters, like `?lock_timeout=2s`, are settings of the connections. With several hosts and `?target_session_attrs=primary` each goes to the primary.",
  ),
  allowLoss: setting("ALLOW_LOSS", FLAG, "false").means(
    "Serve although PostgreSQL may lose acknowledged rows (fsync or synchronous_commit off). Otherwise the service does not start, and pushes are UNAVAILABLE.",
  ),
  databaseSchema: optional("DATABASE_SCHEMA", SCHEMA_NAME).means(
    "The schema of the tables, created when missing; without it the first of the search path.",
  ),
  engine: setting("ENGINE", choice("postgres", "citus"), "postgres").means(
    "citus: the database is the coordinator of a Citus cluster (docs/scale.md).",
  ),
  dataDir: setting("DATA_DIR", DIRECTORY, ".data").means("The files of the embedded PostgreSQL."),
  diskReserveBytes: setting("DISK_RESERVE_BYTES", amount(0, 100 * TERABYTE), "536870912").means(
    "Below this free space for the embedded PostgreSQL pushes are UNAVAILABLE (DISK_FULL).",
  ),
  listenDatabaseUrl: optional("LISTEN_DATABASE_URL", or("off", POSTGRES_URL)).means(
    "A direct connection for LISTEN, if a pooler does not carry it. off: HEAD_POLL_INTERVAL_MS finds commits of other instances.",
  ),
  runStaleAfterMs: setting("RUN_STALE_AFTER", duration("1s", "720h"), "10m").means(
    "A run without an end and without new rows for this time is stalled.",
  ),
  runWaitMs: setting("RUN_WAIT", duration("100ms", "24h"), "30s").means(
    "How long an AG-UI client waits for the first run, or for the run that takes its message; with follow=true without end.",
  ),
  cancelGraceMs: setting("CANCEL_GRACE", duration("100ms", "24h"), "30s").means(
    "The time in which a producer ends a cancelled run. Then the service ends it.",
  ),
  sessionPolicy: setting("SESSION_POLICY", choice("auto", "strict"), "auto").means(
    "auto: a push creates the session that it names. strict: an unknown session is NOT_FOUND.",
  ),
  integrity: setting("INTEGRITY", choice("off", "chain"), "off").means(
    "chain: each push extends a chain of digests, by which `verify` finds any changed row. It takes 3 to 4 % more CPU a push.",
  ),
  validation: setting("VALIDATION", choice("strict", "lenient", "exact"), "strict").means(
    "strict: an event that no version of AG-UI accepts is refused. lenient: any JSON object is stored, and marked. exact: only what AG-UI 1.0 accepts.",
  ),
  grpcReflection: setting("GRPC_REFLECTION", choice("auto", "on", "off"), "auto").means(
    "Whether clients can ask for the contract. auto: on when GRPC_ADDRESS is loopback.",
  ),
  logLevel: setting("LOG_LEVEL", choice("debug", "info", "warn", "error", "silent"), "info").means(
    "The lowest level of log lines. Audit records are written at every level but silent.",
  ),
  callLog: setting("CALL_LOG", choice("all", "failures"), "failures").means(
    "The calls and requests with a log line: all, or failed ones and streams.",
  ),
  payloadBytesMax: setting(
    "PAYLOAD_BYTES_MAX",
    amount(1_024, 16_777_216),
    String(PAYLOAD_BYTES_MAX),
  ).means(
    "Largest payload of one row. Above it: RESOURCE_EXHAUSTED (HTTP 413). With more than the default, gRPC readers must take messages of it and 24,304 bytes.",
  ),
  requestBytesMax: setting("REQUEST_BYTES_MAX", amount(65_536, 67_108_864), "4194304").means(
    "Largest request, at least PAYLOAD_BYTES_MAX and 24,304 bytes; of a JSON body twice that. Above it: RESOURCE_EXHAUSTED (HTTP 413).",
  ),
  queueBytesMax: setting("QUEUE_BYTES_MAX", amount(131_072, 4_294_967_296), "67108864").means(
    "Payload bytes that wait for a commit, and 4,096 times the rows. Above either: RESOURCE_EXHAUSTED (QUEUE_FULL). A commit takes an eighth of the bytes and a 32nd of the rows; a push stream may have a 64th uncommitted.",
  ),
  pushStreamsMax: setting("PUSH_STREAMS_MAX", amount(1, 100_000), "1000").means(
    "Push streams of one instance. Above it: RESOURCE_EXHAUSTED (TOO_MANY_STREAMS).",
  ),
  databaseConnections: setting("DATABASE_CONNECTIONS", amount(3, 200), "16").means(
    "Connections of one instance: half for pushes, a quarter for lists, searches, forks and earlier transcripts, half of that for one caller.",
  ),
  statementTimeoutMs: setting("STATEMENT_TIMEOUT_MS", amount(100, 600_000), "5000").means(
    "A longer statement is cancelled: UNAVAILABLE, of a list, a search or a fork DEADLINE_EXCEEDED. A commit waits a tenth of it for a locked session, and continues without that.",
  ),
  watchersMax: setting("WATCHERS_MAX", amount(1, 100_000), "4096").means(
    "Watches of one instance; of one session an eighth. Above it: RESOURCE_EXHAUSTED (TOO_MANY_WATCHERS).",
  ),
  workers: setting("WORKERS", or("auto", amount(1, 64)), "1").means(
    "Processes that serve the ports, on Linux. auto: one a core. Limits and connections are divided among them: each takes at least 3 connections, their parent 4.",
  ),
  headPollIntervalMs: setting("HEAD_POLL_INTERVAL_MS", amount(50, 60_000), "1000").means(
    "The interval at which watched sessions are read without a wake-up: the longest delay of a row.",
  ),
  sseHeartbeatMs: setting("SSE_HEARTBEAT_MS", amount(100, 600_000), "15000").means(
    "The interval of comments on an idle SSE stream.",
  ),
  transcriptsBytesMax: setting(
    "TRANSCRIPTS_BYTES_MAX",
    amount(1_048_576, 68_719_476_736),
    "67108864",
  ).means("Estimated memory of the cached transcripts."),
  stopLimitMs: setting("STOP_LIMIT_MS", amount(100, 600_000), "10000").means(
    "How long a stop waits for running calls.",
  ),
  tlsCertFile: optional("TLS_CERT_FILE", FILE).means(
    "Certificate and intermediates, PEM. Read again when it changes.",
  ),
  tlsKeyFile: optional("TLS_KEY_FILE", FILE).means(
    "Private key of TLS_CERT_FILE, PEM, without password.",
  ),
  tlsClientCaFile: optional("TLS_CLIENT_CA_FILE", FILE).means(
    "Authorities of client certificates (mTLS), PEM.",
  ),
  authTokens: optional(
    "AUTH_TOKENS",
    secretText(
      'JSON like {"tokens":[{"id":"…","token":"…","roles":["runner"],"project":"…"}]}, as in AUTH_TOKENS_FILE',
    ),
  ).means("Static tokens, in the form of the file."),
  authTokensFile: optional("AUTH_TOKENS_FILE", FILE).means(
    "Static tokens, JSON (docs/security.md). Read again when it changes; streams of a removed token end.",
  ),
  oidcIssuer: optional("OIDC_ISSUER", WEB_URL).means(
    "Accept JWTs of this issuer. Needs OIDC_AUDIENCE, and OIDC_JWKS_URL or OIDC_JWKS_FILE.",
  ),
  oidcAudience: optional("OIDC_AUDIENCE", TEXT).means(
    "The value that `aud` of a JWT must be, or contain.",
  ),
  oidcJwksUrl: optional("OIDC_JWKS_URL", WEB_URL).means("The URL of the issuer's keys."),
  oidcJwksFile: optional("OIDC_JWKS_FILE", FILE).means(
    "The issuer's keys as a file. Read again when it changes.",
  ),
  oidcAlgorithms: setting(
    "OIDC_ALGORITHMS",
    list("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"),
    "RS256,PS256,ES256,EdDSA",
  ).means("Accepted signature algorithms; never `none` or shared secrets."),
  oidcRolesClaim: setting("OIDC_ROLES_CLAIM", TEXT, "roles").means(
    "The claim with the roles: a list, or words in one text. A dot goes into an object.",
  ),
  oidcProjectClaim: setting("OIDC_PROJECT_CLAIM", TEXT, "project").means(
    "The claim with the project of the caller.",
  ),
  sessionTokenTtlMaxMs: setting("SESSION_TOKEN_TTL_MAX", duration("1m", "720h"), "24h").means(
    "Longest life of a session token.",
  ),
  redaction: setting("REDACTION", choice("off", "on"), "off").means(
    "on: provider keys, tokens and private keys in payloads are masked before anything is stored or sent.",
  ),
  redactionPatterns: optional(
    "REDACTION_PATTERNS",
    textOf("kind=prefix[characters]{least} pairs, separated by white space"),
  ).means("Further secrets, like `acme=acme_[A-Za-z0-9]{20}`."),
  redactionKeys: optional("REDACTION_KEYS", textOf("names, separated by commas")).means(
    "Members of JSON payloads whose values are masked, like `password`.",
  ),
  searchLanguage: setting("SEARCH_LANGUAGE", SCHEMA_NAME, "english").means(
    "A text search configuration of PostgreSQL, like german, or simple. After a change: session-ledger reindex. off: SearchTexts is FAILED_PRECONDITION, and new texts are not indexed.",
  ),
  retentionAfterMs: optional("RETENTION_AFTER", duration("1m", "87600h")).means(
    "Ended runs older than this are erased from the beginning of their sessions, once an hour. Not set: nothing is erased.",
  ),
  otlpEndpoint: optional("OTEL_EXPORTER_OTLP_ENDPOINT", WEB_URL).means(
    "The receiver of OpenTelemetry traces (OTLP over HTTP).",
  ),
  otelServiceName: setting("OTEL_SERVICE_NAME", TEXT, "session-ledger").means(
    "The name of the service in its traces.",
  ),
  otelSampleRatio: setting("OTEL_TRACES_SAMPLER_ARG", RATIO, "1").means(
    "Share of kept traces among those that begin here.",
  ),
  connectionsMax: setting("GRPC_CONNECTIONS_MAX", amount(1, 100_000), "4096").means(
    "Open gRPC connections. Above it new ones are closed.",
  ),
  receivedBytesMax: setting(
    "RECEIVED_BYTES_MAX",
    amount(8_388_608, 68_719_476_736),
    "268435456",
  ).means(
    "Memory for the bytes held for all callers; a held byte counts as 1.5. One caller may hold half of what the others leave; above it: SERVER_BUSY.",
  ),
  principalBytesPerSecondMax: setting("PRINCIPAL_BYTES_PER_SECOND", BYTES, "134217728").means(
    "Bytes pushed by one caller; 0: no limit. A push or a frame counts as its payload and 3,072 bytes. Above it: RESOURCE_EXHAUSTED (RATE_LIMITED); a push stream is read slower.",
  ),
  sessionBytesPerSecondMax: setting("SESSION_BYTES_PER_SECOND", BYTES, "67108864").means(
    "Bytes pushed into one session by all callers, counted and limited as those of a caller; 0: no limit.",
  ),
  sessionRowsMax: setting("SESSION_ROWS_MAX", amount(1, TERABYTE), "2000000").means(
    "Rows of one session, messages and events. Above it: FAILED_PRECONDITION (SESSION_FULL).",
  ),
  sessionBytesMax: setting("SESSION_BYTES_MAX", amount(1_024, 100 * TERABYTE), "4294967296").means(
    "Bytes of one session: payloads, senders, run ids, fragment indexes. Above it: FAILED_PRECONDITION (SESSION_FULL).",
  ),
  pendingMax: setting("PENDING_MAX", amount(1, 1_000_000_000), "1000").means(
    "Messages that wait for a turn in one session, after its first claim. Above it: RESOURCE_EXHAUSTED (TOO_MANY_PENDING).",
  ),
} as const;

/** The settings of commands that call a running service. */
export const CLIENT_SETTINGS = {
  address: setting("SESSION_LEDGER_ADDRESS", REMOTE_ADDRESS, "127.0.0.1:9000").means(
    "The service that the commands call; `--address` wins.",
  ),
  token: optional("SESSION_LEDGER_TOKEN", secretText("a token of printable ASCII")).means(
    "The bearer token.",
  ),
  tokenFile: optional("SESSION_LEDGER_TOKEN_FILE", FILE).means(
    "A file with the token, read before each call; `--token-file` wins.",
  ),
  tls: setting("SESSION_LEDGER_TLS", choice("off", "on"), "off").means(
    "on: TLS, with the authorities of the system or of SESSION_LEDGER_TLS_CA_FILE.",
  ),
  tlsCaFile: optional("SESSION_LEDGER_TLS_CA_FILE", FILE).means(
    "Authorities to trust, PEM. Turns TLS on; `--ca-file` wins.",
  ),
  tlsClientCertFile: optional("SESSION_LEDGER_TLS_CERT_FILE", FILE).means(
    "The client's own certificate (mTLS), PEM.",
  ),
  tlsClientKeyFile: optional("SESSION_LEDGER_TLS_KEY_FILE", FILE).means("Its private key, PEM."),
} as const;
