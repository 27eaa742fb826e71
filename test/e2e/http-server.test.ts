/** The HTTP server over handlers of the test's own, asked by real HTTP and by bytes that are none. */
import { once } from "node:events";
import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { WatchState } from "@session-ledger/proto/ambient/v1/common_pb";
import { SessionMessageSchema } from "@session-ledger/proto/ambient/v1/messages_pb";
import { SessionSchema } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { ServiceError } from "@session-ledger/base/errors";
import { Budget } from "../../src/base/budget.ts";
import type { Snapshot } from "../../src/conversation/snapshot.ts";
import type { CallContext } from "../../src/contract/context.ts";
import { HTTP_LIMITS } from "../../src/http/plumbing/listener.ts";
import { FastifyServer, type HttpOptions } from "../../src/http/server.ts";
import {
  HTTP_OPTIONS,
  type HttpFixture,
  httpParts,
  rawConnection,
  rawExchange,
  startHttp,
} from "../support/http-fixture.ts";
import { describeUnitContract, isListening, listenerOf } from "../support/unit-contract.ts";

const session = create(SessionSchema, {
  metadata: { id: "s", kind: "Session", createdAt: { seconds: 1n }, updatedAt: { seconds: 1n } },
});
const message = create(SessionMessageSchema, { id: "m", seq: 1n, createdAt: { seconds: 1n } });
const getSession = async () => session;
const pushSessionMessage = async () => message;

const PATH = "/api/ambient/v1/sessions/s";
const HEAD = "Host: localhost\r\n";
const JSON_HEAD = `${HEAD}Content-Type: application/json\r\n`;

function newServer(options: Partial<HttpOptions> = {}): FastifyServer {
  return new FastifyServer(httpParts(), { ...HTTP_OPTIONS, ...options });
}

/** A watch that says it is live, and then nothing until it is over. */
function quietWatch(seen: { context?: CallContext; isOver?: boolean } = {}) {
  return async function* (_request: unknown, context: CallContext) {
    seen.context = context;
    try {
      yield create(SessionMessageSchema, { watchState: WatchState.LIVE });
      await new Promise((resolve) => context.signal.addEventListener("abort", resolve));
      throw context.signal.reason;
    } finally {
      seen.isOver = true;
    }
  };
}

const asStream = { headers: { accept: "text/event-stream" } };

describeUnitContract<FastifyServer>("the HTTP server", {
  create: () => newServer(),
  isOfUse: async ({ address }) => (await fetch(`http://${address}/openapi.json`)).ok,
  remains: listenerOf,
  broken: {
    create: () => newServer({ address: "192.0.2.1:1" }),
    failure: /HTTP \(HTTP_ADDRESS\) cannot listen on 192\.0\.2\.1:1/,
  },
});

test("a port in use is named in the error", async () => {
  await using first = await startHttp();
  const { address } = first.server;
  const second = newServer({ address });
  const why = `HTTP (HTTP_ADDRESS) cannot listen on ${address}: the address is in use`;
  await expect(second.start()).rejects.toMatchObject({ reason: "ADDRESS_TAKEN", message: why });
  await second.stop();
});

