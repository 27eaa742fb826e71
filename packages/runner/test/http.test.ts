/** The endpoints of a runner over real HTTP, without a ledger behind them. */
import { once } from "node:events";
import { request as httpRequest } from "node:http";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  type Adapter,
  type AgentEvent,
  capabilitiesOf,
  type FrameworkCapabilities,
  PlatformBridge,
  RunInProgress,
} from "@session-ledger/runner/internal/sdk/bridge";
import {
  type EndpointParts,
  endpointsOf,
  type Feedback,
  ROUTES,
} from "@session-ledger/runner/internal/sdk/http/endpoints";
import { listen } from "@session-ledger/runner/internal/sdk/http/server";

class TestBridge extends PlatformBridge {
  readonly #capabilities: Partial<FrameworkCapabilities>;
  readonly #run: Adapter["run"];
  readonly models: (string | undefined)[] = [];

  constructor(run: Adapter["run"] = () => eventsOf([]), own: Partial<FrameworkCapabilities> = {}) {
    super();
    this.#run = run;
    this.#capabilities = own;
  }

  createAdapter({ model }: { readonly model?: string }) {
    this.models.push(model);
    return { run: this.#run };
  }

  capabilities() {
    return capabilitiesOf({ framework: "test", ...this.#capabilities });
  }
}

async function* eventsOf(events: readonly AgentEvent[]): AsyncGenerator<AgentEvent> {
  yield* events;
}

/** Serves the endpoints; `context` has the model, as a runner's has. */
async function serve(bridge: PlatformBridge, parts: Partial<EndpointParts> = {}) {
  const context: { model?: string } = {};
  const fetch = endpointsOf({
    bridge,
    begin: async (input, signal, caller) => {
      if (bridge.isRunning(input.threadId)) throw new RunInProgress(input.threadId);
      const platform = { ...context, sessionId: input.threadId, isContinuation: false };
      return bridge.run(input, platform, signal, caller);
    },
    switchModel(model) {
      const earlier = context.model;
      context.model = model;
      return earlier;
    },
    ...parts,
  });
  const server = await listen(fetch, { port: 0 });
  onTestFinished(() => server.stop());
  return `http://${server.address}`;
}

function post(url: string, body: unknown, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
}

/** The events of a stream of server-sent events. */
async function eventsIn(response: Response): Promise<readonly AgentEvent[]> {
  expect(response.headers.get("content-type")).toBe("text/event-stream");
  const frames = (await response.text())
    .split("\n\n")
    .filter((frame) => frame.startsWith("data: "));
  return frames.map((frame): AgentEvent => JSON.parse(frame.slice("data: ".length)));
}

const INPUT = { threadId: "s", runId: "r", messages: [{ id: "m", role: "user", content: "hi" }] };
const ALL = { fileSystem: true, mcp: true };

describe("routes", () => {
  test.each(ROUTES.map(({ method, path, needs }) => ({ method, path, needs })))(
    "$method $path is served only by a runner that has what it needs ($needs)",
    async ({ method, path, needs }) => {
      const without = await serve(new TestBridge());
      const refused = await fetch(`${without}${path}`, { method });
      expect(refused.status === 404).toBe(needs !== undefined);
      const giveFeedback = () => Promise.resolve();
      const withAll = await serve(new TestBridge(undefined, ALL), { giveFeedback });
      expect((await fetch(`${withAll}${path}`, { method })).status).not.toBe(404);
    },
  );

  test("an unknown path is 404, and another method is 405 with the right one", async () => {
    const url = await serve(new TestBridge());
    expect((await fetch(`${url}/nothing`)).status).toBe(404);
    const wrong = await fetch(`${url}/interrupt`);
    expect([wrong.status, wrong.headers.get("allow")]).toEqual([405, "POST"]);
  });

  test("routes are found behind a prefix, with or without a slash at the end", async () => {
    const url = await serve(new TestBridge(), { prefix: "/agent/" });
    expect((await fetch(`${url}/agent/health/`)).status).toBe(200);
    expect((await post(`${url}/agent`, INPUT)).status).toBe(200);
    expect((await fetch(`${url}/agents/health`)).status).toBe(404);
  });

  test("the capabilities name the features of the served routes", async () => {
    const url = await serve(new TestBridge(undefined, { fileSystem: true }), { sessionId: "s" });
    expect(await (await fetch(`${url}/capabilities`)).json()).toEqual({
      framework: "test",
      agent_features: [],
      file_system: true,
      mcp: false,
      session_persistence: false,
      streaming: true,
      thinking: false,
      tool_use: true,
      tracing: null,
      platform_features: ["model_switch", "repos", "workflow"],
      session_id: "s",
    });
  });
});

describe("the runner's token", () => {
  test("is needed for every path but /health, known or not", async () => {
    const url = await serve(new TestBridge(undefined, ALL), { runnerToken: "right" });
    for (const { method, path } of [...ROUTES, { method: "GET", path: "/nothing" }]) {
      const status = async (authorization?: string): Promise<number> => {
        const headers = authorization === undefined ? {} : { authorization };
        return (await fetch(`${url}${path}`, { method, headers })).status;
      };
      const statuses = [await status(), await status("Bearer wrong"), await status("Bearer right")];
      const refused = path === "/health" ? [false, false, false] : [true, true, false];
      expect([path, statuses.map((one) => one === 401)]).toEqual([path, refused]);
    }
  });

  test("is refused when it is empty", () => {
    const parts = {
      bridge: new TestBridge(),
      begin: async () => eventsOf([]),
      switchModel: () => undefined,
    };
    expect(() => endpointsOf({ ...parts, runnerToken: "" })).toThrow("runnerToken");
  });
});

describe("POST /", () => {
  test("takes both spellings, and hands over the caller of the platform's headers", async () => {
    const seen: unknown[] = [];
    const bridge = new TestBridge((input, _, caller) => {
      seen.push(input, caller);
      return eventsOf([{ type: "RAW", event: 1 }]);
    });
    const url = await serve(bridge);
    const body = {
      thread_id: "s",
      run_id: "r",
      forwarded_props: { my_key: 1 },
      context: { ignored: true },
      messages: [
        { id: "a", role: "assistant", tool_calls: [{ id: "t", function: {} }] },
        { id: "b", role: "tool", tool_call_id: "t", content: "x", my_own: { snake_case: 1 } },
      ],
      resume: [{ interrupt_id: "i", status: "resolved", payload: { a_b: 1 } }],
    };
    const headers = {
      "x-current-user-id": "u-1",
      "x-current-user-name": "Ada",
      "x-caller-token": "secret",
    };
    expect(await eventsIn(await post(url, body, headers))).toEqual([{ type: "RAW", event: 1 }]);
    expect(seen).toEqual([
      {
        threadId: "s",
        runId: "r",
        state: {},
        tools: [],
        context: [],
        forwardedProps: { my_key: 1 },
        messages: [
          { id: "a", role: "assistant", toolCalls: [{ id: "t", function: {} }] },
          { id: "b", role: "tool", toolCallId: "t", content: "x", my_own: { snake_case: 1 } },
        ],
        resume: [{ interruptId: "i", status: "resolved", payload: { a_b: 1 } }],
      },
      { userId: "u-1", userName: "Ada", token: "secret" },
    ]);
  });

  test.each([
    ["not JSON", "{", undefined],
    ["a list", [], undefined],
    ["no messages", { threadId: "s" }, "messages"],
    ["messages that are no list", { messages: {} }, "messages"],
    ["a message that is no object", { messages: [1] }, "messages[0]"],
    ["a message without a role", { messages: [{ id: "x" }] }, "messages[0].role"],
    ["two thread ids", { ...INPUT, thread_id: "other" }, "threadId"],
    ["the thread of another session", { ...INPUT, threadId: "other" }, "threadId"],
    ["a run id that is no text", { ...INPUT, runId: 1 }, "runId"],
    ["tools that are no list", { ...INPUT, tools: 1 }, "tools"],
    ["an answer without its interrupt", { ...INPUT, resume: [{}] }, "resume[0].interruptId"],
    [
      "an answer without a status",
      { ...INPUT, resume: [{ interruptId: "i" }] },
      "resume[0].status",
    ],
  ])("refuses %s with the name of the field", async (_, body, field) => {
    const url = await serve(new TestBridge(), { sessionId: "s" });
    const response = await post(url, body);
    expect(response.status).toBe(400);
    expect(await response.json()).toEqual({
      detail: expect.stringContaining(field ?? "the body"),
      ...(field !== undefined && { field }),
    });
  });

  test("refuses a body that is too large", async () => {
    const url = await serve(new TestBridge());
    expect((await post(url, "x".repeat(16 * 1_024 * 1_024 + 1))).status).toBe(413);
  });

  test("sends a placeholder for a result that is too long, and the run continues", async () => {
    const content = "x".repeat(10 * 1_024 * 1_024);
    const events = [
      { type: "TOOL_CALL_RESULT", messageId: "m", toolCallId: "t", content },
      { type: "RAW", event: 2n },
    ];
    const url = await serve(new TestBridge(() => eventsOf(events)));
    const [result, ...rest] = await eventsIn(await post(url, INPUT));
    expect(result).toMatchObject({ type: "TOOL_CALL_RESULT", messageId: "m", toolCallId: "t" });
    expect(result?.["content"]).toContain("cannot be shown: its size");
    expect(rest).toEqual([{ type: "RAW", event: 2 }]);
  });

  test("sends RUN_ERROR for another event that is too long, and ends the run", async () => {
    const ended = Promise.withResolvers<unknown>();
    const bridge = new TestBridge(async function* (_, signal) {
      yield { type: "STATE_SNAPSHOT", snapshot: "x".repeat(10 * 1_024 * 1_024) };
      if (!signal.aborted) await once(signal, "abort");
      ended.resolve(signal.reason);
    });
    const events = await eventsIn(await post(await serve(bridge), INPUT));
    expect(events).toEqual([
      { type: "RUN_ERROR", message: expect.stringContaining("STATE_SNAPSHOT cannot be sent") },
    ]);
    expect(await ended.promise).toMatchObject({ name: "AbortError" });
  });

  test("sends the error of an agent as RUN_ERROR", async () => {
    const bridge = new TestBridge(() => {
      throw new Error("no model");
    });
    expect(await eventsIn(await post(await serve(bridge), INPUT))).toEqual([
      { type: "RUN_ERROR", message: "no model" },
    ]);
  });

  test("aborts the run when its reader leaves, and refuses a second one meanwhile", async () => {
    const ended = Promise.withResolvers<unknown>();
    const bridge = new TestBridge(async function* (_, signal) {
      yield { type: "RAW", event: 1 };
      await once(signal, "abort");
      ended.resolve(signal.reason);
    });
    const url = await serve(bridge);
    const leaving = new AbortController();
    const body = JSON.stringify(INPUT);
    const first = await fetch(url, { method: "POST", body, signal: leaving.signal });
    await first.body?.getReader().read();
    expect((await post(url, INPUT)).status).toBe(409);
    leaving.abort();
    expect(await ended.promise).toMatchObject({ name: "AbortError" });
  });

  test("takes no more events than its reader reads, in any server", async () => {
    let made = 0;
    const ended = Promise.withResolvers<unknown>();
    const bridge = new TestBridge(async function* (_, signal) {
      signal.addEventListener("abort", () => ended.resolve(signal.reason));
      for (; made < 1_000; made += 1) yield { type: "RAW", event: made };
    });
    const begin: EndpointParts["begin"] = async (input, signal) =>
      bridge.run(input, { sessionId: input.threadId, isContinuation: false }, signal);
    const serveRequest = endpointsOf({ bridge, begin, switchModel: () => undefined });
    const body = JSON.stringify(INPUT);
    const response = await serveRequest(new Request("http://runner/", { method: "POST", body }));
    const reader = response.body?.getReader();
    await reader?.read();
    // A stream that ran ahead would have made all of its events in these turns.
    for (let turn = 0; turn < 100; turn += 1) await new Promise(setImmediate);
    expect(made).toBeLessThan(5);
    await reader?.cancel();
    expect(await ended.promise).toMatchObject({ message: "the reader left" });
  });
});

describe("POST /interrupt", () => {
  test("ends the run of a thread, in either spelling, or all runs", async () => {
    const bridge = new TestBridge(async function* (_, signal) {
      yield { type: "RAW", event: 1 };
      await once(signal, "abort");
    });
    const url = await serve(bridge);
    for (const body of [{ thread_id: "s" }, { threadId: "s" }, {}, ""]) {
      const run = await post(url, INPUT);
      await run.body?.getReader().read();
      expect(await (await post(`${url}/interrupt`, { thread_id: "other" })).json()).toEqual({
        interrupted: 0,
      });
      expect(await (await post(`${url}/interrupt`, body)).json()).toEqual({ interrupted: 1 });
    }
    expect((await post(`${url}/interrupt`, { threadId: 1 })).status).toBe(400);
  });
});

describe("POST /feedback", () => {
  test("gives a thumb in either spelling, and refuses other events", async () => {
    const given: Feedback[] = [];
    const giveFeedback = (feedback: Feedback) => Promise.resolve(given.push(feedback));
    const url = `${await serve(new TestBridge(), { giveFeedback })}/feedback`;
    const payload = { messageId: "m", traceId: "t", comment: "good" };
    const up = { type: "META", metaType: "thumbs_up", threadId: "s", payload };
    expect((await post(url, up)).status).toBe(200);
    const down = { type: "META", meta_type: "thumbs_down", thread_id: "s" };
    expect((await post(url, { ...down, payload: { message_id: "m" } })).status).toBe(200);
    expect(given).toEqual([
      { sessionId: "s", kind: "thumbs_up", ...payload },
      { sessionId: "s", kind: "thumbs_down", messageId: "m", comment: "", traceId: "" },
    ]);
    for (const [body, field] of [
      [{ ...up, type: "RAW" }, "type"],
      [{ ...up, metaType: "star" }, "metaType"],
      [{ ...up, payload: 1 }, "payload"],
      [{ ...up, payload: {} }, "payload.messageId"],
      [{ ...up, threadId: "" }, "threadId"],
      [{ ...up, payload: { ...payload, comment: 1 } }, "payload.comment"],
    ] as const) {
      const refused = await post(url, body);
      expect([refused.status, await refused.json()]).toEqual([
        400,
        { detail: expect.stringContaining(field), field },
      ]);
    }
    expect(given.length).toBe(2);
  });

  test("of another session than that of the runner is refused, and not given to that one", async () => {
    const given: Feedback[] = [];
    const giveFeedback = (feedback: Feedback) => Promise.resolve(given.push(feedback));
    const url = `${await serve(new TestBridge(), { giveFeedback, sessionId: "s" })}/feedback`;
    const up = { type: "META", metaType: "thumbs_up", payload: { messageId: "m" } };
    for (const [body, field] of [
      [{ ...up, threadId: "other" }, "threadId"],
      [{ ...up, payload: { ...up.payload, sessionId: "other" } }, "payload.sessionId"],
    ] as const) {
      const refused = await post(url, body);
      const detail = `${field} must be "s", the session of this runner`;
      expect([refused.status, await refused.json()]).toEqual([400, { detail, field }]);
    }
    expect((await post(url, { ...up, threadId: "s" })).status).toBe(200);
    expect(given).toMatchObject([{ sessionId: "s" }]);
  });
});

describe("POST /model", () => {
  test("makes the next adapter with the new model, and notes the switch", async () => {
    const bridge = new TestBridge();
    const url = await serve(bridge);
    const models = ["first", "second", "second"];
    for (const model of models) {
      expect((await post(`${url}/model`, { model: ` ${model} ` })).status).toBe(200);
      await eventsIn(await post(url, INPUT));
    }
    expect(bridge.models).toEqual(models);
    expect(bridge.notes.take("s")).toEqual([
      {
        type: "CUSTOM",
        name: "ambient:model_switched",
        value: { previousModel: null, newModel: "first" },
      },
      {
        type: "CUSTOM",
        name: "ambient:model_switched",
        value: { previousModel: "first", newModel: "second" },
      },
    ]);
  });

  test("is 400 without a model, 409 during another switch, 422 during a run", async () => {
    const began = Promise.withResolvers<void>();
    const goOn = Promise.withResolvers<void>();
    class Slow extends TestBridge {
      override async switchModel() {
        began.resolve();
        await goOn.promise;
      }
    }
    const bridge = new Slow(async function* (_, signal) {
      yield { type: "RAW", event: 1 };
      await once(signal, "abort");
    });
    const url = await serve(bridge);
    const statusOf = async (model: unknown) => (await post(`${url}/model`, { model })).status;
    expect([await statusOf(" "), await statusOf(undefined), await statusOf(1)]).toEqual([
      400, 400, 400,
    ]);
    const first = statusOf("a");
    await began.promise;
    expect(await statusOf("b")).toBe(409);
    goOn.resolve();
    expect(await first).toBe(200);
    const run = await post(url, INPUT);
    await run.body?.getReader().read();
    expect(await statusOf("c")).toBe(422);
  });

  test("is refused as the bridge refuses it, and the old model stays", async () => {
    class Strict extends TestBridge {
      override switchModel(model: string) {
        if (model === "bad") throw Object.assign(new Error("no such model"), { status: 404 });
      }
    }
    const bridge = new Strict();
    const url = await serve(bridge);
    const refused = await post(`${url}/model`, { model: "bad" });
    expect([refused.status, await refused.json()]).toEqual([404, { detail: "no such model" }]);
    await eventsIn(await post(url, INPUT));
    expect(bridge.models).toEqual([undefined]);
    expect((await post(`${url}/model`, { model: "good" })).status).toBe(200);
  });
});

describe("the routes of a file system", () => {
  test("are handled by the bridge; a change makes new adapters, and a note", async () => {
    class Files extends TestBridge {
      readonly seen: unknown[] = [];
      override addRepo(body: object, headers: Headers) {
        this.seen.push(body, headers.get("x-github-token"));
        return { name: "a", newly_cloned: this.seen.length === 2 };
      }
      override getReposStatus() {
        return { repos: ["a"] };
      }
    }
    const bridge = new Files(undefined, ALL);
    const url = await serve(bridge);
    await eventsIn(await post(url, INPUT));
    const body = { url: "https://example.org/a.git" };
    const added = await post(`${url}/repos/add`, body, { "x-github-token": "t" });
    expect(await added.json()).toEqual({ name: "a", newly_cloned: true });
    await post(`${url}/repos/add`, body);
    await eventsIn(await post(url, INPUT));
    expect(bridge.seen).toEqual([body, "t", body, null]);
    expect(bridge.models.length).toBe(2);
    expect(bridge.notes.take("s")).toEqual([
      { type: "CUSTOM", name: "ambient:repo_added", value: body },
    ]);
    expect(await (await fetch(`${url}/repos/status`)).json()).toEqual({ repos: ["a"] });
    expect((await post(`${url}/workflow`, {})).status).toBe(501);
    expect(await (await fetch(`${url}/mcp/status`)).json()).toEqual({ servers: [] });
  });
});

test("the server answers 400 to a method that the web's Request refuses", async () => {
  const url = new URL(await serve(new TestBridge()));
  const request = httpRequest({ host: url.hostname, port: url.port, method: "TRACE" });
  request.end();
  const [response] = await once(request, "response");
  expect(response.statusCode).toBe(400);
  response.resume();
});
