import { availableParallelism } from "node:os";
import { describe, expect, test } from "vitest";
import {
  configForLog,
  loadClientConfig,
  loadConfig,
  PARENT_CONNECTIONS,
  RELATIONS,
  shareOf,
} from "../../src/config/config.ts";
import { CLIENT_SETTINGS, SERVICE_SETTINGS } from "../../src/config/table.ts";

type Environment = NonNullable<Parameters<typeof loadConfig>[0]>;

function valuesOf(environment: Environment) {
  const loaded = loadConfig(environment, { platform: "linux" });
  if (!loaded.ok) throw new Error(loaded.problems.join("\n"));
  return loaded.config;
}

function problemsOf(environment: Environment): readonly string[] {
  const loaded = loadConfig(environment);
  return loaded.ok ? [] : loaded.problems;
}

interface Examples {
  readonly good: readonly (readonly [string, unknown])[];
  readonly bad: readonly string[];
  /** Other variables that must be set with it. */
  readonly beside?: Environment;
}

/** The settings that are one of some words. GRPC_REFLECTION makes something else of them. */
const WORDS = Object.values(SERVICE_SETTINGS).flatMap(({ name, expected }) => {
  const words = /^one of (.+)$/.exec(expected)?.[1]?.split(", ") ?? [];
  const bad = ["true", "none", ...words.map((word) => word.toUpperCase())];
  const good = words.map((word) => [word, word]);
  return words.length === 0 ? [] : [[name, { good, bad }]];
});

/** Good and bad values of each variable; `amount` variables are tested at their borders below. */
const SEVERAL_HOSTS = "postgres://a:b@one:5432,two:5433/ledger?target_session_attrs=primary";