describe("every answer", () => {
  test("has its content type, forbids caching and does not name the server software", async () => {
    await using http = await startHttp({ getSession });
    for (const [path, status] of [
      ["/sessions/s", 200],
      ["/nothing", 404],
      ["/sessions/%zz", 400],
    ] as const) {
      const { headers } = await http.ask(path);
      expect(headers.get("x-content-type-options"), `of ${path}`).toBe("nosniff");
      expect(headers.get("cache-control"), `of ${path}`).toBe("no-store");
      expect(headers.get("content-type"), `of ${path}`).toBe(
        status === 200 ? "application/json" : "application/problem+json",
      );
      for (const name of ["server", "x-powered-by", "access-control-allow-origin"]) {
        expect(headers.get(name), `of ${name}`).toBeNull();
      }
    }
  });

  test("to HEAD has the headers of the answer to GET", async () => {
    await using http = await startHttp({ getSession });
    const get = await http.ask("/sessions/s");
    const head = await http.ask("/sessions/s", { method: "HEAD" });
    expect(head.status).toBe(200);
    expect(head.headers.get("content-length")).toBe(get.headers.get("content-length"));
    expect(await head.text()).toBe("");
  });

  test("is 405 for a wrong method and 404 for an unknown path", async () => {
    await using http = await startHttp();
    for (const method of ["PUT", "OPTIONS", "POST", "PROPFIND"]) {
      const wrong = await http.ask("/sessions/s", { method });
      expect(wrong.status, `of ${method}`).toBe(405);
      expect(wrong.headers.get("allow")).toBe("DELETE, GET, HEAD, PATCH");
    }
    for (const path of ["/", "/Sessions", "/sessions/s/", "//sessions", "/sessions/s/none"]) {
      expect((await http.ask(path, { method: "POST" })).status, `of ${path}`).toBe(404);
    }
  });

  test("hides a defect outside, and the log has all of it", async () => {
    await using http = await startHttp({
      getSession: () => Promise.reject(new Error("secret")),
    });
    const response = await http.ask("/sessions/s");
    expect(response.status).toBe(500);
    expect(await response.json()).toEqual({
      type: "about:blank",
      title: "Internal Server Error",
      status: 500,
      reason: "INTERNAL",
    });
    expect(await http.recorded("request")).toMatchObject({
      level: "error",
      route: "/api/ambient/v1/sessions/:id",
      status: 500,
      reason: "INTERNAL",
      err: { message: "secret" },
    });
  });

  test("has Retry-After when a retry can help", async () => {
    await using http = await startHttp({
      getSession: () =>
        Promise.reject(new ServiceError("overloaded", "QUEUE_FULL", "m", { retryAfterMs: 1_500 })),
    });
    const response = await http.ask("/sessions/s");
    expect(response.status).toBe(429);
    expect(response.headers.get("retry-after")).toBe("2");
  });

  test("is counted by its route pattern, and unknown paths as unknown", async () => {
    await using http = await startHttp({ getSession });
    await http.ask("/sessions/s");
    await http.ask("/sessions/other");
    await http.ask("/nothing/secret");
    await http.ask("/sessions/%zz");
    const text = await http.metrics.text();
    const name = "session_ledger_http_requests_total";
    const route = "/api/ambient/v1/sessions/:id";
    expect(text).toContain(`${name}{route="${route}",method="GET",status="200"} 2`);
    expect(text).toContain(`${name}{route="unknown",method="GET",status="404"} 1`);
    expect(text).toContain(`${name}{route="unknown",method="GET",status="400"} 1`);
    expect(JSON.stringify(http.records)).not.toContain("secret");
  });
});

