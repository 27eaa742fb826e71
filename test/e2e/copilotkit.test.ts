/** CopilotKit's own client against the running service: what it asks of a runtime, and what it shows. */
import {
  CopilotKitCore,
  CopilotKitCoreRuntimeConnectionStatus,
  type ProxiedCopilotRuntimeAgent,
} from "@copilotkit/core";
import { afterEach, describe, expect, test, vi } from "vitest";
import { z } from "zod";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { AGUI_CLIENTS, type Conversation } from "../support/agui-clients.ts";
import { newSession, push } from "../support/pushing.ts";
import { type UsedService, useService } from "../support/use-service.ts";
import { useQuietConsole } from "../support/quiet-console.ts";

const { service, client: rpc } = useService();
const { service: strict } = useService("strict");
useQuietConsole();
afterEach(() => {
  vi.unstubAllGlobals();
});

type Event = Readonly<Record<string, unknown>> & { readonly type: string };

async function pushAll(sessionId: string, events: readonly Event[]): Promise<void> {
  for (const event of events) {
    const { type: eventType } = event;
    await push(rpc, "events", { sessionId, eventType, payload: JSON.stringify(event) });
  }
}

async function sessionOf(events: readonly Event[]): Promise<string> {
  const sessionId = newSession();
  await pushAll(sessionId, events);
  return sessionId;
}

function started(runId: string, more: object = {}): Event {
  return { type: "RUN_STARTED", threadId: "t", runId, ...more };
}

function finished(runId: string, more: object = {}): Event {
  return { type: "RUN_FINISHED", threadId: "t", runId, ...more };
}

function said(messageId: string, ...deltas: readonly string[]): readonly Event[] {
  return [
    { type: "TEXT_MESSAGE_START", messageId, role: "assistant" },
    ...deltas.map((delta): Event => ({ type: "TEXT_MESSAGE_CONTENT", messageId, delta })),
    { type: "TEXT_MESSAGE_END", messageId },
  ];
}

interface Page {
  readonly core: CopilotKitCore;
  readonly agent: ProxiedCopilotRuntimeAgent;
  /** The codes of the errors that the core gave to the page. */
  readonly errors: readonly string[];
}

/** A chat on a page, as far as it is not drawn. */
function page(
  options: {
    readonly runtimeAgentId?: string;
    readonly properties?: Record<string, unknown>;
    readonly of?: UsedService;
  } = {},
): Page {
  const { runtimeAgentId = "default", properties = {}, of: { httpAddress } = service } = options;
  const core = new CopilotKitCore({
    runtimeUrl: `http://${httpAddress}/copilotkit`,
    properties,
  });
  const errors: string[] = [];
  core.subscribe({ onError: ({ code, error }) => void errors.push(`${code}: ${error.message}`) });
  const { agent } = core.registerProxiedAgent({ agentId: "viewer", runtimeAgentId });
  return { core, agent, errors };
}

async function shownOn(
  chat: Page,
  threadId: string,
): Promise<Pick<Conversation, "messages" | "state">> {
  const { core, agent } = chat;
  agent.threadId = threadId;
  await core.connectAgent({ agent });
  return { messages: agent.messages, state: agent.state };
}

/** What the client shows that is given the events themselves. */
async function seenOf(events: readonly Event[]): Promise<Pick<Conversation, "messages" | "state">> {
  const client = AGUI_CLIENTS.find(({ name }) => name === "@copilotkit/core");
  if (client === undefined) throw new Error("CopilotKit is no client");
  const { messages, state } = await client.fed(events.map((event) => JSON.stringify(event)));
  return { messages, state };
}

const problemSchema = z.object({
  status: z.number(),
  detail: z.string(),
  reason: z.string(),
  violations: z.array(z.object({ field: z.string() })).default([]),
});

async function post(path: string, body?: unknown): Promise<Response> {
  const init = { method: "POST", headers: { "content-type": "application/json" } };
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return fetch(`http://${service.httpAddress}${path}`, { ...init, body: text ?? null });
}

async function problemOf(response: Response): Promise<z.infer<typeof problemSchema>> {
  expect(response.headers.get("content-type")).toBe("application/problem+json");
  return problemSchema.parse(await response.json());
}

