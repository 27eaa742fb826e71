/** Reads the settings of the environment, checks them together, and shows them. */
import { BlockList, isIP } from "node:net";
import { availableParallelism } from "node:os";
import { type Address, addressText } from "@session-ledger/base/address";
import { protocolNames } from "@session-ledger/agui/normalise";
import { redactionProblems } from "@session-ledger/agui/redaction/redactor";
import type { Setting } from "./kinds.ts";
import { CLIENT_SETTINGS, SERVICE_SETTINGS } from "./table.ts";

/** The port at which a client looks for a service with the default address. */
export const GRPC_PORT_USUAL = SERVICE_SETTINGS.grpcAddress.fallback?.split(":").at(-1) ?? "";

type Settings = Readonly<Record<string, Setting<unknown>>>;
type Values<S extends Settings> = {
  readonly [K in keyof S]: S[K] extends Setting<infer T> ? T : never;
};
type Key = keyof typeof SERVICE_SETTINGS;
type ServiceValues = Values<typeof SERVICE_SETTINGS>;

/** The checked configuration. Limits have their unit at the end of their name. */
export type Config = Omit<ServiceValues, "grpcReflection" | "searchLanguage" | "workers"> &
  ReturnType<typeof derived> &
  ReturnType<typeof limitsOf>;

export type ClientConfig = Values<typeof CLIENT_SETTINGS>;

type Environment = Readonly<Record<string, string | undefined>>;

export type Loaded<C> =
  | { readonly ok: true; readonly config: C; readonly warnings: readonly string[] }
  | {
      readonly ok: false;
      /** All problems, and not only the first: each names its variable and the expected value. */
      readonly problems: readonly string[];
      /** Misspelt and removed names, which are a common cause of problems. */
      readonly warnings: readonly string[];
    };

export function loadConfig(
  environment: Environment = process.env,
  { platform }: { readonly platform: NodeJS.Platform } = process,
): Loaded<Config> {
  const { values, problems, refused } = readAll(SERVICE_SETTINGS, environment);
  const all = [
    ...problems,
    ...exposureProblems(values),
    ...relationProblems(values, refused),
    ...workerProblems(values, refused),
    ...missingProblems(values, refused),
    ...redactionProblems(values, protocolNames),
  ];
  const warnings = [...misspellings(environment), ...removals(environment)];
  if (all.length > 0) return { ok: false, problems: all, warnings };
  const config = { ...values, ...derived(values), ...limitsOf(values) };
  if (platform === "linux" || config.workers === 1) return { ok: true, config, warnings };
  const alone = `WORKERS has no effect on ${platform}, and one process serves: only Linux gives the connections of one port to several processes`;
  return { ok: true, config: { ...config, workers: 1 }, warnings: [...warnings, alone] };
}

export function loadClientConfig(environment: Environment = process.env): Loaded<ClientConfig> {
  const { values, problems } = readAll(CLIENT_SETTINGS, environment);
  return problems.length > 0
    ? { ok: false, problems, warnings: [] }
    : { ok: true, config: values, warnings: [] };
}

/** Values that follow from settings. */
function derived(values: ServiceValues) {
  const { grpcReflection: reflection, retentionAfterMs = 0 } = values;
  return {
    grpcReflection: reflection === "auto" ? isLoopback(values.grpcAddress) : reflection === "on",
    workers:
      values.workers === "auto"
        ? Math.max(1, Math.min(availableParallelism(), ...workersMaxBy(values).values()))
        : values.workers,
    searchLanguage: values.searchLanguage === "off" ? undefined : values.searchLanguage,
    lockTimeoutMs: Math.floor(values.statementTimeoutMs / 10),
    // Rows stay for at most 1 % longer than RETENTION_AFTER, or an hour.
    retentionIntervalMs: Math.min(Math.max(retentionAfterMs / 100, 1_000), 3_600_000),
  } as const;
}

/** Limits that follow from other limits. Each share is the ratio of two former defaults. */
function limitsOf(values: Pick<ServiceValues, "queueBytesMax" | "watchersMax">) {
  const queueRowsMax = Math.floor(values.queueBytesMax / 4_096);
  return {
    queueRowsMax,
    batchRowsMax: Math.max(1, Math.floor(queueRowsMax / 32)),
    batchBytesMax: Math.floor(values.queueBytesMax / 8),
    pushStreamBytesMax: Math.floor(values.queueBytesMax / 64),
    watchersPerSessionMax: Math.max(1, Math.floor(values.watchersMax / 8)),
  } as const;
}