describe("a body of an AG-UI route", () => {
  const connect = "/copilotkit/agent/default/connect";
  const wrong = [null, [], "x", 1, { threadId: 7 }, { threadId: "s", messages: "x" }];
  const bodies = [
    ...wrong.flatMap((body) => ["/agui/sessions/s", connect].map((path) => [path, body] as const)),
    ...wrong.map((body) => ["/copilotkit", { method: "agent/connect", body }] as const),
    ["/copilotkit", null],
    ["/copilotkit", {}],
  ] as const;

  const post = (http: HttpFixture, path: string, body: unknown) =>
    fetch(`http://${http.server.address}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });

  test.each(bodies)("regression: %s %j was refused in a library's words", async (path, body) => {
    await using http = await startHttp();
    const { status, detail } = Object(await (await post(http, path, body)).json());
    expect(status).toBe(400);
    expect(detail).toMatch(/^(?:the body|[a-zA-Z.]+) must be /);
  });

  test.each([
    [connect, { threadId: "s1", messages: 1 }, "messages"],
    ["/copilotkit", { method: "agent/connect", body: { threadId: "s1", runId: 1 } }, "body.runId"],
    ["/copilotkit/agent/default/stop/s1", {}, undefined],
    ["/agui/sessions/s1", { threadId: "other", messages: 1 }, "messages"],
  ])("regression: the refusal of %s of %j did not name the session", async (path, body, field) => {
    await using http = await startHttp();
    await post(http, path, body);
    const record = await http.recorded("request");
    expect({ sessionId: record["sessionId"], field: record["field"] }).toEqual({
      sessionId: "s1",
      field,
    });
  });
});

describe("a page of another origin", () => {
  test("cannot post without a preflight request, which is refused", async () => {
    await using http = await startHttp({ pushSessionMessage });
    for (const type of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]) {
      const response = await http.ask("/sessions/s/messages", {
        method: "POST",
        headers: { "content-type": type },
        body: '{"payload":"x"}',
      });
      expect(response.status, `of ${type}`).toBe(415);
    }
    const preflight = await http.ask("/sessions/s/messages", {
      method: "OPTIONS",
      headers: { origin: "https://example.com", "access-control-request-method": "POST" },
    });
    expect(preflight.ok).toBe(false);
    expect(preflight.headers.get("access-control-allow-origin")).toBeNull();
  });

  test("cannot reach the service through a DNS name that points to this machine", async () => {
    await using http = await startHttp({ getSession });
    const ask = (host: string) =>
      rawExchange(http.server.address, `GET ${PATH} HTTP/1.1\r\n${host}Connection: close\r\n\r\n`);
    expect(await ask("Host: rebound.example.com\r\n")).toMatch(/^HTTP\/1\.1 421 /);
    expect(await ask("")).toMatch(/^HTTP\/1\.1 400 [^]*"Host is required"/);
    expect(await ask("Host: localhost:1234\r\n")).toMatch(/^HTTP\/1\.1 200 /);
  });

  test("may send any Host to a service that listens for other machines", async () => {
    await using http = await startHttp({ getSession }, { address: "0.0.0.0:0" });
    const address = http.server.address.replace("0.0.0.0", "127.0.0.1");
    const answer = await rawExchange(
      address,
      `GET ${PATH} HTTP/1.1\r\nHost: ledger.example.com\r\nConnection: close\r\n\r\n`,
    );
    expect(answer).toMatch(/^HTTP\/1\.1 200 /);
  });
});

test.each(["127.0.0.1:0", "0.0.0.0:0"])(
  "a request with two Host headers is refused by a service at %s",
  async (address) => {
    await using http = await startHttp({ getSession }, { address });
    const answer = await rawExchange(
      http.server.address.replace("0.0.0.0", "127.0.0.1"),
      `GET ${PATH} HTTP/1.1\r\nHost: localhost\r\nhost: example.com\r\nConnection: close\r\n\r\n`,
    );
    expect(answer).toMatch(/^HTTP\/1\.1 400 [^]*"Host must occur once"/);
  },
);

describe("raw bytes", () => {
  const short = { ...HTTP_LIMITS, headersLimitMs: 200, requestLimitMs: 400, checkIntervalMs: 50 };

  test("endless headers are answered with 408", async () => {
    await using http = await startHttp({}, { limits: short });
    const answer = await rawExchange(http.server.address, `GET ${PATH} HTTP/1.1\r\nHost: loc`);
    expect(answer).toMatch(/^HTTP\/1\.1 408 Request Timeout\r\nconnection: close\r\n/);
    expect(answer).toContain("content-type: application/problem+json");
    expect(await http.recorded("request")).toMatchObject({ status: 408, route: "unknown" });
  });

  test("a missing body is answered with 408", async () => {
    await using http = await startHttp({ pushSessionMessage }, { limits: short });
    const answer = await rawExchange(
      http.server.address,
      `POST ${PATH}/messages HTTP/1.1\r\n${JSON_HEAD}Content-Length: 100\r\n\r\n{"payload"`,
    );
    expect(answer).toMatch(/^HTTP\/1\.1 408 /);
  });

  test("a stream is not cut by those limits", async () => {
    await using http = await startHttp(
      { watchSessionMessages: quietWatch() },
      { limits: short, heartbeatMs: 100 },
    );
    const response = await http.ask("/sessions/s/messages", asStream);
    let pings = 0;
    const decoder = new TextDecoder();
    for await (const chunk of response.body ?? []) {
      pings += decoder.decode(chunk).split(": ping").length - 1;
      if (pings >= 8) break; // Twice the limit of a request, and more.
    }
    expect(pings).toBeGreaterThanOrEqual(8);
  });

  test("bytes that are not HTTP are 400, too long headers 431, an unknown Expect 417", async () => {
    await using http = await startHttp();
    const exchange = (bytes: string) => rawExchange(http.server.address, bytes);
    const garbage = await exchange("hello\r\n\r\n");
    expect(garbage).toMatch(/^HTTP\/1\.1 400 Bad Request\r\nconnection: close\r\n/);
    expect(JSON.parse(garbage.slice(garbage.indexOf("{")))).toMatchObject({ status: 400 });
    const long = `GET ${PATH} HTTP/1.1\r\n${HEAD}X: ${"x".repeat(HTTP_LIMITS.headerBytesMax)}\r\n\r\n`;
    expect(await exchange(long)).toMatch(/^HTTP\/1\.1 431 /);
    const odd = `GET ${PATH} HTTP/1.1\r\n${HEAD}Expect: miracles\r\n\r\n`;
    expect(await exchange(odd)).toMatch(/^HTTP\/1\.1 417 /);
  });

  test("100-continue is the one supported Expect", async () => {
    await using http = await startHttp({ pushSessionMessage });
    const answer = await rawExchange(
      http.server.address,
      `POST ${PATH}/messages HTTP/1.1\r\n${JSON_HEAD}Expect: 100-continue\r\nConnection: close\r\nContent-Length: 15\r\n\r\n{"payload":"x"}`,
    );
    expect(answer).toMatch(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 201 /);
  });

  test("a body longer than Content-Length is never taken for a second request", async () => {
    await using http = await startHttp({ pushSessionMessage });
    const answer = await rawExchange(
      http.server.address,
      `POST ${PATH}/messages HTTP/1.1\r\n${JSON_HEAD}Content-Length: 15\r\n\r\n{"payload":"x"}{"more"}\r\n\r\n`,
    );
    expect(answer).not.toMatch(/^HTTP\/1\.1 5/);
    expect(answer).toMatch(/HTTP\/1\.1 400 /);
  });

  test("a length and chunks in one request are refused, against smuggling", async () => {
    await using http = await startHttp({ pushSessionMessage });
    const answer = await rawExchange(
      http.server.address,
      `POST ${PATH}/messages HTTP/1.1\r\n${JSON_HEAD}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    );
    expect(answer).toMatch(/^HTTP\/1\.1 400 /);
  });

  test("a body above the limit is 413, with or without a Content-Length", async () => {
    await using http = await startHttp({ pushSessionMessage });
    const post = (body: string | ReadableStream, more: object = {}) =>
      http.ask("/sessions/s/messages", {
        method: "POST",
        headers: { "content-type": "application/json" },
        body,
        ...more,
      });
    const bytesMax = 2 * HTTP_OPTIONS.requestBytesMax; // A text in JSON is escaped.
    const fits = JSON.stringify({ payload: "x".repeat(bytesMax - 14) });
    expect(fits).toHaveLength(bytesMax);
    expect((await post(fits)).status).toBe(201);
    const told = await post(`${fits} `);
    expect(told.status).toBe(413);
    expect(await told.json()).toMatchObject({ reason: "REQUEST_TOO_LARGE" });
    const untold = new Blob([`${fits} `]).stream();
    expect((await post(untold, { duplex: "half" })).status).toBe(413);
  });

  test("a client that is still sending can read the refusal of its body", async () => {
    await using http = await startHttp();
    const socket = rawConnection(http.server.address);
    const length = 16 * 1024 * 1024;
    socket.write(`POST ${PATH}/messages HTTP/1.1\r\n${JSON_HEAD}Content-Length: ${length}\r\n\r\n`);
    const [answer] = await once(socket, "data");
    expect(String(answer)).toMatch(/^HTTP\/1\.1 413 /);
    // All of it can still be sent, and the connection is good for the next request.
    socket.write("x".repeat(length));
    socket.write(`GET /nothing HTTP/1.1\r\n${HEAD}\r\n`);
    const [next] = await once(socket, "data");
    expect(String(next)).toMatch(/^HTTP\/1\.1 404 /);
    socket.destroy();
  });

  test("unread answers are dropped for other answers", async () => {
    const chars = 20 * 1024 * 1024; // More than the kernel takes of a socket.
    const messagesText = `["${"x".repeat(chars)}"]`;
    const branches: readonly bigint[] = [];
    const transcript = {
      seq: 1n,
      cut: { events: 1n, messages: 0n },
      messagesText,
      stateText: undefined,
      interruptsText: "[]",
      isStateTooLarge: false,
      branches,
    };
    const memory = new Budget({ max: 100 * 1024 * 1024 });
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- What the route reads of it.
    const readTranscript = async () => transcript as Snapshot;
    const transcripts = { readTranscript };
    await using http = await startHttp({ getSession }, {}, { memory, transcripts });
    const unread = Array.from({ length: 8 }, () => {
      const socket = rawConnection(http.server.address).pause();
      socket.write(`GET ${PATH}/transcript HTTP/1.1\r\n${HEAD}\r\n`);
      return socket;
    });
    await expect.poll(() => memory.refused).toBeGreaterThan(3);
    expect(memory.used).toBeLessThan(memory.max);
    expect((await http.ask("/sessions/s")).status).toBe(200);
    for (const socket of unread) socket.destroy();
    await expect.poll(() => memory.used).toBeLessThan(100_000);
  });

  test("unfinished bodies leave room for other requests, and a small push is taken", async () => {
    const memory = new Budget({ max: 2 * 1024 * 1024 });
    const requestBytesMax = 1024 * 1024;
    await using http = await startHttp({ pushSessionMessage }, { requestBytesMax }, { memory });
    const sockets = Array.from({ length: 12 }, () => {
      const socket = rawConnection(http.server.address);
      const head = `POST ${PATH}/messages HTTP/1.1\r\n${JSON_HEAD}`;
      socket.write(`${head}Content-Length: 900000\r\n\r\n${"x".repeat(800_000)}`);
      return socket;
    });
    await expect.poll(() => memory.refused).toBeGreaterThan(9);
    expect(memory.used).toBeLessThanOrEqual(memory.max);
    const headers = { "content-type": "application/json" };
    const init = { method: "POST", headers, body: '{"payload": "x"}' };
    expect((await http.ask("/sessions/s/messages", init)).status).toBe(201);
    for (const socket of sockets) socket.destroy();
    await expect.poll(() => memory.used).toBeLessThan(100_000);
  });

  test("a refused caller gets its answer before its body is read", async () => {
    const authorize = () => {
      throw new ServiceError("permission_denied", "PERMISSION_DENIED", "not with this token");
    };
    await using http = await startHttp({}, {}, { authorizer: { authorize } });
    const socket = rawConnection(http.server.address);
    socket.write(`POST ${PATH}/messages HTTP/1.1\r\n${JSON_HEAD}Content-Length: 60000\r\n\r\n{`);
    const [answer] = await once(socket, "data");
    expect(String(answer)).toMatch(/^HTTP\/1\.1 403 /);
    await once(socket, "close");
  });

  test("connections above the limit are closed", async () => {
    await using http = await startHttp({ getSession }, { connectionsMax: 1 });
    const first = rawConnection(http.server.address);
    await once(first, "connect");
    const second = rawConnection(http.server.address);
    await once(second, "close");
    first.write(`GET ${PATH} HTTP/1.1\r\n${HEAD}\r\n`);
    const [answer] = await once(first, "data");
    expect(String(answer)).toMatch(/^HTTP\/1\.1 200 /);
    first.destroy();
  });

  test("bytes after a request do not enter the answer that is being written", async () => {
    const seen: { context?: CallContext } = {};
    await using http = await startHttp({ watchSessionMessages: quietWatch(seen) });
    const socket = rawConnection(http.server.address);
    let text = "";
    socket.on("data", (chunk: Buffer) => {
      text += chunk.toString();
    });
    socket.write(`GET ${PATH}/messages HTTP/1.1\r\n${HEAD}Accept: text/event-stream\r\n\r\n`);
    while (!text.includes("LIVE")) await once(socket, "data");
    socket.write("garbage\r\n\r\n");
    await once(socket, "close");
    expect(text.split("HTTP/1.1")).toHaveLength(2);
    expect(text).not.toContain("about:blank");
  });
});

