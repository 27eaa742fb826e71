/** The private port, asked by real HTTP. */
import { describe, expect, test } from "vitest";
import { OpsServer } from "../../src/http/ops.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import { describeUnitContract, listenerOf } from "../support/unit-contract.ts";

const silent = createLogTo({ write: () => undefined }, "silent");

function newOps(
  notReady: () => Promise<readonly string[]> = async () => [],
  address = "127.0.0.1:0",
): OpsServer {
  return new OpsServer({ log: silent, metrics: createMetrics(), notReady }, { address });
}

async function started(notReady?: () => Promise<readonly string[]>) {
  const ops = newOps(notReady);
  await ops.start();
  const get = (path: string, method = "GET") =>
    fetch(`http://${ops.address}${path}`, { method, headers: { connection: "close" } });
  return { ops, get, [Symbol.asyncDispose]: () => ops.stop() };
}

describeUnitContract<OpsServer>("the ops server", {
  create: () => newOps(),
  isOfUse: async ({ address }) => (await fetch(`http://${address}/healthz`)).ok,
  remains: listenerOf,
  broken: {
    create: () => newOps(undefined, "192.0.2.1:1"),
    failure: /cannot listen on 192\.0\.2\.1:1/,
  },
});

test("a port in use is named in the error", async () => {
  await using first = await started();
  const second = newOps(undefined, first.ops.address);
  const message = `metrics and health (OPS_ADDRESS) cannot listen on ${first.ops.address}: the address is in use`;
  await expect(second.start()).rejects.toMatchObject({ name: "ServiceError", message });
});

describe("the routes", () => {
  test("/healthz is 200", async () => {
    await using server = await started();
    const response = await server.get("/healthz");
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual({
      status: "alive",
      version: expect.stringMatching(/^\d/),
    });
  });

  test("/readyz names the parts that are not ready, with or without a query", async () => {
    let notReady: readonly string[] = ["database", "live"];
    await using server = await started(async () => notReady);
    const before = await server.get("/readyz?verbose");
    expect(before.status).toBe(503);
    expect(await before.json()).toEqual({ status: "not ready", notReady });
    notReady = [];
    const after = await server.get("/readyz");
    expect(after.status).toBe(200);
    expect(await after.json()).toEqual({ status: "ready" });
  });

  test("/readyz leaves out the parts that a caller excludes", async () => {
    await using server = await started(async () => [
      "database: away",
      "worker 2: database: away",
      "database-like",
    ]);
    const answer = await server.get("/readyz?exclude=database&exclude=nothing");
    expect(await answer.json()).toEqual({ status: "not ready", notReady: ["database-like"] });
    await using other = await started(async () => ["worker 1: database: away"]);
    expect((await other.get("/readyz?exclude=database")).status).toBe(200);
    expect((await other.get("/readyz?exclude=")).status).toBe(503);
  });

  test("/readyz is 503 when the check fails or never ends", async () => {
    await using failing = await started(() => Promise.reject(new Error("secret")));
    const failed = await failing.get("/readyz");
    expect(failed.status).toBe(503);
    expect(await failed.text()).not.toContain("secret");
    await using hanging = await started(() => new Promise(() => undefined));
    expect((await hanging.get("/readyz")).status).toBe(503);
  });

  test("/metrics has the text format of Prometheus", async () => {
    await using server = await started();
    const response = await server.get("/metrics");
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toMatch(/^text\/plain; version=0\.0\.4/);
    const text = await response.text();
    expect(text).toContain("session_ledger_queue_rows 0");
    expect(text).toContain("\nprocess_resident_memory_bytes");
  });

  test("HEAD gets the headers only", async () => {
    await using server = await started();
    const response = await server.get("/healthz", "HEAD");
    expect(response.status).toBe(200);
    const { length } = await (await server.get("/healthz")).text();
    expect(response.headers.get("content-length")).toBe(String(length));
    expect(await response.text()).toBe("");
  });

  test("an unknown path is 404, another method 405", async () => {
    await using server = await started();
    expect((await server.get("/")).status).toBe(404);
    expect((await server.get("/metrics/")).status).toBe(404);
    const post = await server.get("/metrics", "POST");
    expect(post.status).toBe(405);
    expect(post.headers.get("allow")).toBe("GET, HEAD");
    expect(post.headers.get("content-type")).toBe("application/problem+json");
  });
});