const EXAMPLES: Readonly<Record<string, Examples>> = {
  ...Object.fromEntries(WORDS),
  GRPC_ADDRESS: {
    good: [
      ["127.0.0.1:0", { host: "127.0.0.1", port: 0 }],
      ["127.9.9.9:65535", { host: "127.9.9.9", port: 65_535 }],
      ["[::1]:9000", { host: "::1", port: 9_000 }],
      ["[::ffff:127.0.0.1]:9000", { host: "::ffff:127.0.0.1", port: 9_000 }],
      ["LocalHost:9000", { host: "LocalHost", port: 9_000 }],
    ],
    bad: ["9000", ":9000", "127.0.0.1", "::1:9000", "[::1]", "[127.0.0.1]:1", "127.0.0.1:65536"],
  },
  HTTP_ADDRESS: {
    good: [["127.0.0.1:8001", { host: "127.0.0.1", port: 8_001 }]],
    bad: ["127.0.0.1:", "256.0.0.1:80", "http://127.0.0.1:80", "local host:80", "-a:80"],
  },
  MODEL_PRICES: {
    good: [
      [
        "small=0.5/2, eu.model=v1:0=3/15",
        { small: { input: 0.5, output: 2 }, "eu.model=v1:0": { input: 3, output: 15 } },
      ],
    ],
    bad: ["small", "small=1", "small=1/", "small=-1/2", "=1/2,x"],
  },
  HTTP_ORIGINS: {
    good: [
      ["https://chat.example", ["https://chat.example"]],
      [
        "http://localhost:3000, https://chat.example:8443,http://[::1]:5173",
        ["http://localhost:3000", "https://chat.example:8443", "http://[::1]:5173"],
      ],
    ],
    bad: [
      "*",
      "https://chat.example,*",
      "https://*.example",
      "null",
      "chat.example",
      "https://chat.example/",
      "https://chat.example/app",
      "https://Chat.example",
      "https://chat.example:443",
      "https://user@chat.example",
      "https://chat.example,,",
      "file://",
      "ftp://chat.example",
    ],
  },
  OPS_ADDRESS: {
    good: [
      ["0.0.0.0:8083", { host: "0.0.0.0", port: 8_083 }],
      ["[::]:8083", { host: "::", port: 8_083 }],
      ["ops.internal:8083", { host: "ops.internal", port: 8_083 }],
    ],
    bad: ["0.0.0.0", "1.2.3:80", "ops_internal:80"],
  },
  ALLOW_INSECURE_TRANSPORT: {
    good: [
      ["true", true],
      ["1", true],
      ["yes", true],
      ["false", false],
      ["0", false],
      ["no", false],
    ],
    bad: ["YES", "TRUE", "2"],
  },
  ALLOW_ANONYMOUS: { good: [["true", true]], bad: ["on"] },
  ALLOW_LOSS: { good: [["yes", true]], bad: ["on"] },
  DATABASE_URL: {
    good: [
      ["postgres://a:b@db:5432/ledger", "postgres://a:b@db:5432/ledger"],
      ["postgresql:///ledger", "postgresql:///ledger"],
      [SEVERAL_HOSTS, SEVERAL_HOSTS],
    ],
    bad: [
      "mysql://db/ledger",
      "db:5432",
      "ledger",
      "postgres://a:b@one:5432,two:5433/ledger",
      "postgres://a:b@one:5432,two:5433/ledger?target_session_attrs=standby",
      "postgres://a:b@one:5432,two:port/ledger?target_session_attrs=primary",
    ],
  },
  DATABASE_SCHEMA: {
    good: [["session_ledger", "session_ledger"]],
    bad: ["Ledger", "pg_ledger", "1st", "a;b", "a-b", "x".repeat(49)],
  },
  DATA_DIR: { good: [["/var/lib/ledger", "/var/lib/ledger"]], bad: [] },
  LISTEN_DATABASE_URL: {
    good: [
      ["postgres://a:b@direct:5432/ledger", "postgres://a:b@direct:5432/ledger"],
      ["off", "off"],
    ],
    bad: ["direct:5432", "OFF", "none"],
  },
  RUN_STALE_AFTER: {
    good: [
      ["1000ms", 1_000],
      ["90s", 90_000],
      ["10m", 600_000],
      ["720h", 2_592_000_000],
      ["1d", 86_400_000],
    ],
    bad: ["10", "999ms", "0.5h", "721h", "10 m", "31d", "1w"],
  },
  RUN_WAIT: {
    good: [
      ["100ms", 100],
      ["24h", 86_400_000],
    ],
    bad: ["30", "99ms", "25h"],
  },
  CANCEL_GRACE: {
    good: [
      ["100ms", 100],
      ["24h", 86_400_000],
    ],
    bad: ["30", "99ms", "25h"],
  },
  GRPC_REFLECTION: {
    good: [
      ["on", true],
      ["off", false],
      ["auto", true],
    ],
    bad: ["true"],
  },
  TLS_CERT_FILE: { good: [["a.pem", "a.pem"]], bad: [], beside: { TLS_KEY_FILE: "k.pem" } },
  TLS_KEY_FILE: { good: [["a.pem", "a.pem"]], bad: [], beside: { TLS_CERT_FILE: "c.pem" } },
  TLS_CLIENT_CA_FILE: {
    good: [["a.pem", "a.pem"]],
    bad: [],
    beside: { TLS_CERT_FILE: "c.pem", TLS_KEY_FILE: "k.pem" },
  },
  AUTH_TOKENS: { good: [["{}", "{}"]], bad: [] },
  AUTH_TOKENS_FILE: { good: [["tokens.json", "tokens.json"]], bad: [] },
  OIDC_ISSUER: {
    good: [["https://id.example/realm", "https://id.example/realm"]],
    bad: ["id.example", "ftp://id.example", "https://me:word@id.example"],
    beside: { OIDC_AUDIENCE: "a", OIDC_JWKS_FILE: "keys.json" },
  },
  OIDC_AUDIENCE: {
    good: [["ledger", "ledger"]],
    bad: [],
    beside: { OIDC_ISSUER: "https://id.example", OIDC_JWKS_FILE: "keys.json" },
  },
  OIDC_JWKS_URL: {
    good: [["https://id.example/keys", "https://id.example/keys"]],
    bad: ["keys"],
    beside: { OIDC_ISSUER: "https://id.example", OIDC_AUDIENCE: "a" },
  },
  OIDC_JWKS_FILE: {
    good: [["keys.json", "keys.json"]],
    bad: [],
    beside: { OIDC_ISSUER: "https://id.example", OIDC_AUDIENCE: "a" },
  },
  OIDC_ALGORITHMS: {
    good: [["RS256, EdDSA", ["RS256", "EdDSA"]]],
    bad: ["none", "HS256", "RS256,HS256", "RS256,"],
  },
  OIDC_ROLES_CLAIM: { good: [["realm.roles", "realm.roles"]], bad: [] },
  OIDC_PROJECT_CLAIM: { good: [["team", "team"]], bad: [] },
  WORKERS: {
    good: [
      ["1", 1],
      ["4", 4],
      ["auto", Math.min(4, availableParallelism())],
    ],
    bad: ["0", "65", "1.5", "all", "AUTO"],
  },
  SESSION_TOKEN_TTL_MAX: { good: [["60s", 60_000]], bad: ["59s", "721h"] },
  REDACTION_PATTERNS: {
    good: [["acme=acme_[a-z]{8}", "acme=acme_[a-z]{8}"]],
    bad: [], // redaction-settings.test.ts has the bad values.
    beside: { REDACTION: "on" },
  },
  REDACTION_KEYS: {
    good: [["password,pin", "password,pin"]],
    bad: [],
    beside: { REDACTION: "on" },
  },
  SEARCH_LANGUAGE: {
    good: [
      ["german", "german"],
      ["off", undefined],
    ],
    bad: ["ger man", "a;b"],
  },
  RETENTION_AFTER: {
    good: [
      ["720h", 2_592_000_000],
      ["30d", 2_592_000_000],
    ],
    bad: ["59s", "30w", "87601h", "3651d"],
  },
  OTEL_EXPORTER_OTLP_ENDPOINT: {
    good: [["http://collector:4318", "http://collector:4318"]],
    bad: ["collector:4318"],
  },
  OTEL_SERVICE_NAME: { good: [["ledger", "ledger"]], bad: [] },
  OTEL_TRACES_SAMPLER_ARG: {
    good: [
      ["0", 0],
      ["0.25", 0.25],
      ["1", 1],
    ],
    bad: ["1.5", "-1", "half"],
  },
};