describe("a caller that leaves", () => {
  test("a call whose body is cut off is 499, and its handler never ran", async () => {
    await using http = await startHttp();
    const socket = rawConnection(http.server.address);
    socket.write(
      `POST ${PATH}/messages HTTP/1.1\r\n${JSON_HEAD}Content-Length: 100\r\n\r\n{"payload"`,
      () => socket.resetAndDestroy(),
    );
    expect(await http.recorded("request")).toMatchObject({
      level: "info",
      status: 499,
      left: true,
      reason: "CANCELLED",
    });
  });

  test("a cancelled call aborts the signal of its handler", async () => {
    const asked = Promise.withResolvers<CallContext>();
    await using http = await startHttp({
      getSession: async (_request, context) => {
        asked.resolve(context);
        await new Promise((resolve) => context.signal.addEventListener("abort", resolve));
        return session;
      },
    });
    const leaving = new AbortController();
    const answer = http.ask("/sessions/s", { signal: leaving.signal });
    const context = await asked.promise;
    leaving.abort();
    await expect(answer).rejects.toThrow("aborted");
    expect(await http.recorded("request")).toMatchObject({ status: 499, left: true });
    expect(context.hasEnded).toBe(true);
    expect(context.signal.reason).toMatchObject({ reason: "CANCELLED" });
  });
});

