/**
 * Traces of a service from outside: a collector of our own takes what it sends. The caller's trace goes
 * on in ours; without the setting nothing of its SDK is loaded; a collector that is not there, or
 * does not answer, costs no push anything.
 */
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:net";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { WatchState } from "@session-ledger/proto/ambient/v1/common_pb";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { type OpenDatabase, openDatabase } from "../support/database.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { eventually } from "../support/eventually.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { GOOD, newSession, push } from "../support/pushing.ts";
import { endService, type ServiceProcess, startService } from "../support/service-process.ts";
import { type CollectedSpan, TraceCollector } from "../support/trace-collector.ts";

const SERVICE = "ambient.v1.SessionService";
const SECRET = "nobody-may-trace-this";

/**
 * Says on stderr, which is part of a service's log here, what it loads of OpenTelemetry; but for the
 * interfaces (`api`), which prom-client loads for itself.
 */
const TELLS_MODULES = `
  import { registerHooks } from "node:module";
  registerHooks({
    load(url, context, next) {
      if (/@opentelemetry.(?!api)/.test(url)) process.stderr.write("loaded " + url + "\\n");
      return next(url, context);
    },
  });`;
const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(TELLS_MODULES)}`;

let shared: OpenDatabase;
beforeAll(async () => {
  shared = await openDatabase();
});
afterAll(async () => {
  await shared.stop();
  await cleanUp();
});

type Environment = Readonly<Record<string, string>>;

function start(env: Environment): Promise<ServiceProcess> {
  return startService({ env: { DATABASE_URL: shared.url, NODE_OPTIONS, ...env } });
}

/** For one test. */
async function serve(env: Environment): Promise<ServiceProcess> {
  const service = await start(env);
  onTestFinished(() => endService(service));
  return service;
}

function clientOf(service: ServiceProcess): RpcClient {
  const client = new RpcClient(service.grpcAddress);
  onTestFinished(() => client.close());
  return client;
}

interface CallerTrace {
  readonly traceId: string;
  readonly spanId: string;
  readonly metadata: { readonly traceparent: string };
}

function newTrace(flags = "01"): CallerTrace {
  const [traceId, spanId] = [randomBytes(16).toString("hex"), randomBytes(8).toString("hex")];
  return { traceId, spanId, metadata: { traceparent: `00-${traceId}-${spanId}-${flags}` } };
}

function named(spans: readonly CollectedSpan[], name: string): CollectedSpan {
  const [only, ...others] = spans.filter((span) => span.name === name);
  if (only === undefined || others.length > 0) throw new Error(`not one span ${name}`);
  return only;
}

function loadedBy(service: ServiceProcess): readonly string[] {
  return service.log.filter((line) => line.startsWith("loaded "));
}

async function metricOf(service: ServiceProcess, name: string): Promise<number> {
  const response = await fetch(`http://${service.opsAddress}/metrics`);
  const lines = (await response.text()).split("\n");
  return Number(
    lines
      .find((line) => line.startsWith(name))
      ?.split(" ")
      .at(-1) ?? "0",
  );
}