describe("the first request of a chat", () => {
  test("the core learns of the agent `default`, and only connecting is offered", async () => {
    vi.stubGlobal("window", {}); // Outside of a browser the core does not ask by itself.
    const runtimeUrl = `http://${service.httpAddress}/copilotkit`;
    const core = new CopilotKitCore({ runtimeUrl });
    await new Promise<void>((resolve, reject) => {
      core.subscribe({
        onRuntimeConnectionStatusChanged: ({ status }) => {
          if (status === CopilotKitCoreRuntimeConnectionStatus.Connected) resolve();
        },
        onError: ({ error }) => reject(error),
      });
    });
    expect(Object.keys(core.agents)).toEqual(["default"]);
    expect(core.runtimeTransport).toBe("rest");
    expect(core.runtimeMode).toBe("sse");
    expect(core.threadEndpoints).toEqual({
      list: false,
      inspect: false,
      mutations: false,
      realtimeMetadata: false,
    });
    expect(core.audioFileTranscriptionEnabled).toBe(false);
    expect(core.telemetryDisabled).toBe(true);
    const sessionId = await sessionOf([started("r1"), ...said("m1", "Hi"), finished("r1")]);
    const agent = core.agents["default"];
    if (agent === undefined) throw new Error("it was there a moment ago");
    agent.threadId = sessionId;
    await core.connectAgent({ agent });
    expect(agent.messages).toEqual([{ id: "m1", role: "assistant", content: "Hi" }]);
  });

  test("a core in single-endpoint mode gets every answer through that endpoint", async () => {
    const runtimeUrl = `http://${service.httpAddress}/copilotkit`;
    const core = new CopilotKitCore({ runtimeUrl, runtimeTransport: "single" });
    const names = { agentId: "viewer", runtimeAgentId: "default" };
    const { agent } = core.registerProxiedAgent(names);
    const sessionId = await sessionOf([started("r1"), ...said("m1", "Hi"), finished("r1")]);
    agent.threadId = sessionId;
    await core.connectAgent({ agent });
    expect(agent.messages).toEqual([{ id: "m1", role: "assistant", content: "Hi" }]);
  });

  test("an agent of any name serves the session of the thread id", async () => {
    const sessionId = await sessionOf([started("r1"), ...said("m1", "Hi"), finished("r1")]);
    for (const runtimeAgentId of ["default", "weather", "my agent", "ä"]) {
      const chat = page({ runtimeAgentId });
      const { messages } = await shownOn(chat, sessionId);
      expect(messages).toEqual([{ id: "m1", role: "assistant", content: "Hi" }]);
      expect(chat.errors).toEqual([]);
    }
  });
});

describe("a thread without a run", () => {
  test("opens as an empty chat that does not wait", async () => {
    const threads = [newSession(), newSession()] as const;
    // Is there, and has nothing to show.
    await push(rpc, "messages", { sessionId: threads[1], eventType: "lifecycle" });
    for (const threadId of threads) {
      const chat = page();
      expect(await shownOn(chat, threadId)).toEqual({ messages: [], state: {} });
      expect(chat.agent.isRunning).toBe(false); // Or the chat would take no input.
      expect(chat.errors).toEqual([]);
    }
  });

  test("opens as an empty chat for an unknown session in strict mode", async () => {
    const chat = page({ of: strict });
    expect(await shownOn(chat, newSession())).toEqual({ messages: [], state: {} });
    expect(chat.errors).toEqual([]);
  });

  test("is shown once it has a run", async () => {
    const chat = page();
    const threadId = newSession();
    await shownOn(chat, threadId);
    await pushAll(threadId, [started("r1"), ...said("m1", "Hi"), finished("r1")]);
    const { messages } = await shownOn(chat, threadId);
    expect(messages).toEqual([{ id: "m1", role: "assistant", content: "Hi" }]);
  });
});

describe("a run that has not ended", () => {
  test("is followed to its end, and the chat is busy until then", async () => {
    const [first, second, ...rest] = [started("r1"), ...said("m1", "Hel", "lo"), finished("r1")];
    if (first === undefined || second === undefined) throw new Error("there are five");
    const chat = page();
    chat.agent.threadId = await sessionOf([first, second]);
    const joined = Promise.withResolvers<void>();
    chat.agent.subscribe({ onRunStartedEvent: () => joined.resolve() });
    const connected = chat.core.connectAgent({ agent: chat.agent });
    await joined.promise;
    expect(chat.agent.isRunning).toBe(true);
    await pushAll(chat.agent.threadId, rest);
    await connected;
    expect(chat.agent.isRunning).toBe(false);
    expect(chat.agent.messages).toEqual([{ id: "m1", role: "assistant", content: "Hello" }]);
    expect(chat.errors).toEqual([]);
  });

  test("with the property `follow` the chat waits for a run, and stays for further ones", async () => {
    const chat = page({ properties: { follow: true } });
    chat.agent.threadId = newSession();
    const both = Promise.withResolvers<void>();
    const first = Promise.withResolvers<void>();
    chat.agent.subscribe({
      onRunFinishedEvent: ({ event }) => (event.runId === "r1" ? first : both).resolve(),
    });
    const connected = chat.core.connectAgent({ agent: chat.agent });
    await pushAll(chat.agent.threadId, [started("r1"), ...said("m1", "One"), finished("r1")]);
    await first.promise;
    await pushAll(chat.agent.threadId, [started("r2"), ...said("m2", "Two"), finished("r2")]);
    await both.promise;
    expect(chat.agent.messages).toMatchObject([{ content: "One" }, { content: "Two" }]);
    expect(chat.agent.isRunning).toBe(true);
    chat.agent.abortController.abort(); // As a chat does that goes from the page.
    await connected;
    expect(chat.errors).toEqual([]);
  });
});

