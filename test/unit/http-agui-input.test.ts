/**
 * Only the used fields of an AG-UI client's body reach a route and are kept; a body that would cost
 * more memory than its size is refused. Regression: nine bodies of `{"messages":[{},{},…]}` took
 * all memory.
 */
import { createServer, type IncomingMessage, request as httpRequest } from "node:http";
import { type Duplex, duplexPair } from "node:stream";
import { text } from "node:stream/consumers";
import { setImmediate as turn } from "node:timers/promises";
import { afterEach, expect, test } from "vitest";
import { Budget } from "../../src/base/budget.ts";
import type { AguiRunRequest } from "../../src/handlers/agui-run.ts";
import { AguiInputs, INPUT_LIMITS, type InputLimits } from "../../src/http/agui-input.ts";
import { aguiRoutes } from "../../src/http/agui-routes.ts";
import { createApp } from "../../src/http/plumbing/app.ts";
import { copilotKitRoutes } from "../../src/http/copilotkit-routes.ts";
import { OpenRequests } from "../../src/http/plumbing/open-requests.ts";
import { RequestRecords } from "../../src/http/plumbing/request-records.ts";
import { UnsentFrames } from "../../src/http/sse.ts";
import { HTTP_OPTIONS, httpParts, OPEN } from "../support/http-fixture.ts";

const AGUI = "/agui/sessions/s";
const CONNECT = "/copilotkit/agent/default/connect";
const ENVELOPE = "/copilotkit";

const ended: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ended.splice(0)) await end();
});

type Limits = Partial<InputLimits> & { readonly memoryMax?: number };

async function serving({ memoryMax = 1e9, ...limits }: Limits = {}) {
  const all = new Budget({ max: memoryMax });
  const asked: AguiRunRequest[] = [];
  const over: (() => void)[] = [];
  const parts = {
    ...httpParts(),
    heartbeatMs: 60_000,
    unsent: new UnsentFrames(),
    inputs: new AguiInputs({ ...INPUT_LIMITS, ...limits }),
    /** Waits for a run until the test ends it. */
    async *runAgent(request: AguiRunRequest) {
      asked.push(request);
      yield { comment: "begun" };
      await new Promise<void>((resolve) => over.push(resolve));
    },
  };
  const app = createApp(
    {
      openRequests: new OpenRequests(),
      records: new RequestRecords(parts, HTTP_OPTIONS),
      admission: OPEN,
      isOnLoopback: false,
      serverFactory: (handle) => createServer(handle),
      memory: all,
    },
    HTTP_OPTIONS,
  );
  parts.inputs.serve(app);
  aguiRoutes(app, parts);
  copilotKitRoutes(app, parts);
  await app.ready();
  ended.push(async () => {
    for (const end of over) end();
    await app.close();
  });
  const connect = (): Duplex => {
    const [client, server] = duplexPair();
    app.server.emit("connection", server);
    ended.push(async () => client.destroy());
    return client;
  };
  const post = (path: string, body: string | undefined, headers = {}) => {
    const request = httpRequest({
      method: "POST",
      path,
      createConnection: connect,
      headers: { "content-type": "application/json", ...headers },
    });
    request.on("error", () => undefined); // The error of a client that leaves.
    const answer = new Promise<IncomingMessage>((resolve) => request.once("response", resolve));
    if (body !== undefined) request.end(body);
    return { request, answer };
  };
  return { asked, over, all, post };
}

async function problem(answer: Promise<IncomingMessage>): Promise<unknown> {
  const { statusCode: status } = await answer;
  return { status, ...JSON.parse(await text(await answer)) };
}

function bodyFor(path: string, input: object): string {
  const body = { threadId: "s", runId: "r", ...input };
  return JSON.stringify(path === ENVELOPE ? { method: "agent/connect", body } : body);
}

test.each([AGUI, CONNECT, ENVELOPE])("%s keeps only the used fields of a body", async (path) => {
  const { asked, all, post } = await serving();
  const content = "x, {[".repeat(400_000);
  const messages = [{ id: "u", role: "user", content }, { id: "r", role: "reasoning" }, {}, 7];
  const forwardedProps = { follow: true, mine: content };
  const input = { protocolVersion: "1.0", state: { content }, tools: [], messages, forwardedProps };
  const { answer } = post(path, bodyFor(path, input));
  expect((await answer).statusCode).toBe(200);
  expect(asked).toMatchObject([{ sessionId: "s", protocolVersion: "1.0", follow: path !== AGUI }]);
  expect(asked[0]?.messages).toEqual([
    { id: "u", role: "user", activityType: undefined },
    { id: "r", role: "reasoning", activityType: undefined },
  ]);
  expect(all.used).toBeLessThan(content.length); // The longer body itself is not held.
});