describe("a collector that works", () => {
  const collector = new TraceCollector();
  let endpoint: string;
  let service: ServiceProcess;
  beforeAll(async () => {
    endpoint = await collector.start();
    service = await start({
      OTEL_EXPORTER_OTLP_ENDPOINT: endpoint,
      OTEL_SERVICE_NAME: "ledger-under-test",
    });
  });
  afterAll(async () => {
    await endService(service);
    await collector.stop();
  });

  async function spansOf({ traceId }: CallerTrace, count: number) {
    await eventually(() => expect(collector.of(traceId).length).toBe(count));
    return collector.of(traceId);
  }

  test("gets a span of a push in the caller's trace, with its wait and commit", async () => {
    const sessionId = newSession();
    const trace = newTrace();
    const payload = `{"type":"CUSTOM","name":"n","value":"${SECRET}"}`;
    await push(clientOf(service), "events", { sessionId, payload }, trace);
    const spans = await spansOf(trace, 3);
    const call = named(spans, `${SERVICE}/PushSessionEvent`);
    expect(call).toMatchObject({
      parentSpanId: trace.spanId,
      kind: 2,
      attributes: {
        "rpc.system": "grpc",
        "rpc.service": SERVICE,
        "rpc.method": "PushSessionEvent",
        "rpc.grpc.status_code": 0,
        "session.id": sessionId,
      },
    });
    expect(call.status.code ?? 0).toBe(0);
    const [queue, commit] = [named(spans, "queue"), named(spans, "commit")];
    expect(commit.attributes).toEqual({
      "session_ledger.batch_pushes": 1,
      "session_ledger.batch_rows": 1,
      "session_ledger.committed": true,
    });
    for (const part of [queue, commit]) {
      expect(part.parentSpanId).toBe(call.spanId);
      expect(part.startTimeUnixNano >= call.startTimeUnixNano).toBe(true);
      expect(part.endTimeUnixNano <= call.endTimeUnixNano).toBe(true);
    }
    expect(queue.endTimeUnixNano <= commit.startTimeUnixNano).toBe(true);
    expect(collector.services).toContain("ledger-under-test");
    expect(new Set(collector.paths)).toEqual(new Set(["POST /v1/traces"]));
    expect(collector.bodies.filter((body) => body.includes(SECRET))).toEqual([]);
    expect(loadedBy(service).length).toBeGreaterThan(0);
  });

  test("gets the reason of a refused push, which is not an error of the service", async () => {
    const trace = newTrace();
    const payload = `{"type":"CUSTOM","value":"${SECRET}"}`;
    const pushed = push(clientOf(service), "events", { sessionId: "s", payload }, trace);
    await expect(pushed).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    const [call] = await spansOf(trace, 1);
    expect(call?.attributes).toMatchObject({
      "rpc.grpc.status_code": 3,
      "session_ledger.reason": "INVALID_REQUEST",
    });
    expect(call?.status.code ?? 0).toBe(0);
    expect(collector.bodies.filter((body) => body.includes(SECRET))).toEqual([]);
  });

  test("gets a span of a watch with attached, caught up, live and its end", async () => {
    const client = clientOf(service);
    const sessionId = newSession();
    await push(client, "messages", { sessionId });
    const trace = newTrace();
    const watch = client.serverStream(
      SessionService.method.watchSessionMessages,
      { sessionId, stateFrames: true },
      trace,
    );
    for await (const { watchState } of watch) if (watchState === WatchState.LIVE) break;
    const call = named(await spansOf(trace, 1), `${SERVICE}/WatchSessionMessages`);
    expect(call.parentSpanId).toBe(trace.spanId);
    expect(call.events.map(({ name }) => name)).toEqual(["attached", "catching_up", "live"]);
    expect(call.attributes).toMatchObject({
      "rpc.grpc.status_code": 1,
      "session_ledger.reason": "CANCELLED",
      "session.id": sessionId,
    });
  });

  test("gets one span of a push stream with its counts", async () => {
    const sessionId = newSession();
    const trace = newTrace();
    const { pushSessionEvents } = SessionService.method;
    const stream = clientOf(service).bidiStream(pushSessionEvents, trace);
    stream.send({ frame: { case: "open", value: { sessionId } } });
    const events = [{ payload: `{"type":"CUSTOM","name":"n","value":"${SECRET}"}` }];
    stream.send({ frame: { case: "batch", value: { firstClientSeq: 1n, events } } });
    stream.end();
    for await (const { frame } of stream) expect(frame.case).not.toBe("refused");
    const call = named(await spansOf(trace, 1), `${SERVICE}/PushSessionEvents`);
    expect(call.attributes).toMatchObject({
      "rpc.grpc.status_code": 0,
      "session.id": sessionId,
      "session_ledger.events": 1,
      "session_ledger.rows": 1,
      "session_ledger.refused": 0,
    });
  });

  test("gets an HTTP push by its route, and an SSE stream with the moments of its watch", async () => {
    const sessionId = newSession();
    const trace = newTrace();
    const url = `http://${service.httpAddress}/api/ambient/v1/sessions/${sessionId}`;
    const pushed = await fetch(`${url}/messages`, {
      method: "POST",
      headers: { "content-type": "application/json", ...trace.metadata },
      body: JSON.stringify({ event_type: "user", payload: SECRET }),
    });
    expect(pushed.ok).toBe(true);
    const spans = await spansOf(trace, 3);
    const call = named(spans, "POST /api/ambient/v1/sessions/:id/messages");
    expect(call.attributes).toMatchObject({
      "http.request.method": "POST",
      "http.route": "/api/ambient/v1/sessions/:id/messages",
      "http.response.status_code": pushed.status,
      "session.id": sessionId,
    });
    expect(named(spans, "commit").parentSpanId).toBe(call.spanId);

    const following = newTrace();
    const leaving = new AbortController();
    const stream = await fetch(`${url}/events`, {
      headers: following.metadata,
      signal: leaving.signal,
    });
    expect(stream.ok).toBe(true);
    leaving.abort();
    const [followed] = await spansOf(following, 1);
    expect(followed?.events.map(({ name }) => name)).toContain("attached");
    expect(collector.bodies.filter((body) => body.includes(SECRET))).toEqual([]);
  });

  test("follows the sampling decision of the caller, and an invalid trace starts a new one", async () => {
    // Spans of earlier tests may still arrive at the other collector.
    const own = new TraceCollector();
    onTestFinished(() => own.stop());
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: await own.start(), OTEL_TRACES_SAMPLER_ARG: "0" };
    const client = clientOf(await serve(env));
    const [asked, declined] = [newTrace("01"), newTrace("00")];
    await push(client, "messages", { sessionId: newSession() }, declined);
    await push(client, "messages", { sessionId: newSession() });
    const broken = { metadata: { traceparent: "00-what-01" } };
    await push(client, "messages", { sessionId: newSession() }, broken);
    await push(client, "messages", { sessionId: newSession() }, asked);
    await eventually(() => expect(own.of(asked.traceId)).toHaveLength(3));
    expect(own.spans).toHaveLength(3);
  });

  test("gets the last spans at a stop", async () => {
    const other = await serve({ OTEL_EXPORTER_OTLP_ENDPOINT: endpoint });
    const trace = newTrace();
    await push(clientOf(other), "messages", { sessionId: newSession() }, trace);
    expect(await other.stop()).toBe(0);
    expect(collector.of(trace.traceId)).toHaveLength(3);
  });
});