const LIMITS = Object.entries(SERVICE_SETTINGS).flatMap(([key, { name, expected }]) => {
  const [, min, max] = /^a whole number from (\d+) to (\d+)$/.exec(expected) ?? [];
  return min === undefined || max === undefined ? [] : [{ key, name, min, max }];
});

test("every setting has a test", () => {
  const tested = [...Object.keys(EXAMPLES), ...LIMITS.map(({ name }) => name)];
  const settings = Object.values(SERVICE_SETTINGS).map(({ name }) => name);
  expect(tested.toSorted()).toEqual(settings.toSorted());
});

test("the defaults allow only this machine and use an own database", () => {
  expect(valuesOf({})).toMatchObject({
    grpcAddress: { host: "127.0.0.1", port: 9_000 },
    httpAddress: { host: "127.0.0.1", port: 8_000 },
    opsAddress: { host: "127.0.0.1", port: 8_083 },
    allowInsecureTransport: false,
    allowAnonymous: false,
    databaseUrl: undefined,
    dataDir: ".data",
    sessionPolicy: "auto",
    integrity: "off",
    validation: "strict",
    grpcReflection: true,
    logLevel: "info",
  });
});

test("every default is a valid value of its setting", () => {
  const settings = [...Object.values(SERVICE_SETTINGS), ...Object.values(CLIENT_SETTINGS)];
  const broken = settings.filter(
    ({ fallback, parse }) => fallback !== undefined && parse(fallback) === undefined,
  );
  expect(broken).toEqual([]);
});

describe.each(Object.entries(SERVICE_SETTINGS).filter(([, { name }]) => name in EXAMPLES))(
  "%s",
  (key, { name, expected, publicPart }) => {
    const { good = [], bad = [], beside = {} } = EXAMPLES[name] ?? {};

    test.each(good)("accepts %s", (text, value) => {
      expect(new Map(Object.entries(valuesOf({ ...beside, [name]: text }))).get(key)).toEqual(
        value,
      );
    });

    test.each(bad)("refuses %s", (text) => {
      const [problem, ...others] = problemsOf({ ...beside, [name]: text });
      expect(problem).toContain(`${name}: expected ${expected}; got `);
      expect(problem?.includes(text)).toBe(publicPart === undefined);
      expect(others).toEqual([]);
    });

    test("has its default when it is empty", () => {
      expect(valuesOf({ [name]: "" })).toEqual(valuesOf({}));
    });
  },
);