describe("a chat shows the same as a client that received the events", () => {
  const state = [
    { type: "STATE_SNAPSHOT", snapshot: { count: 1, list: ["a"] } },
    { type: "STATE_DELTA", delta: [{ op: "add", path: "/list/-", value: "b" }] },
  ] as const;
  const call = [
    { type: "TOOL_CALL_START", toolCallId: "c1", toolCallName: "add", parentMessageId: "m1" },
    { type: "TOOL_CALL_ARGS", toolCallId: "c1", delta: '{"a":1' },
    { type: "TOOL_CALL_ARGS", toolCallId: "c1", delta: "}" },
    { type: "TOOL_CALL_END", toolCallId: "c1" },
    { type: "TOOL_CALL_RESULT", messageId: "t1", toolCallId: "c1", content: "1" },
  ] as const;
  const asked = {
    input: {
      threadId: "t",
      runId: "r2",
      messages: [{ id: "u1", role: "user", content: "And?" }],
      tools: [],
      context: [],
    },
  };
  const cases: Readonly<Record<string, readonly Event[]>> = {
    "several runs, with state that changes across them": [
      started("r1"),
      ...state,
      ...said("m1", "One"),
      finished("r1"),
      started("r2", asked),
      { type: "STATE_DELTA", delta: [{ op: "replace", path: "/count", value: 2 }] },
      ...said("m2", "Two"),
      finished("r2"),
    ],
    "a run that failed with a text and a tool call open": [
      started("r1"),
      { type: "STEP_STARTED", stepName: "s" },
      ...said("m1", "Let me see").slice(0, 2),
      ...call.slice(0, 2),
      { type: "RUN_ERROR", message: "lost", code: "NETWORK" },
    ],
    "and one after it": [
      started("r1"),
      ...said("m1", "I was sa").slice(0, 2),
      { type: "RUN_ERROR", message: "lost" },
      started("r2"),
      ...said("m2", "Sorry"),
      finished("r2"),
    ],
    "a tool call and its result": [started("r1"), ...said("m1", "Hm"), ...call, finished("r1")],
    reasoning: [
      started("r1"),
      { type: "REASONING_START", messageId: "g" },
      { type: "REASONING_MESSAGE_START", messageId: "g1", role: "reasoning" },
      { type: "REASONING_MESSAGE_CONTENT", messageId: "g1", delta: "First" },
      { type: "REASONING_MESSAGE_END", messageId: "g1" },
      { type: "REASONING_END", messageId: "g" },
      {
        type: "REASONING_ENCRYPTED_VALUE",
        subtype: "message",
        entityId: "g1",
        encryptedValue: "x",
      },
      ...said("m1", "Then"),
      finished("r1"),
    ],
    chunks: [
      started("r1"),
      { type: "TEXT_MESSAGE_CHUNK", messageId: "m1", role: "assistant", delta: "He" },
      { type: "TEXT_MESSAGE_CHUNK", delta: "re" },
      {
        type: "TOOL_CALL_CHUNK",
        toolCallId: "c1",
        toolCallName: "add",
        parentMessageId: "m1",
        delta: "{}",
      },
      finished("r1"),
    ],
    activities: [
      started("r1"),
      { type: "ACTIVITY_SNAPSHOT", messageId: "a1", activityType: "PLAN", content: { steps: [1] } },
      {
        type: "ACTIVITY_DELTA",
        messageId: "a1",
        activityType: "PLAN",
        patch: [{ op: "add", path: "/steps/-", value: 2 }],
      },
      finished("r1"),
    ],
    "messages that were replaced": [
      started("r1"),
      ...said("m1", "One"),
      { type: "MESSAGES_SNAPSHOT", messages: [{ id: "m2", role: "user", content: "Two" }] },
      ...said("m3", "Three"),
      finished("r1"),
    ],
  };

  test.each(Object.entries(cases))("%s", async (_, events) => {
    const expected = await seenOf(events);
    expect(expected.messages).not.toEqual([]);
    const threadId = await sessionOf(events);
    const chat = page();
    expect(await shownOn(chat, threadId)).toEqual(expected);
    expect(await shownOn(chat, threadId)).toEqual(expected); // The text is not there twice.
    const other = await sessionOf([started("r1"), ...said("o1", "Other"), finished("r1")]);
    expect(await shownOn(chat, other)).toMatchObject({ messages: [{ id: "o1" }] });
    expect(await shownOn(chat, threadId)).toEqual(expected);
    expect(chat.errors.filter((error) => !error.startsWith("agent_run_error_event"))).toEqual([]);
  });

  test("an error of the run reaches the page", async () => {
    const chat = page();
    await shownOn(chat, await sessionOf([started("r1"), { type: "RUN_ERROR", message: "lost" }]));
    expect(chat.errors).toEqual(["agent_run_error_event: lost"]);
  });

  test("a pending interrupt is shown, and an answered one is not", async () => {
    const interrupts = [{ id: "i1", reason: "confirm", message: "Sure?" }];
    const first = [started("r1"), finished("r1", { outcome: { type: "interrupt", interrupts } })];
    const threadId = await sessionOf(first);
    const chat = page();
    await shownOn(chat, threadId);
    expect(chat.agent.pendingInterrupts).toMatchObject([{ id: "i1" }]);
    await pushAll(threadId, [started("r2"), ...said("m1", "Yes"), finished("r2")]);
    const later = page();
    await shownOn(later, threadId);
    expect(later.agent.pendingInterrupts).toEqual([]);
    expect([...chat.errors, ...later.errors]).toEqual([]);
  });
});

