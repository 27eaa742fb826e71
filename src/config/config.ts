import type { Address } from "../base/address.ts";
import { addressText, isLoopback, type Setting } from "./setting.ts";
import { redactionProblems } from "../redaction/redactor.ts";
import { CLIENT_SETTINGS, RELATIONS, SERVICE_SETTINGS } from "./table.ts";

export { addressText };
export type { Address };

/** The port at which a client looks for a service with the default address. */
export const GRPC_PORT_USUAL = SERVICE_SETTINGS.grpcAddress.fallback?.split(":").at(-1) ?? "";

type Settings = Readonly<Record<string, Setting<unknown>>>;
type Values<S extends Settings> = {
  readonly [K in keyof S]: S[K] extends Setting<infer T> ? T : never;
};

/** The checked configuration. Limits have their unit at the end of their name. */
export type Config = Omit<Values<typeof SERVICE_SETTINGS>, "grpcReflection"> & {
  readonly grpcReflection: boolean;
};

/** The configuration of commands that call a running service. */
export type ClientConfig = Values<typeof CLIENT_SETTINGS>;

export type Environment = Readonly<Record<string, string | undefined>>;

export type Loaded<C> =
  | { readonly ok: true; readonly config: C; readonly warnings: readonly string[] }
  /** All problems, and not only the first: each names its variable and the expected value. */
  | {
      readonly ok: false;
      readonly problems: readonly string[];
      /** Misspelt names, which are a common cause of problems. */
      readonly warnings: readonly string[];
    };

export function loadConfig(environment: Environment = process.env): Loaded<Config> {
  const { values, problems, refused } = readAll(SERVICE_SETTINGS, environment);
  const all = [
    ...problems,
    ...exposureProblems(values),
    ...relationProblems(values, refused),
    ...wakeUpProblems(values, refused),
    ...doorProblems(values, refused),
    ...redactionProblems(values),
  ];
  const warnings = misspellings(environment);
  if (all.length > 0) return { ok: false, problems: all, warnings };
  const reflection = values.grpcReflection;
  const grpcReflection =
    reflection === "auto" ? isLoopback(values.grpcAddress) : reflection === "on";
  return { ok: true, config: { ...values, grpcReflection }, warnings };
}

export function loadClientConfig(environment: Environment = process.env): Loaded<ClientConfig> {
  const { values, problems } = readAll(CLIENT_SETTINGS, environment);
  return problems.length > 0
    ? { ok: false, problems, warnings: [] }
    : { ok: true, config: values, warnings: [] };
}

/**
 * The part of the configuration for the log: the database, and the settings that differ from their
 * defaults. No password.
 */
export function configForLog(config: Config): Readonly<Record<string, string | number | boolean>> {
  const { databaseUrl, listenDatabaseUrl, natsUrl, authTokens, ...rest } = config;
  const shown = differing(rest);
  return {
    databaseUrl: databaseUrl === undefined ? "embedded" : withoutSecrets(databaseUrl),
    ...(listenDatabaseUrl === undefined
      ? {}
      : { listenDatabaseUrl: withoutSecrets(listenDatabaseUrl) }),
    ...(natsUrl === undefined ? {} : { natsUrl: withoutSecrets(natsUrl) }),
    ...(authTokens === undefined ? {} : { authTokens: "set" }),
    ...Object.fromEntries(shown),
  };
}

function differing(values: Partial<Config>): readonly (readonly [string, Shown])[] {
  const defaults = loadConfig({});
  const usual = new Map(defaults.ok ? Object.entries(defaults.config) : []);
  return Object.entries(values).flatMap(([key, value]) => {
    if (value === undefined) return [];
    const shown = shownAs(value);
    const fallback = usual.get(key);
    return fallback !== undefined && shownAs(fallback) === shown ? [] : [[key, shown] as const];
  });
}

/** The variables that differ from their default: `LOG_LEVEL=debug`. No password. */
export function settingsThatDiffer(config: Config): readonly string[] {
  const { databaseUrl, ...shown } = configForLog(config);
  const named = Object.entries(SERVICE_SETTINGS).flatMap(([key, { name }]) =>
    shown[key] === undefined ? [] : [`${name}=${shown[key]}`],
  );
  return databaseUrl === "embedded" ? named : [`DATABASE_URL=${databaseUrl}`, ...named];
}

/** The requirements for callers. */
export function whoMayConnect(config: Config): string {
  if (asksForTokens(config)) return "callers with a token";
  const isLocal = isLoopback(config.grpcAddress) && isLoopback(config.httpAddress);
  return isLocal
    ? "everybody on this machine, without a token"
    : "everybody who reaches it, without a token";
}

type Shown = string | number | boolean;

function shownAs(value: Shown | Address | readonly string[]): Shown {
  if (typeof value !== "object") return value;
  return "host" in value ? addressText(value) : value.join(",");
}

/** The table for `--help`. */
export function configHelp(): string {
  return rows()
    .map(({ name, fallback, expected, meaning }) =>
      [`  ${name}  (${fallback})`, `      ${meaning}`, `      Expects ${expected}.`].join("\n"),
    )
    .join("\n");
}