test.each(LIMITS)("$name is a whole number from $min to $max", ({ key, name, min, max }) => {
  // A limit at its border may need other values of related limits.
  const others = Object.fromEntries(
    LIMITS.map((limit) => [limit.name, name === limit.name ? "" : (ROOM[limit.name] ?? "")]),
  );
  const before = String(BigInt(min) - 1n);
  const after = String(BigInt(max) + 1n);
  for (const text of [before, after, "1.5", "1e3", "ten", "-1", " 7"]) {
    expect(problemsOf({ [name]: text })).toEqual([
      expect.stringContaining(`${name}: expected a whole number from ${min} to ${max}; got `),
    ]);
  }
  for (const text of [min, max]) {
    const loaded = loadConfig({ ...others, ...borderOf(name), [name]: text });
    expect(loaded.ok ? Object.entries(loaded.config) : loaded.problems).toContainEqual([
      key,
      Number(text),
    ]);
  }
});

/**
 * Values of the other limits that leave room for any value of one, as far as one set of them can.
 */
const ROOM: Readonly<Record<string, string>> = {
  REQUEST_BYTES_MAX: "67108864",
  RECEIVED_BYTES_MAX: "68719476736",
  QUEUE_BYTES_MAX: "4294967296",
  PAYLOAD_BYTES_MAX: "1024",
};

function borderOf(name: string): Environment {
  return name === "RECEIVED_BYTES_MAX" ? { REQUEST_BYTES_MAX: "" } : {};
}

test.each(RELATIONS)("$high is at least 2 times $low", ({ low, high }) => {
  const defaults = valuesOf({});
  const bound = Math.floor(defaults[high] / 2);
  const atBound = { [SERVICE_SETTINGS[low].name]: String(bound) };
  const above = { [SERVICE_SETTINGS[low].name]: String(bound + 1) };
  const { max } = LIMITS.find(({ key }) => key === low) ?? { max: "0" };
  if (bound + 1 > Number(max)) return; // The lower limit has a smaller maximum.
  const problem = expect.stringContaining(`${SERVICE_SETTINGS[high].name}: expected at least `);
  expect(problemsOf(atBound)).not.toContainEqual(problem);
  expect(problemsOf(above)).toContainEqual(problem);
});

test("an invalid limit is reported once, and not for its relations as well", () => {
  expect(problemsOf({ REQUEST_BYTES_MAX: "few", PAYLOAD_BYTES_MAX: "16777216" })).toHaveLength(1);
});

describe("WORKERS", () => {
  const room = {
    WORKERS: "8",
    DATABASE_CONNECTIONS: "40",
    RECEIVED_BYTES_MAX: "1073741824",
    PRINCIPAL_BYTES_PER_SECOND: "1000000",
    SESSION_BYTES_PER_SECOND: "0",
  };

  test("divides the limits that each process counts, and what follows from them", () => {
    const config = valuesOf(room);
    const share = shareOf(config);
    const counted = [
      "watchersMax",
      "watchersPerSessionMax",
      "queueBytesMax",
      "queueRowsMax",
    ] as const;
    for (const limit of counted) expect(share[limit] * 8).toBe(config[limit]);
    expect(share.principalBytesPerSecondMax).toBe(125_000);
    expect(share.sessionBytesPerSecondMax).toBe(0); // No limit stays none.
    expect(share.databaseConnections * 8 + PARENT_CONNECTIONS).toBe(36);
    expect(share.payloadBytesMax).toBe(config.payloadBytesMax);
  });

  test.each([
    ["DATABASE_CONNECTIONS", "27", 7],
    ["RECEIVED_BYTES_MAX", "33554432", 4],
    ["QUEUE_BYTES_MAX", "16777216", 2],
  ])("is refused above what %s=%s allows, and auto takes no more", (name, value, most) => {
    const given = { ...room, [name]: value };
    expect(problemsOf(given)).toEqual([
      `WORKERS: expected at most ${most}, because each worker gets its part of ${name} (${value}); got 8`,
    ]);
    expect(valuesOf({ ...given, WORKERS: "auto" }).workers).toBeLessThanOrEqual(most);
  });

  test("is one process with a warning where the kernel does not share ports", () => {
    const loaded = loadConfig(room, { platform: "darwin" });
    expect(loaded).toMatchObject({ ok: true, config: { workers: 1 } });
    expect(loaded.warnings).toEqual([expect.stringContaining("WORKERS has no effect on darwin")]);
  });
});

