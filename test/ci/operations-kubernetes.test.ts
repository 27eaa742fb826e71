/**
 * The example manifests start the service that is here: their environment is one it takes, their ports
 * and paths are its own, and they give it the time that it needs to stop. `.ci/check-operations` holds
 * them against the schemas of Kubernetes.
 */
import { readdirSync, readFileSync } from "node:fs";
import { dirname } from "node:path/posix";
import { expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { z } from "zod";
import { parseStaticTokens } from "../../src/auth/static-tokens.ts";
import { loadConfig } from "../../src/config/config.ts";
import { CLIENT_SETTINGS, SERVICE_SETTINGS } from "../../src/config/table.ts";
import { createMetrics } from "../../src/observability/metrics.ts";

const FOLDER = new URL("../../docs/operations/kubernetes/", import.meta.url);
const EXAMPLE = "secret.example.yaml";
/** The default of PostgreSQL. */
const MAX_CONNECTIONS = 100;
/** The time to close queue, database and traces after the calls. */
const CLOSING_MS = 5_000;

const names = z.record(z.string(), z.string());
const manifestSchema = z.looseObject({
  kind: z.string(),
  metadata: z.looseObject({ name: z.string(), labels: names.optional() }),
});

const probeSchema = z.object({ httpGet: z.object({ path: z.string(), port: z.string() }) });
const containerSchema = z.looseObject({
  image: z.string(),
  envFrom: z.array(z.object({ configMapRef: z.object({ name: z.string() }) })),
  env: z.array(
    z.union([
      z.object({
        name: z.string(),
        valueFrom: z.object({ secretKeyRef: z.object({ name: z.string(), key: z.string() }) }),
      }),
      // A setting of Node.js.
      z.object({ name: z.literal("NODE_EXTRA_CA_CERTS"), value: z.string() }),
    ]),
  ),
  ports: z.array(z.object({ name: z.string(), containerPort: z.int() })),
  startupProbe: probeSchema,
  livenessProbe: probeSchema,
  readinessProbe: probeSchema,
  lifecycle: z.object({
    preStop: z.object({ exec: z.object({ command: z.tuple([z.literal("sleep"), z.string()]) }) }),
  }),
  resources: z.object({ requests: names, limits: names }),
  securityContext: z.looseObject({
    allowPrivilegeEscalation: z.literal(false),
    readOnlyRootFilesystem: z.literal(true),
    capabilities: z.object({ drop: z.tuple([z.literal("ALL")]) }),
  }),
  volumeMounts: z.array(
    z.object({
      name: z.string(),
      mountPath: z.string(),
      readOnly: z.boolean().optional(),
      // A file that is mounted by subPath is never renewed.
      subPath: z.undefined().optional(),
    }),
  ),
});
const deploymentSchema = z.object({
  spec: z.looseObject({
    replicas: z.literal(2),
    selector: z.object({ matchLabels: names }),
    template: z.object({
      metadata: z.looseObject({ labels: names }),
      spec: z.looseObject({
        terminationGracePeriodSeconds: z.int(),
        securityContext: z.looseObject({
          runAsNonRoot: z.literal(true),
          seccompProfile: z.object({ type: z.literal("RuntimeDefault") }),
        }),
        containers: z.tuple([containerSchema]),
        volumes: z.array(
          z.looseObject({
            name: z.string(),
            secret: z.object({ secretName: z.string() }).loose().optional(),
          }),
        ),
      }),
    }),
  }),
});

const files = readdirSync(FOLDER).filter(
  (name) => name.endsWith(".yaml") && name !== "secret.yaml",
);
const text = (name: string): string => readFileSync(new URL(name, FOLDER), "utf8");
const manifests = files
  .filter((name) => name !== "kustomization.yaml")
  .flatMap((name) => parseAllDocuments(text(name)))
  .map((document) => manifestSchema.parse(document.toJS()));

function manifest(kind: string, name = "session-ledger"): z.infer<typeof manifestSchema> {
  const found = manifests.find((one) => one.kind === kind && one.metadata.name === name);
  if (found === undefined) throw new Error(`no ${kind} ${name}`);
  return found;
}

function configMap(): Readonly<Record<string, string>> {
  return z.object({ data: names }).parse(manifest("ConfigMap")).data;
}

function secret(name: string): Readonly<Record<string, string>> {
  return z.object({ stringData: names }).parse(manifest("Secret", name)).stringData;
}

const { spec } = deploymentSchema.parse(manifest("Deployment"));
const pod = spec.template.spec;
const [container] = pod.containers;

function environment(): Readonly<Record<string, string>> {
  const fromSecrets = container.env.flatMap((one) => {
    if (!("valueFrom" in one)) return [];
    const { name, valueFrom } = one;
    const { secretKeyRef } = valueFrom;
    const value = secret(secretKeyRef.name)[secretKeyRef.key];
    if (value === undefined) throw new Error(`${secretKeyRef.name} has no ${secretKeyRef.key}`);
    return [[name, value] as const];
  });
  return { ...configMap(), ...Object.fromEntries(fromSecrets) };
}

function loaded() {
  const result = loadConfig(environment());
  if (!result.ok) throw new Error(result.problems.join("\n"));
  return result;
}

test("every variable is a setting, and the service accepts all of them together", () => {
  const settings: readonly string[] = [
    ...Object.values(SERVICE_SETTINGS),
    ...Object.values(CLIENT_SETTINGS),
  ].map(({ name }) => name);
  expect(Object.keys(environment()).filter((name) => !settings.includes(name))).toEqual([]);
  expect(loaded().warnings).toEqual([]);
  expect(container.envFrom.map(({ configMapRef }) => configMapRef.name)).toEqual([
    manifest("ConfigMap").metadata.name,
  ]);
});

test("the service does not start without its TLS or its tokens", () => {
  for (const name of ["TLS_CERT_FILE", "AUTH_TOKENS_FILE"]) {
    expect(loadConfig({ ...environment(), [name]: "" })).toMatchObject({ ok: false });
  }
});

test("every file of a setting is mounted from a secret that has it", () => {
  const paths = Object.entries(configMap()).filter(([name]) => name.endsWith("_FILE"));
  expect(paths.length).toBeGreaterThan(0);
  for (const [, path] of paths) {
    const mount = container.volumeMounts.find(({ mountPath }) => mountPath === dirname(path));
    const volume = pod.volumes.find((one) => one.name === mount?.name);
    const keys = Object.keys(secret(volume?.secret?.secretName ?? ""));
    expect(keys).toContain(path.slice(path.lastIndexOf("/") + 1));
    expect(mount?.readOnly).toBe(true);
  }
});

test("the example of a token file is valid", () => {
  const [only, ...others] = parseStaticTokens(secret("session-ledger-tokens")["tokens.json"] ?? "");
  expect(others).toEqual([]);
  expect(only).toMatchObject({ id: "platform", roles: ["admin"] });
});

test("ports match the addresses, probes use the ops port, and services lead to the ports", () => {
  const { config } = loaded();
  const ports = Object.fromEntries(container.ports.map((one) => [one.name, one.containerPort]));
  expect(ports).toEqual({
    grpc: config.grpcAddress.port,
    http: config.httpAddress.port,
    ops: config.opsAddress.port,
  });
  const probes = [container.startupProbe, container.livenessProbe, container.readinessProbe];
  expect(probes.map(({ httpGet }) => `${httpGet.port}${httpGet.path}`)).toEqual([
    "ops/healthz",
    "ops/healthz",
    "ops/readyz?exclude=database",
  ]);
  const portSchema = z.array(z.object({ targetPort: z.string(), port: z.int() }).loose());
  const serviceSchema = z.object({ spec: z.looseObject({ selector: names, ports: portSchema }) });
  const services = manifests.filter(({ kind }) => kind === "Service");
  expect(services).toHaveLength(2);
  for (const { spec: of } of services.map((one) => serviceSchema.parse(one))) {
    expect(of.selector).toEqual(spec.template.metadata.labels);
    for (const { port, targetPort } of of.ports) expect(ports[targetPort]).toBe(port);
  }
});

test("the autoscaler follows a metric of the service, and its connections stay within one server", async () => {
  const scaler = z.object({
    spec: z
      .object({
        scaleTargetRef: z.object({ name: z.literal("session-ledger") }).loose(),
        minReplicas: z.literal(spec.replicas),
        maxReplicas: z.int(),
        metrics: z.tuple([
          z.object({ pods: z.object({ metric: z.object({ name: z.string() }) }).loose() }).loose(),
        ]),
      })
      .loose(),
  });
  const { maxReplicas, metrics } = scaler.parse(manifest("HorizontalPodAutoscaler")).spec;
  expect(await createMetrics().text()).toContain(`# TYPE ${metrics[0].pods.metric.name} gauge`);
  const { databaseConnections } = loaded().config;
  expect(maxReplicas * (databaseConnections + 1)).toBeLessThan(MAX_CONNECTIONS);
});

test("the job migrates with the image and the secret of the deployment", () => {
  const job = z.object({
    spec: z
      .object({
        template: z
          .object({
            spec: z
              .object({
                containers: z.tuple([
                  z
                    .object({
                      image: z.string(),
                      args: z.tuple([z.literal("migrate"), z.literal("up")]),
                      env: z.array(z.looseObject({ name: z.string() })),
                    })
                    .loose(),
                ]),
              })
              .loose(),
          })
          .loose(),
      })
      .loose(),
  });
  const found = parse(text("migrate.yaml"));
  const [{ image, env }] = job.parse(found).spec.template.spec.containers;
  const [named] = z
    .object({ images: z.tuple([z.object({ newName: z.string(), newTag: z.string() })]) })
    .parse(parse(text("kustomization.yaml"))).images;
  expect(image).toBe(`${named.newName}:${named.newTag}`);
  expect(env.map(({ name }) => name)).toEqual(["DATABASE_URL", "NODE_EXTRA_CA_CERTS"]);
  expect(secret("session-ledger-database")).toHaveProperty("MIGRATION_DATABASE_URL");
});

test("every selector selects these pods", () => {
  const { labels } = spec.template.metadata;
  expect(spec.selector.matchLabels).toEqual(labels);
  const budget = z.object({ spec: z.looseObject({ selector: z.object({ matchLabels: names }) }) });
  const { matchLabels } = budget.parse(manifest("PodDisruptionBudget")).spec.selector;
  expect(matchLabels).toEqual(labels);
  const policy = z.object({
    spec: z.looseObject({ podSelector: z.object({ matchLabels: names }) }),
  });
  expect(policy.parse(manifest("NetworkPolicy")).spec.podSelector.matchLabels).toEqual(labels);
});

test("a pod has more time than its pause and its stop take", () => {
  const pauseMs = Number(container.lifecycle.preStop.exec.command[1]) * 1_000;
  const { stopLimitMs } = loaded().config;
  const graceMs = pod.terminationGracePeriodSeconds * 1_000;
  expect(pauseMs).toBeGreaterThan(0);
  expect(graceMs).toBeGreaterThanOrEqual(pauseMs + stopLimitMs + CLOSING_MS);
});

test("the alert for memory has the limit of the container", () => {
  const [, gib = ""] = /^(\d+)Gi$/.exec(container.resources.limits["memory"] ?? "") ?? [];
  const alerts = readFileSync(new URL("../alerts.yaml", FOLDER), "utf8");
  expect(alerts).toContain(`0.9 * ${gib} * 1024 * 1024 * 1024`);
});

test("the kustomization has every file, and the secret under the name that is not committed", () => {
  const image = z.strictObject({ name: z.string(), newName: z.string(), newTag: z.string() });
  const kustomization = z
    .strictObject({
      apiVersion: z.literal("kustomize.config.k8s.io/v1beta1"),
      kind: z.literal("Kustomization"),
      namespace: z.literal(manifest("Namespace").metadata.name),
      resources: z.array(z.string()),
      images: z.array(image),
    })
    .parse(parse(text("kustomization.yaml")));
  expect(kustomization.images.map(({ name }) => name)).toEqual([container.image]);
  const apart = ["kustomization.yaml", EXAMPLE, "migrate.yaml"];
  const others = files.filter((name) => !apart.includes(name));
  expect(kustomization.resources.toSorted()).toEqual([...others, "secret.yaml"].toSorted());
});

test("regression: the connection to the database had no TLS and accepted any server", () => {
  const url = new URL(environment()["DATABASE_URL"] ?? "");
  expect(url.searchParams.get("sslmode")).toBe("verify-full");
  expect(text("deployment.yaml")).toContain("name: NODE_EXTRA_CA_CERTS");
});

test("every base image of the Dockerfile is the same one, by its digest", () => {
  const dockerfile = readFileSync(new URL("../../Dockerfile", import.meta.url), "utf8");
  const bases = [...dockerfile.matchAll(/^FROM (\S+)/gm)].map(([, image]) => image);
  expect(bases.length).toBeGreaterThan(0);
  expect(new Set(bases)).toEqual(new Set(["${NODE_IMAGE}"]));
  expect(dockerfile).toMatch(/^ARG NODE_IMAGE=node:\S+-slim@sha256:[0-9a-f]{64}$/m);
});