/** Of the parent of several workers, for retention and the index of search. */
export const PARENT_CONNECTIONS = 4;
const WORKER_CONNECTIONS_MIN = 3;

/** Limits that each process counts for itself. 0 stays 0: no limit. */
const DIVIDED = [
  "queueBytesMax",
  "pushStreamsMax",
  "watchersMax",
  "connectionsMax",
  "receivedBytesMax",
  "transcriptsBytesMax",
  "principalBytesPerSecondMax",
  "sessionBytesPerSecondMax",
] as const satisfies readonly Limit[];

/** What one worker may use, so that the limits of the instance hold for all of them together. */
export function shareOf(config: Config): Config {
  const { workers, databaseConnections } = config;
  const limits = Object.fromEntries(
    DIVIDED.map((key) => [
      key,
      config[key] === 0 ? 0 : Math.max(1, Math.floor(config[key] / workers)),
    ]),
  );
  const connections = Math.floor((databaseConnections - PARENT_CONNECTIONS) / workers);
  const share = { ...config, ...limits, databaseConnections: connections };
  return { ...share, ...limitsOf(share) };
}

/** The most workers that each limit allows. */
function workersMaxBy(values: ServiceValues): ReadonlyMap<Limit, number> {
  const { databaseConnections } = values;
  const byConnections = (databaseConnections - PARENT_CONNECTIONS) / WORKER_CONNECTIONS_MIN;
  const most = new Map<Limit, number>([["databaseConnections", Math.floor(byConnections)]]);
  for (const { low, high } of RELATIONS) {
    const bound = Math.floor(values[high] / (values[low] * 2));
    most.set(high, Math.min(bound, most.get(high) ?? Infinity));
  }
  return most;
}

function workerProblems(values: ServiceValues, refused: ReadonlySet<Key>): readonly string[] {
  const { workers } = values;
  if (workers === "auto" || workers === 1) return [];
  return [...workersMaxBy(values)]
    .filter(([limit, most]) => most < workers && !refused.has(limit))
    .map(
      ([limit, most]) =>
        `WORKERS: expected at most ${Math.max(1, most)}, because each worker gets its part of ` +
        `${SERVICE_SETTINGS[limit].name} (${values[limit]}); got ${workers}`,
    );
}

/** The values are complete even with problems: an invalid value is replaced by its default. */
function readAll<S extends Settings>(
  table: S,
  environment: Environment,
): {
  readonly values: Values<S>;
  readonly problems: readonly string[];
  readonly refused: ReadonlySet<keyof S>;
} {
  const problems: string[] = [];
  const values: Record<string, unknown> = {};
  const refused = new Set<keyof S>();
  for (const [key, { name, fallback = "", expected, parse, publicPart }] of Object.entries(table)) {
    // An empty variable counts as unset: compose files and charts write it for "nothing".
    const text = environment[name] || fallback;
    values[key] = text === "" ? undefined : parse(text);
    if (text === "" || values[key] !== undefined) continue;
    refused.add(key);
    if (fallback !== "") values[key] = parse(fallback);
    const got =
      publicPart === undefined
        ? JSON.stringify(text)
        : "something else (not shown, it may hold a password)";
    problems.push(`${name}: expected ${expected}; got ${got}`);
  }
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- Made key by key from that table; a test parses every default.
  return { values: values as Values<S>, problems, refused };
}

/** Other machines may reach sessions only with TLS and tokens; each can be waived. */
function exposureProblems(values: ServiceValues): readonly string[] {
  const servesTls = values.tlsCertFile !== undefined && values.tlsKeyFile !== undefined;
  const missing = [
    servesTls || values.allowInsecureTransport
      ? undefined
      : "TLS (TLS_CERT_FILE, TLS_KEY_FILE) or ALLOW_INSECURE_TRANSPORT=true",
    asksForTokens(values) || values.allowAnonymous
      ? undefined
      : "tokens (AUTH_TOKENS_FILE, OIDC_ISSUER) or ALLOW_ANONYMOUS=true",
  ].filter((one) => one !== undefined);
  if (missing.length === 0) return [];
  return (["grpcAddress", "httpAddress"] as const)
    .filter((key) => !isLoopback(values[key]))
    .map(
      (key) =>
        `${SERVICE_SETTINGS[key].name}: expected a loopback address, or ${missing.join(", and ")}, ` +
        `to serve other machines; got ${JSON.stringify(addressText(values[key]))}`,
    );
}