describe("an address beyond loopback", () => {
  const both = { ALLOW_INSECURE_TRANSPORT: "true", ALLOW_ANONYMOUS: "true" };

  test.each(["0.0.0.0:9000", "[::]:9000", "10.0.0.1:9000", "ledger:9000", "localhost.evil:9000"])(
    "of %s needs both switches, for gRPC and for HTTP",
    (address) => {
      for (const name of ["GRPC_ADDRESS", "HTTP_ADDRESS"]) {
        const [problem, ...others] = problemsOf({ [name]: address });
        expect(problem).toContain(`${name}: expected a loopback address`);
        expect(problem).toContain("TLS_CERT_FILE");
        expect(problem).toContain("AUTH_TOKENS_FILE");
        expect(problem).toContain("ALLOW_INSECURE_TRANSPORT=true");
        expect(problem).toContain("ALLOW_ANONYMOUS=true");
        expect(others).toEqual([]);
        expect(problemsOf({ [name]: address, ...both })).toEqual([]);
      }
    },
  );

  test("needs each switch for itself", () => {
    const [noTokens] = problemsOf({ GRPC_ADDRESS: "0.0.0.0:9000", ALLOW_INSECURE_TRANSPORT: "1" });
    expect(noTokens).toContain("ALLOW_ANONYMOUS=true");
    expect(noTokens).not.toContain("ALLOW_INSECURE_TRANSPORT");
    const [noTls] = problemsOf({ GRPC_ADDRESS: "0.0.0.0:9000", ALLOW_ANONYMOUS: "1" });
    expect(noTls).toContain("ALLOW_INSECURE_TRANSPORT=true");
    expect(noTls).not.toContain("ALLOW_ANONYMOUS");
  });

  test("needs no switch for transport with TLS, and none for anonymity with tokens", () => {
    const GRPC_ADDRESS = "0.0.0.0:9000";
    const tls = { TLS_CERT_FILE: "c.pem", TLS_KEY_FILE: "k.pem" };
    const tokens = { AUTH_TOKENS_FILE: "tokens.json" };
    expect(problemsOf({ GRPC_ADDRESS, ...tls, ...tokens })).toEqual([]);
    expect(problemsOf({ GRPC_ADDRESS, ...tls })).toEqual([expect.stringContaining("ANONYMOUS")]);
    expect(problemsOf({ GRPC_ADDRESS, ...tokens })).toEqual([expect.stringContaining("INSECURE")]);
  });

  test("has no reflection by default", () => {
    const exposed = { GRPC_ADDRESS: "0.0.0.0:9000", ...both };
    expect(valuesOf(exposed).grpcReflection).toBe(false);
    expect(valuesOf({ ...exposed, GRPC_REFLECTION: "on" }).grpcReflection).toBe(true);
  });
});

test("all problems are reported at once, with their settings and the expected values", () => {
  const problems = problemsOf({
    GRPC_ADDRESS: "0.0.0.0:9000",
    OPS_ADDRESS: "nowhere",
    DATABASE_URL: "mysql://db/ledger",
    LOG_LEVEL: "loud",
    WATCHERS_MAX: "0",
    PAYLOAD_BYTES_MAX: "3000000",
    QUEUE_BYTES_MAX: "131072",
  });
  expect(problems.map((problem) => problem.split(": expected ")[0])).toEqual([
    "OPS_ADDRESS",
    "DATABASE_URL",
    "LOG_LEVEL",
    "WATCHERS_MAX",
    "GRPC_ADDRESS",
    "QUEUE_BYTES_MAX",
  ]);
});

test("a password is never printed", () => {
  const secret = "hunter2";
  const good = valuesOf({ DATABASE_URL: `postgres://me:${secret}@db/ledger?password=${secret}` });
  expect(JSON.stringify(configForLog(good))).not.toContain(secret);
  expect(configForLog(good)["databaseUrl"]).toBe("postgres://db/ledger");
  const several = valuesOf({ DATABASE_URL: SEVERAL_HOSTS.replace("a:b", `me:${secret}`) });
  expect(configForLog(several)["databaseUrl"]).toBe("postgres://one:5432,two:5433/ledger");
  expect(problemsOf({ DATABASE_URL: `postgre://me:${secret}@db` }).join()).not.toContain(secret);
  const listen = `postgres://me:${secret}@direct/ledger`;
  const shown = (url: string) => configForLog(valuesOf({ LISTEN_DATABASE_URL: url }));
  expect(shown(listen)["listenDatabaseUrl"]).toBe("postgres://direct/ledger");
  expect(JSON.stringify(shown(listen))).not.toContain(secret);
  expect(shown("off")["listenDatabaseUrl"]).toBe("off");
});

