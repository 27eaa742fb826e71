import {
  amount,
  choice,
  duration,
  file,
  list,
  optional,
  ratio,
  secretText,
  anyText,
  webUrl,
} from "./setting.ts";

/**
 * The settings of access and retention: TLS, tokens, limits of callers, redaction, retention and
 * traces. Part of the table in table.ts.
 */
export const DOOR_SETTINGS = {
  tlsCertFile: optional(
    file({
      name: "TLS_CERT_FILE",
      meaning:
        "Certificate and intermediates for gRPC and HTTP, PEM. With TLS_KEY_FILE both are served with TLS. Read again when it changes; connections stay.",
    }),
  ),
  tlsKeyFile: optional(
    file({ name: "TLS_KEY_FILE", meaning: "Private key of TLS_CERT_FILE, PEM, without password." }),
  ),
  tlsClientCaFile: optional(
    file({
      name: "TLS_CLIENT_CA_FILE",
      meaning:
        "Authorities whose certificates clients must show (mTLS), PEM. It lets connections in; what a caller may do is still its token's to say.",
    }),
  ),
  authTokens: optional(
    secretText({
      name: "AUTH_TOKENS",
      expected:
        'JSON like {"tokens":[{"id":"…","token":"…","roles":["runner"],"project":"…"}]}, as in AUTH_TOKENS_FILE',
      meaning: "Static tokens, as the file has them.",
    }),
  ),
  authTokensFile: optional(
    file({
      name: "AUTH_TOKENS_FILE",
      meaning:
        "Static tokens, JSON. Read again when it changes; streams of a token that is gone end. docs/security.md has the form.",
    }),
  ),
  oidcIssuer: optional(
    webUrl({
      name: "OIDC_ISSUER",
      meaning: "Accept JWTs of this issuer (`iss`). Needs OIDC_AUDIENCE, and where the keys are.",
    }),
  ),
  oidcAudience: optional(
    anyText({ name: "OIDC_AUDIENCE", meaning: "What `aud` of a JWT must be, or contain." }),
  ),
  oidcJwksUrl: optional(
    webUrl({ name: "OIDC_JWKS_URL", meaning: "Where the issuer publishes its keys." }),
  ),
  oidcJwksFile: optional(
    file({
      name: "OIDC_JWKS_FILE",
      meaning:
        "The issuer's keys as a file, in place of OIDC_JWKS_URL. Read again when it changes.",
    }),
  ),
  oidcAlgorithms: list({
    name: "OIDC_ALGORITHMS",
    fallback: "RS256,PS256,ES256,EdDSA",
    among: [
      "RS256",
      "RS384",
      "RS512",
      "PS256",
      "PS384",
      "PS512",
      "ES256",
      "ES384",
      "ES512",
      "EdDSA",
    ],
    meaning: "Signature algorithms that are accepted. `none` and shared secrets never are.",
  }),
  oidcRolesClaim: anyText({
    name: "OIDC_ROLES_CLAIM",
    fallback: "roles",
    meaning: "The claim with the roles: a list, or words in one text. A dot goes into an object.",
  }),
  oidcProjectClaim: anyText({
    name: "OIDC_PROJECT_CLAIM",
    fallback: "project",
    meaning: "The claim that names the one project whose sessions the caller sees.",
  }),
  sessionTokenTtlMaxMs: duration({
    name: "SESSION_TOKEN_TTL_MAX",
    fallback: "24h",
    minMs: 60_000,
    maxMs: 720 * 3_600_000,
    meaning: "Longest life of a session token that the service issues.",
  }),
  sessionTokenRotateAfterMs: duration({
    name: "SESSION_TOKEN_ROTATE_AFTER",
    fallback: "24h",
    minMs: 60_000,
    maxMs: 8_760 * 3_600_000,
    meaning: "How long a key signs session tokens before a new one does.",
  }),
  redaction: choice({
    name: "REDACTION",
    fallback: "off",
    among: ["off", "on"],
    meaning:
      "on: provider keys, tokens and private keys in payloads are masked before anything is stored or sent.",
  }),
  redactionPatterns: optional(
    anyText({
      name: "REDACTION_PATTERNS",
      expected: "kind=prefix[characters]{least} pairs, separated by white space",
      meaning: "Further secrets to mask, like `acme=acme_[A-Za-z0-9]{20}`.",
    }),
  ),
  redactionKeys: optional(
    anyText({
      name: "REDACTION_KEYS",
      expected: "names, separated by commas",
      meaning:
        "Members of JSON payloads, at any depth, whose values are not kept, like `password`.",
    }),
  ),
  retentionAfterMs: optional(
    duration({
      name: "RETENTION_AFTER",
      minMs: 60_000,
      maxMs: 87_600 * 3_600_000,
      meaning:
        "Ended runs older than this are erased from the beginning of their sessions. Not set: nothing is erased.",
    }),
  ),
  retentionIntervalMs: duration({
    name: "RETENTION_INTERVAL",
    fallback: "1h",
    minMs: 1_000,
    maxMs: 720 * 3_600_000,
    meaning: "How often the service looks for what RETENTION_AFTER lets go.",
  }),
  otlpEndpoint: optional(
    webUrl({
      name: "OTEL_EXPORTER_OTLP_ENDPOINT",
      meaning: "Where OpenTelemetry traces are sent (OTLP over HTTP). Not set: none are made.",
    }),
  ),
  otelServiceName: anyText({
    name: "OTEL_SERVICE_NAME",
    fallback: "session-ledger",
    meaning: "The name of the service in its traces.",
  }),
  otelSampleRatio: ratio({
    name: "OTEL_TRACES_SAMPLER_ARG",
    fallback: "1",
    meaning: "Share of the traces that begin here that are kept; a caller's choice is followed.",
  }),
  connectionsMax: amount({
    name: "GRPC_CONNECTIONS_MAX",
    fallback: 4_096,
    min: 1,
    max: 100_000,
    meaning: "gRPC connections at a time. Above it new ones are closed at once.",
  }),
  callsPerConnectionMax: amount({
    name: "CALLS_PER_CONNECTION_MAX",
    fallback: 1_000,
    min: 1,
    max: 100_000,
    meaning: "Calls of one gRPC connection at a time, streams too; HTTP/2 makes more of them wait.",
  }),
  receivedBytesMax: amount({
    name: "RECEIVED_BYTES_MAX",
    fallback: 268_435_456,
    min: 8_388_608,
    max: 68_719_476_736,
    meaning:
      "Memory for the bytes that are held for all callers: requests that are not answered, answers that are not read. A held byte counts as 1.5. Above it the caller that holds the most gives way (SERVER_BUSY).",
  }),
  principalMessagesPerSecondMax: amount({
    name: "PRINCIPAL_MESSAGES_PER_SECOND",
    fallback: 50_000,
    min: 0,
    max: 100_000_000,
    meaning:
      "Pushes, and frames of push streams, of one caller; 0: any. Above it: RESOURCE_EXHAUSTED (RATE_LIMITED); a push stream is read slower.",
  }),
  principalBytesPerSecondMax: amount({
    name: "PRINCIPAL_BYTES_PER_SECOND",
    fallback: 134_217_728,
    min: 0,
    max: 1_000_000_000_000,
    meaning: "Payload bytes pushed by one caller; 0: any. Above it as with messages.",
  }),
  sessionMessagesPerSecondMax: amount({
    name: "SESSION_MESSAGES_PER_SECOND",
    fallback: 20_000,
    min: 0,
    max: 100_000_000,
    meaning: "Pushes, and frames of push streams, into one session; 0: any. Above it as above.",
  }),
  sessionBytesPerSecondMax: amount({
    name: "SESSION_BYTES_PER_SECOND",
    fallback: 67_108_864,
    min: 0,
    max: 1_000_000_000_000,
    meaning: "Payload bytes pushed into one session; 0: any. Above it as above.",
  }),
  sessionRowsMax: amount({
    name: "SESSION_ROWS_MAX",
    fallback: 2_000_000,
    min: 1,
    max: 1_000_000_000_000,
    meaning:
      "Rows that one session holds, of messages and events. Above it: FAILED_PRECONDITION (SESSION_FULL).",
  }),
  sessionBytesMax: amount({
    name: "SESSION_BYTES_MAX",
    fallback: 4_294_967_296,
    min: 1_024,
    max: 100_000_000_000_000,
    meaning:
      "Bytes that one session holds: payloads, senders, run ids, fragment indexes. Above it: FAILED_PRECONDITION (SESSION_FULL).",
  }),
} as const;