test("costs nothing without the setting: no tracing code is loaded", async () => {
  const service = await serve({});
  await push(clientOf(service), "messages", { sessionId: newSession() }, newTrace());
  expect(loadedBy(service)).toEqual([]);
  expect(await service.stop()).toBe(0);
  expect(loadedBy(service)).toEqual([]);
});

describe("a collector that fails", () => {
  const PUSHES = 512;
  const AT_ONCE = 64;

  async function pushMany(client: RpcClient): Promise<void> {
    const sessionIds = Array.from({ length: AT_ONCE }, newSession);
    await Promise.all(
      sessionIds.map(async (sessionId) => {
        for (let done = 0; done < PUSHES / AT_ONCE; done += 1) {
          await push(client, "messages", { ...GOOD.messages, sessionId }); // oxlint-disable-line no-await-in-loop
        }
      }),
    );
  }

  test("that is down delays no push and no stop, and is logged once", async () => {
    const nobody = createServer().listen({ host: "127.0.0.1", port: 0 });
    await once(nobody, "listening");
    const address = nobody.address();
    const port = typeof address === "object" ? address?.port : undefined;
    nobody.close();
    const endpoint = `http://127.0.0.1:${port}`;
    const service = await serve({ OTEL_EXPORTER_OTLP_ENDPOINT: endpoint });
    await pushMany(clientOf(service));
    const failed = 'session_ledger_trace_spans_total{outcome="failed"}';
    await eventually(async () => expect(await metricOf(service, failed)).toBeGreaterThan(0));
    await expect
      .poll(() => service.log.filter((line) => line.includes("traces_not_sent")))
      .toHaveLength(1);
    expect(await service.stop()).toBe(0);
  });

  // That spans over the bound are dropped is shown by test/unit/tracing.test.ts: whether the bound is
  // reached here depends on how fast the machine is.
  test("that hangs delays no push and no stop, and its lost spans are counted", async () => {
    const collector = new TraceCollector();
    collector.isStuck = true;
    onTestFinished(() => collector.stop());
    const service = await serve({ OTEL_EXPORTER_OTLP_ENDPOINT: await collector.start() });
    await pushMany(clientOf(service));
    const stored = 'session_ledger_rows_stored_total{stream="messages"}';
    expect(await metricOf(service, stored)).toBe(PUSHES);
    await eventually(() => expect(collector.paths.length).toBeGreaterThan(0));
    const failed = 'session_ledger_trace_spans_total{outcome="failed"}';
    await eventually(async () => expect(await metricOf(service, failed)).toBeGreaterThan(0));
    expect(await service.stop()).toBe(0);
  });
});