/** Without any configured token every caller is an admin. */
export function asksForTokens({
  authTokens,
  authTokensFile,
  oidcIssuer,
}: Pick<ServiceValues, "authTokens" | "authTokensFile" | "oidcIssuer">): boolean {
  return authTokens !== undefined || authTokensFile !== undefined || oidcIssuer !== undefined;
}

type Limit = {
  [K in Key]: ServiceValues[K] extends number ? K : never;
}[Key];

/** Limits that depend on each other: two times the first must not be above the second. */
export const RELATIONS: readonly {
  readonly low: Limit;
  readonly high: Limit;
  readonly why: string;
}[] = [
  {
    low: "payloadBytesMax",
    high: "queueBytesMax",
    why: "one row is in flight while the next one waits",
  },
  {
    low: "payloadBytesMax",
    high: "receivedBytesMax",
    why: "one large request must not be all that is received",
  },
  {
    low: "requestBytesMax",
    high: "receivedBytesMax",
    why: "one large request must not be all that is received",
  },
];

function relationProblems(values: ServiceValues, refused: ReadonlySet<Key>): readonly string[] {
  return RELATIONS.filter(({ low, high }) => !refused.has(low) && !refused.has(high))
    .filter(({ low, high }) => values[low] * 2 > values[high])
    .map(
      ({ low, high, why }) =>
        `${SERVICE_SETTINGS[high].name}: expected at least 2 times ${SERVICE_SETTINGS[low].name} ` +
        `(${values[low] * 2}), because ${why}; got ${values[high]}`,
    );
}

/** Settings that have no effect alone. */
const NEEDS: readonly (readonly [Key, readonly Key[]])[] = [
  ["tlsCertFile", ["tlsKeyFile"]],
  ["tlsKeyFile", ["tlsCertFile"]],
  ["tlsClientCaFile", ["tlsCertFile"]],
  ["oidcIssuer", ["oidcAudience"]],
  ["oidcIssuer", ["oidcJwksUrl", "oidcJwksFile"]],
  ["oidcAudience", ["oidcIssuer"]],
  ["oidcJwksUrl", ["oidcIssuer"]],
  ["oidcJwksFile", ["oidcIssuer"]],
];

function missingProblems(values: ServiceValues, refused: ReadonlySet<Key>): readonly string[] {
  const isGiven = (key: Key): boolean => values[key] !== undefined || refused.has(key);
  const problems = NEEDS.filter(([key, others]) => isGiven(key) && !others.some(isGiven)).map(
    ([key, others]) => {
      const names = others.map((other) => SERVICE_SETTINGS[other].name).join(" or ");
      return `${names}: expected with ${SERVICE_SETTINGS[key].name}; it is not set`;
    },
  );
  if (isGiven("oidcJwksUrl") && isGiven("oidcJwksFile"))
    problems.push("OIDC_JWKS_FILE: expected without OIDC_JWKS_URL; both are set");
  return problems;
}

/** A variable that differs from one of ours by one typing mistake was probably meant for us. */
function misspellings(environment: Environment): readonly string[] {
  const names = settings().map(({ name }) => name);
  return Object.keys(environment)
    .filter((given) => !names.includes(given))
    .flatMap((given) =>
      names
        .filter((name) => isOneSlipApart(given, name))
        .map((name) => `${given} is no setting; did you mean ${name}?`),
    );
}

/** One letter too many, too few or wrong, or two neighbours swapped. */
function isOneSlipApart(left: string, right: string): boolean {
  if (Math.abs(left.length - right.length) > 1) return false;
  let start = 0;
  while (start < left.length && left[start] === right[start]) start += 1;
  let end = 0;
  while (
    left.at(-1 - end) === right.at(-1 - end) &&
    end < Math.min(left.length, right.length) - start
  ) {
    end += 1;
  }
  const [a, b] = [left.slice(start, left.length - end), right.slice(start, right.length - end)];
  return (
    (a.length <= 1 && b.length <= 1) || (a.length === 2 && a === `${b.charAt(1)}${b.charAt(0)}`)
  );
}