/** The settings by which a command identifies itself, and the authorities it trusts. */
export const CLIENT_DOOR_SETTINGS = {
  token: optional(
    secretText({
      name: "SESSION_LEDGER_TOKEN",
      expected: "a token of printable ASCII",
      meaning: "The bearer token that is sent with each call.",
    }),
  ),
  tokenFile: optional(
    file({
      name: "SESSION_LEDGER_TOKEN_FILE",
      meaning: "A file with the token, read before each call: for tokens that are renewed.",
    }),
  ),
  tls: choice({
    name: "SESSION_LEDGER_TLS",
    fallback: "off",
    among: ["off", "on"],
    meaning: "on: TLS, with the authorities of the system or those of SESSION_LEDGER_TLS_CA_FILE.",
  }),
  tlsCaFile: optional(
    file({
      name: "SESSION_LEDGER_TLS_CA_FILE",
      meaning: "Authorities to trust, PEM. Turns TLS on.",
    }),
  ),
  tlsClientCertFile: optional(
    file({
      name: "SESSION_LEDGER_TLS_CERT_FILE",
      meaning: "The client's own certificate (mTLS), PEM. Needs SESSION_LEDGER_TLS_KEY_FILE.",
    }),
  ),
  tlsClientKeyFile: optional(
    file({ name: "SESSION_LEDGER_TLS_KEY_FILE", meaning: "Its private key, PEM." }),
  ),
} as const;