test("a setting that needs another one names it", () => {
  expect(problemsOf({ TLS_CERT_FILE: "c.pem" })).toEqual([
    "TLS_KEY_FILE: expected with TLS_CERT_FILE; it is not set",
  ]);
  expect(problemsOf({ OIDC_ISSUER: "https://id.example" })).toEqual([
    "OIDC_AUDIENCE: expected with OIDC_ISSUER; it is not set",
    "OIDC_JWKS_URL or OIDC_JWKS_FILE: expected with OIDC_ISSUER; it is not set",
  ]);
  const oidc = { OIDC_ISSUER: "https://id.example", OIDC_AUDIENCE: "a", OIDC_JWKS_FILE: "k" };
  expect(problemsOf(oidc)).toEqual([]);
  expect(problemsOf({ ...oidc, OIDC_JWKS_URL: "https://id.example/keys" })).toEqual([
    "OIDC_JWKS_FILE: expected without OIDC_JWKS_URL; both are set",
  ]);
});

test("a misspelled setting is reported, and unrelated variables are not", () => {
  const loaded = loadConfig({
    GRPC_ADRESS: "127.0.0.1:1", // One letter missing.
    GRPCC_ADDRESS: "127.0.0.1:1", // One too many.
    LOG_LEVAL: "info", // One wrong.
    DATA_DRI: "x", // Two swapped.
    PATH: "/bin",
    ADDRESS: "x",
    HTTPS_ADDRESSES: "x",
    LOG_LEVEL: "info",
  });
  expect(loaded).toMatchObject({
    ok: true,
    warnings: [
      "GRPC_ADRESS is no setting; did you mean GRPC_ADDRESS?",
      "GRPCC_ADDRESS is no setting; did you mean GRPC_ADDRESS?",
      "LOG_LEVAL is no setting; did you mean LOG_LEVEL?",
      "DATA_DRI is no setting; did you mean DATA_DIR?",
    ],
  });
});

test("limits that follow from others have their ratio, and a removed setting is named", () => {
  expect(valuesOf({})).toMatchObject({
    watchersPerSessionMax: 512,
    queueRowsMax: 16_384,
    batchRowsMax: 512,
    batchBytesMax: 8_388_608,
    pushStreamBytesMax: 1_048_576,
    lockTimeoutMs: 500,
  });
  const least = { QUEUE_BYTES_MAX: "131072", PAYLOAD_BYTES_MAX: "1024" };
  expect(valuesOf(least)).toMatchObject({ queueRowsMax: 32, batchRowsMax: 1 });
  const intervals = ["1m", "5m", "30d"].map(
    (RETENTION_AFTER) => valuesOf({ RETENTION_AFTER }).retentionIntervalMs,
  );
  expect(intervals).toEqual([1_000, 3_000, 3_600_000]);
  expect(loadConfig({ BATCH_ROWS_MAX: "1", LOCK_TIMEOUT_MS: "" })).toMatchObject({
    ok: true,
    warnings: [
      "BATCH_ROWS_MAX is no setting any more and has no effect; it is a 131,072nd of QUEUE_BYTES_MAX",
    ],
  });
});

test("the client commands read only their own setting", () => {
  const environment = { SESSION_LEDGER_ADDRESS: "ledger.example:9000", GRPC_ADDRESS: "broken" };
  expect(loadClientConfig(environment)).toMatchObject({
    config: { address: { host: "ledger.example", port: 9_000 } },
  });
  const { ok, ...rest } = loadClientConfig({ SESSION_LEDGER_ADDRESS: "127.0.0.1:0" });
  expect(ok).toBe(false);
  expect(rest).toMatchObject({
    problems: [expect.stringContaining("SESSION_LEDGER_ADDRESS: expected host:port")],
  });
});