/** Settings of earlier versions, and the values that replace them. */
export const REMOVED_SETTINGS: Readonly<Record<string, string>> = {
  QUEUE_ROWS_MAX: "a 4,096th of QUEUE_BYTES_MAX",
  BATCH_ROWS_MAX: "a 131,072nd of QUEUE_BYTES_MAX",
  BATCH_BYTES_MAX: "an eighth of QUEUE_BYTES_MAX",
  PUSH_STREAM_BYTES_MAX: "a 64th of QUEUE_BYTES_MAX",
  LOCK_TIMEOUT_MS: "a tenth of STATEMENT_TIMEOUT_MS, or lock_timeout in DATABASE_URL",
  WINDOW_ROWS_MAX: "512",
  WINDOW_BYTES_MAX: "1048576",
  CALLS_PER_CONNECTION_MAX: "1000",
  SESSION_TOKEN_ROTATE_AFTER: "24h, or SESSION_TOKEN_TTL_MAX and 3 minutes",
  WAKE_UPS: "NOTIFY; LISTEN_DATABASE_URL=off takes the place of poll",
  PRINCIPAL_MESSAGES_PER_SECOND: "a 3,072nd of PRINCIPAL_BYTES_PER_SECOND",
  SESSION_MESSAGES_PER_SECOND: "a 3,072nd of SESSION_BYTES_PER_SECOND",
  SEARCH: "on; SEARCH_LANGUAGE=off takes the place of off",
  WATCHERS_PER_SESSION_MAX: "an eighth of WATCHERS_MAX",
  RETENTION_INTERVAL: "a hundredth of RETENTION_AFTER, at most an hour",
};

function removals(environment: Environment): readonly string[] {
  return Object.entries(REMOVED_SETTINGS)
    .filter(([name]) => environment[name])
    .map(([name, value]) => `${name} is no setting any more and has no effect; it is ${value}`);
}

/** The database and the settings that differ from their defaults, for the log. No password. */
export function configForLog(config: Config): Readonly<Record<string, Shown>> {
  const defaults = loadConfig({});
  const entries = Object.entries(SERVICE_SETTINGS).flatMap(([name, { publicPart }]) => {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- The table has these keys.
    const key = name as Key;
    const value = shownAs(config[key]);
    if (value === undefined || (defaults.ok && shownAs(defaults.config[key]) === value)) return [];
    return [[key, publicPart === undefined ? value : publicPart(String(value))] as const];
  });
  return { databaseUrl: "embedded", ...Object.fromEntries(entries) };
}

type Shown = string | number | boolean;

function shownAs(value: Config[Key]): Shown | undefined {
  if (typeof value !== "object") return value;
  if (Array.isArray(value)) return value.join(",");
  return isAddress(value) ? addressText(value) : JSON.stringify(value);
}

function isAddress(value: object): value is Address {
  return "host" in value && "port" in value;
}

/** The variables that differ from their default: `LOG_LEVEL=debug`. No password. */
export function settingsThatDiffer(config: Config): readonly string[] {
  const shown = configForLog(config);
  return Object.entries(SERVICE_SETTINGS).flatMap(([key, { name }]) =>
    shown[key] === undefined || shown[key] === "embedded" ? [] : [`${name}=${shown[key]}`],
  );
}

export function whoMayConnect(config: Config): string {
  if (asksForTokens(config)) return "callers with a token";
  const isLocal = isLoopback(config.grpcAddress) && isLoopback(config.httpAddress);
  return isLocal
    ? "everybody on this machine, without a token"
    : "everybody who reaches it, without a token";
}

export function configHelp(): string {
  return settings()
    .map(({ name, fallback = "not set", expected, meaning }) =>
      [`  ${name}  (${fallback})`, `      ${meaning}`, `      Expects ${expected}.`].join("\n"),
    )
    .join("\n");
}

function settings(): readonly Setting<unknown>[] {
  return [...Object.values(SERVICE_SETTINGS), ...Object.values(CLIENT_SETTINGS)];
}

/** True when no other machine can reach it, in any network. */
export function isLoopback({ host }: Address): boolean {
  const family = isIP(host);
  // The address of a name can change, so none is resolved. RFC 6761 6.3 defines `localhost`.
  if (family === 0) return host.toLowerCase() === "localhost";
  return LOOPBACK.check(host, family === 4 ? "ipv4" : "ipv6");
}

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet("127.0.0.0", 8, "ipv4");
LOOPBACK.addAddress("::1", "ipv6");