test.each([
  [AGUI, "messages"],
  [CONNECT, "messages"],
  [ENVELOPE, "body.messages"],
])("%s refuses too many messages", async (path, field) => {
  const { asked, all, post } = await serving();
  const messages = Array.from({ length: 20_001 }, () => ({}));
  expect(await problem(post(path, bodyFor(path, { messages })).answer)).toMatchObject({
    status: 400,
    violations: [{ field, description: `${field} must have at most 20000 messages` }],
  });
  expect(asked).toEqual([]);
  await expect.poll(() => all.used).toBeLessThan(messages.length);
});

test.each([
  ["objects", `{"messages":[${"{},".repeat(500_000)}{}]}`],
  ["lists", `{"state":${"[".repeat(1_000_001)}${"]".repeat(1_000_001)}}`],
  ["members", `{"state":{${Array.from({ length: 1_000_001 }, (_, at) => `"${at}":0`).join(",")}}}`],
])("a body with too many %s is refused before it is parsed", async (_, body) => {
  const { post } = await serving();
  expect(await problem(post(AGUI, body).answer)).toMatchObject({
    status: 400,
    detail: "the body must have at most 1000000 values",
  });
});

test("structure inside of strings is not counted, with any escapes", async () => {
  const { post } = await serving({ marksMax: 6 });
  const content = '{[,"\\'.repeat(100);
  const body = JSON.stringify({ threadId: "s", messages: [{ id: "a", content }] });
  expect((await post(AGUI, body).answer).statusCode).toBe(200);
  expect((await post(AGUI, body.replace("{", '{"x":1,"y":2,')).answer).statusCode).toBe(400);
});

test.each([
  ["threadId", AGUI],
  ["protocolVersion", AGUI],
  ["body.runId", ENVELOPE],
])("%s is refused when it is too long", async (field, path) => {
  const { post } = await serving();
  const name = field.replace("body.", "");
  const body = bodyFor(path, { [name]: "t".repeat(1_025) });
  expect(await problem(post(path, body).answer)).toMatchObject({
    status: 400,
    violations: [{ field, description: `${field} must have at most 1024 characters` }],
  });
});

test("an input that is too large is refused, with or without a Content-Length", async () => {
  const { post } = await serving({ bytesMax: 100_000 });
  const body = bodyFor(AGUI, { state: "s".repeat(100_000) });
  const refused = { status: 413, reason: "REQUEST_TOO_LARGE" };
  expect(await problem(post(AGUI, body).answer)).toMatchObject(refused);
  const { request, answer } = post(AGUI, undefined);
  request.write(body.slice(0, 60_000));
  request.end(body.slice(60_000));
  expect(await problem(answer)).toMatchObject(refused);
});

test("inputs in transfer share one memory, and one without room is refused as busy", async () => {
  const { all, post } = await serving({ memoryMax: 450_000 });
  const part = "s".repeat(120_000);
  const length = { "content-length": 200_000 };
  const first = post(AGUI, undefined, length);
  first.request.write(part);
  await expect.poll(() => all.used).toBeGreaterThan(200_000);
  const before = all.used;
  // A second body of the same length does not fit, and the first holds no more than before.
  const second = post(AGUI, undefined, length);
  second.request.write(part);
  const answer = await second.answer;
  expect(answer.headers["retry-after"]).toBe("1");
  expect(await problem(Promise.resolve(answer))).toMatchObject({
    status: 429,
    reason: "SERVER_BUSY",
  });
  expect((await post(AGUI, bodyFor(AGUI, { state: "small" })).answer).statusCode).toBe(200);
  for (const { request } of [first, second]) request.destroy();
  await expect.poll(() => all.used).toBeLessThan(before);
});

test("the kept inputs of open answers count in the same memory until the answers end", async () => {
  const { over, all, post } = await serving();
  const messages = Array.from({ length: 1_000 }, (_, at) => ({ id: `message-${at}` }));
  expect((await post(AGUI, bodyFor(AGUI, { messages })).answer).statusCode).toBe(200);
  expect(all.used).toBeGreaterThan(80_000);
  over[0]?.();
  await expect.poll(() => all.used).toBe(0);
});

test("a body that arrives byte by byte is read correctly", async () => {
  const { asked, post } = await serving();
  const { request, answer } = post(AGUI, undefined);
  const body = bodyFor(AGUI, { messages: [{ id: "ü" }] });
  for (const byte of Buffer.from(body)) {
    request.write(Buffer.of(byte));
    await turn();
  }
  request.end();
  expect((await answer).statusCode).toBe(200);
  expect(asked[0]?.messages).toMatchObject([{ id: "ü" }]);
});