/** The table for docs/operations.md; `--help` also says what each setting expects. */
export function configMarkdown(): string {
  const lines = rows().map(
    ({ name, fallback, meaning }) =>
      `| \`${name}\` | ${fallback === NOT_SET ? "" : `\`${fallback}\``} | ${meaning} |`,
  );
  return ["| variable | default | what it does |", "| --- | --- | --- |", ...lines].join("\n");
}

const NOT_SET = "not set";

function rows() {
  return settings().map(({ fallback = NOT_SET, ...rest }) => ({ fallback, ...rest }));
}

function settings(): readonly Setting<unknown>[] {
  return [...Object.values(SERVICE_SETTINGS), ...Object.values(CLIENT_SETTINGS)];
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
  for (const [key, setting] of Object.entries(table)) {
    const { name, fallback = "" } = setting;
    // An empty variable counts as unset: compose files and charts write it for "nothing".
    const text = environment[name] || fallback;
    const parsed = text === "" ? undefined : setting.parse(text);
    values[key] = (parsed ?? (fallback === "" ? undefined : setting.parse(fallback)))?.value;
    if (parsed !== undefined || text === "") continue;
    problems.push(problem(setting, text));
    refused.add(key);
  }
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- Made key by key from that table; a test parses every default.
  return { values: values as Values<S>, problems, refused };
}

function problem({ name, expected, secret }: Setting<unknown>, text: string): string {
  const got = secret ? "something else (not shown, it may hold a password)" : JSON.stringify(text);
  return `${name}: expected ${expected}; got ${got}`;
}

/**
 * Other machines may reach sessions only with TLS and with tokens, unless each requirement was
 * waived separately.
 */
function exposureProblems(values: Values<typeof SERVICE_SETTINGS>): readonly string[] {
  const missing = [
    servesTls(values) || values.allowInsecureTransport
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

type Doors = Pick<
  Values<typeof SERVICE_SETTINGS>,
  "tlsCertFile" | "tlsKeyFile" | "authTokens" | "authTokensFile" | "oidcIssuer"
>;

function servesTls({ tlsCertFile, tlsKeyFile }: Doors): boolean {
  return tlsCertFile !== undefined && tlsKeyFile !== undefined;
}

/** Without any configured token every caller is an admin. */
function asksForTokens({ authTokens, authTokensFile, oidcIssuer }: Doors): boolean {
  return authTokens !== undefined || authTokensFile !== undefined || oidcIssuer !== undefined;
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
type Key = keyof typeof SERVICE_SETTINGS;

function doorProblems(
  values: Values<typeof SERVICE_SETTINGS>,
  refused: ReadonlySet<Key>,
): readonly string[] {
  const isGiven = (key: Key): boolean => values[key] !== undefined || refused.has(key);
  const alone = NEEDS.filter(([key, others]) => isGiven(key) && !others.some(isGiven)).map(
    ([key, others]) => {
      const names = others.map((other) => SERVICE_SETTINGS[other].name).join(" or ");
      return `${names}: expected with ${SERVICE_SETTINGS[key].name}; it is not set`;
    },
  );
  const both = isGiven("oidcJwksUrl") && isGiven("oidcJwksFile");
  return both ? [...alone, "OIDC_JWKS_FILE: expected without OIDC_JWKS_URL; both are set"] : alone;
}

function relationProblems(
  values: Values<typeof SERVICE_SETTINGS>,
  refused: ReadonlySet<keyof typeof SERVICE_SETTINGS>,
): readonly string[] {
  return RELATIONS.filter(({ low, high }) => !refused.has(low) && !refused.has(high))
    .filter(({ low, high, times }) => values[low] * times > values[high])
    .map(({ low, high, times, why }) => {
      const bound = `${times === 1 ? "" : `${times} times `}${SERVICE_SETTINGS[low].name}`;
      return (
        `${SERVICE_SETTINGS[high].name}: expected at least ${bound} (${values[low] * times}), ` +
        `because ${why}; got ${values[high]}`
      );
    });
}

/** The settings that one choice of wake-ups needs, and the other does not use. */
function wakeUpProblems(
  { wakeUps, natsUrl }: Values<typeof SERVICE_SETTINGS>,
  refused: ReadonlySet<keyof typeof SERVICE_SETTINGS>,
): readonly string[] {
  if (wakeUps !== "nats" || natsUrl !== undefined || refused.has("natsUrl")) return [];
  const { name, expected } = SERVICE_SETTINGS.natsUrl;
  return [`${name}: expected ${expected}, because WAKE_UPS is nats; it is not set`];
}

/** A variable that differs from one of ours by one typing mistake was probably meant for us. */
function misspellings(environment: Environment): readonly string[] {
  const names = settings().map(({ name }) => name);
  return Object.keys(environment)
    .filter((given) => !names.includes(given))
    .flatMap((given) =>
      names.filter((name) => isOneSlipApart(given, name)).map((name) => [given, name]),
    )
    .map(([given, name]) => `${given} is no setting; did you mean ${name}?`);
}

/** One letter too many, too few or wrong, or two neighbours swapped. */
function isOneSlipApart(left: string, right: string): boolean {
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

function withoutSecrets(url: string): string {
  const { protocol, host, pathname } = new URL(url);
  return `${protocol}//${host}${pathname}`;
}