describe("a request that is refused", () => {
  test("a typed message stays in a chat that connects with it, and is not stored", async () => {
    const threadId = await sessionOf([started("r1"), ...said("m1", "Hi"), finished("r1")]);
    const chat = page();
    await shownOn(chat, threadId);
    const typed = { id: "typed", role: "user", content: "And?" } as const;
    chat.agent.addMessage(typed);
    await shownOn(chat, threadId);
    expect(chat.agent.messages).toEqual([{ id: "m1", role: "assistant", content: "Hi" }, typed]);
    expect(chat.errors.join()).toContain("message typed is not stored");
    const other = await sessionOf([started("o1"), ...said("o", "Other"), finished("o1")]);
    expect(await shownOn(chat, other)).toMatchObject({ messages: [{ id: "o" }] });
  });

  test.each([["/copilotkit", { method: "transcribe" }]])("POST %s", async (path, body) => {
    const { status, reason, detail } = await problemOf(await post(path, body));
    expect({ status, reason }).toEqual({ status: 501, reason: "NOT_IMPLEMENTED" });
    expect(detail).toContain("runs no agents");
  });

  const good = { threadId: "s1", runId: "r", state: {}, messages: [], tools: [], context: [] };
  const connect = "/copilotkit/agent/default/connect";
  test.each([
    ["no body", connect, "", ""],
    ["no JSON", connect, "{", ""],
    ["a list", connect, "[]", ""],
    ["no thread", connect, { ...good, threadId: undefined }, "threadId"],
    ["a number as thread", connect, { ...good, threadId: 1 }, "threadId"],
    ["a thread that is no session id", connect, { ...good, threadId: "a/b" }, "threadId"],
    ["a version that is no text", connect, { ...good, protocolVersion: 1 }, "protocolVersion"],
    ["a version not served", connect, { ...good, protocolVersion: "0.0.58" }, "protocolVersion"],
    ["no method", "/copilotkit", {}, "method"],
    ["no thread", "/copilotkit/agent/default/run", { ...good, threadId: undefined }, "threadId"],
    ["no input", "/copilotkit", { method: "agent/connect" }, "body"],
    ["no input", "/copilotkit", { method: "agent/run" }, "body"],
    ["a thread that is no session id", "/copilotkit/agent/default/stop/a!b", undefined, "thread"],
    ["no thread", "/copilotkit", { method: "agent/stop" }, "params.threadId"],
    ["no thread", "/copilotkit", { method: "agent/connect", body: {} }, "body.threadId"],
  ])("%s to %s", async (_, path, body, field) => {
    const { status, reason, violations } = await problemOf(await post(path, body));
    expect({ status, reason }).toEqual({ status: 400, reason: "INVALID_REQUEST" });
    expect(violations.map((violation) => violation.field)).toEqual([field]);
  });

  test("a deleted session is 404, and the page gets the reason", async () => {
    const threadId = await sessionOf([started("r1"), finished("r1")]);
    await rpc.unary(SessionService.method.deleteSession, { id: threadId });
    const { status, reason } = await problemOf(await post(connect, { ...good, threadId }));
    expect({ status, reason }).toEqual({ status: 404, reason: "SESSION_DELETED" });
    const chat = page();
    await shownOn(chat, threadId);
    expect(chat.errors.join()).toContain("deleted");
  });

  test("routes of CopilotKit's cloud are not served", async () => {
    const response = await fetch(
      `http://${service.httpAddress}/copilotkit/threads?agentId=default`,
    );
    expect((await problemOf(response)).status).toBe(404);
  });
});