describe("a stop", () => {
  test("lets a running request finish and then closes its connection", async () => {
    const asked = Promise.withResolvers<void>();
    const may = Promise.withResolvers<void>();
    const http = await startHttp({
      getSession: async () => {
        asked.resolve();
        await may.promise;
        return session;
      },
    });
    const answer = http.ask("/sessions/s");
    await asked.promise;
    const stopped = http.server.stop();
    may.resolve();
    const response = await answer;
    expect(response.status).toBe(200);
    expect(response.headers.get("connection")).toBe("close");
    expect(await response.json()).toMatchObject({ metadata: { id: "s" } });
    await stopped;
    expect(await isListening(http.server.address)).toBe(false);
  });

  test("ends streams at once, with the reason", async () => {
    const seen: { context?: CallContext; isOver?: boolean } = {};
    const http = await startHttp(
      { watchSessionMessages: quietWatch(seen) },
      { stopLimitMs: 60_000 },
    );
    const response = await http.ask("/sessions/s/messages", asStream);
    await http.server.stop();
    expect(await response.text()).toContain("SHUTTING_DOWN");
    expect(seen.context?.signal.reason).toMatchObject({ reason: "SHUTTING_DOWN" });
    expect(seen.isOver).toBe(true);
    expect(await http.recorded("request")).toMatchObject({
      level: "info",
      status: 200,
      reason: "SHUTTING_DOWN",
    });
  });

  test("answers new requests on open connections with 503", async () => {
    const asked = Promise.withResolvers<void>();
    const may = Promise.withResolvers<void>();
    const http = await startHttp({
      getSession: async () => {
        asked.resolve();
        await may.promise;
        return session;
      },
    });
    const socket = rawConnection(http.server.address);
    socket.write(`GET ${PATH} HTTP/1.1\r\n${HEAD}\r\n`);
    await asked.promise;
    const other = rawConnection(http.server.address);
    other.write(`GET ${PATH} HTTP/1.1\r\n${HEAD}`); // Its headers end after the stop began.
    await once(other, "connect");
    await http.ask("/nothing"); // Whatever came on `other` was read by now.
    const stopped = http.server.stop();
    other.write("\r\n");
    const [late] = await once(other, "data");
    expect(String(late)).toMatch(/^HTTP\/1\.1 503 /);
    expect(String(late)).toContain("SHUTTING_DOWN");
    expect(String(late).toLowerCase()).toContain("connection: close");
    may.resolve();
    const [answer] = await once(socket, "data");
    expect(String(answer)).toMatch(/^HTTP\/1\.1 200 /);
    await stopped;
    for (const one of [socket, other]) one.destroy();
  });

  test("cuts requests that outlast the limit, and logs it", async () => {
    const asked = Promise.withResolvers<CallContext>();
    const http = await startHttp(
      {
        getSession: async (_request, context) => {
          asked.resolve(context);
          return new Promise(() => undefined);
        },
      },
      { stopLimitMs: 100 },
    );
    const answer = http.ask("/sessions/s");
    const context = await asked.promise;
    await Promise.all([http.server.stop(), expect(answer).rejects.toThrow("fetch failed")]);
    expect(context.hasEnded).toBe(true);
    expect(await http.recorded("requests cut at the stop limit")).toMatchObject({
      level: "warn",
      requests: 1,
    });
  });

  test("does not wait for idle connections", async () => {
    const http = await startHttp({}, { stopLimitMs: 60_000 });
    const quiet = rawConnection(http.server.address);
    const half = rawConnection(http.server.address);
    half.write("GET / HT");
    await Promise.all([once(quiet, "connect"), once(half, "connect")]);
    await http.ask("/nothing");
    await http.server.stop();
    expect(await isListening(http.server.address)).toBe(false);
    for (const one of [quiet, half]) one.destroy();
  });
});
