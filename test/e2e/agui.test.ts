/**
 * Sessions opened by the AG-UI clients of npm, both generations, at the running service: what they show
 * is what a client shows that was given every event. Streams of real agents are in
 * agui-recorded.test.ts; here are the cases that those do not have, and what is refused.
 */
import { HttpAgent } from "@ag-ui/client";
import { describe, expect, test, vi } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { z } from "zod";
import {
  AGUI_CLIENTS,
  type AguiClient,
  type Conversation,
  type OpenClient,
} from "../support/agui-clients.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { mergeFragments } from "../support/merging.ts";
import { newSession } from "../support/pushing.ts";
import { endService, startAgain, startService } from "../support/service-process.ts";
import { useService } from "../support/use-service.ts";
import { useQuietConsole } from "../support/quiet-console.ts";
import {
  type AguiEvent,
  content,
  end,
  finished,
  snapshot,
  start,
  started,
  state,
  text,
} from "../support/agui-events.ts";

/** Longer than a push takes on a slow machine: every run here continues with the next push. */
const { service, client: rpc } = useService();
/** It waits for no run for long. */
const { service: impatient, client: impatiently } = useService("limited");
useQuietConsole();

async function push(sessionId: string, events: readonly AguiEvent[], to = rpc): Promise<void> {
  for (const event of events) {
    const request = { sessionId, eventType: event.type, payload: JSON.stringify(event) };
    await to.unary(SessionService.method.pushSessionEvent, request);
  }
}

/** As a runner that compresses pushes them. */
async function pushMerged(sessionId: string, events: readonly AguiEvent[]): Promise<void> {
  const raw = events.map((event) => ({ eventType: event.type, payload: JSON.stringify(event) }));
  for (const { eventType, payload, eventCount, fragments } of mergeFragments(raw)) {
    const merged = fragments === undefined ? {} : { eventCount, fragments };
    const request = { sessionId, eventType, payload, ...merged };
    await rpc.unary(SessionService.method.pushSessionEvent, request);
  }
}

const call = (toolCallId: string): readonly AguiEvent[] => [
  { type: "TOOL_CALL_START", toolCallId, toolCallName: "search", parentMessageId: "m1" },
  { type: "TOOL_CALL_ARGS", toolCallId, delta: '{"q":' },
  { type: "TOOL_CALL_ARGS", toolCallId, delta: '"x"}' },
  { type: "TOOL_CALL_END", toolCallId },
  { type: "TOOL_CALL_RESULT", toolCallId, messageId: `${toolCallId}-result`, content: "found" },
];
const thought = (messageId: string): readonly AguiEvent[] => [
  { type: "REASONING_START", messageId },
  { type: "REASONING_MESSAGE_START", messageId, role: "reasoning" },
  { type: "REASONING_MESSAGE_CONTENT", messageId, delta: "let me " },
  { type: "REASONING_MESSAGE_CONTENT", messageId, delta: "see" },
  { type: "REASONING_MESSAGE_END", messageId },
  { type: "REASONING_END", messageId },
];
const thinking: readonly AguiEvent[] = [
  { type: "THINKING_START", title: "plan" },
  { type: "THINKING_TEXT_MESSAGE_START" },
  { type: "THINKING_TEXT_MESSAGE_CONTENT", delta: "first this" },
  { type: "THINKING_TEXT_MESSAGE_CONTENT", delta: ", then that" },
  { type: "THINKING_TEXT_MESSAGE_END" },
  { type: "THINKING_END" },
];
const chunks: readonly AguiEvent[] = [
  { type: "TEXT_MESSAGE_CHUNK", messageId: "c1", role: "assistant", delta: "in " },
  { type: "TEXT_MESSAGE_CHUNK", messageId: "c1", delta: "chunks" },
  { type: "TOOL_CALL_CHUNK", toolCallId: "cc", toolCallName: "add", delta: "[1" },
  { type: "TOOL_CALL_CHUNK", toolCallId: "cc", delta: ",2]" },
];
const patch = (path: string, value: unknown): AguiEvent => ({
  type: "STATE_DELTA",
  delta: [{ op: "add", path, value }],
});
const step = (stepName: string, inside: readonly AguiEvent[]): readonly AguiEvent[] => [
  { type: "STEP_STARTED", stepName },
  ...inside,
  { type: "STEP_FINISHED", stepName },
];
const failed: AguiEvent = { type: "RUN_ERROR", message: "the model is gone", code: "E1" };
const userInput = (runId: string, said: string, more = {}) => ({
  input: {
    threadId: "t",
    runId,
    state: {},
    tools: [],
    context: [],
    forwardedProps: {},
    messages: [{ id: `u-${runId}`, role: "user", content: said }],
    ...more,
  },
});

/** One of each; every boundary in it is a place to join. */
const EVERYTHING: readonly AguiEvent[] = [
  started("r1", userInput("r1", "hello")),
  state({ plan: [] }),
  ...text("m1", "Hel", "lo"),
  ...call("c"),
  finished("r1"),
  started("r2", userInput("r2", "go on")),
  ...step("outer", [
    ...thought("t1"),
    patch("/plan/-", "one"),
    ...step("inner", text("m2", "a", "b")),
  ]),
  ...chunks,
  { type: "CUSTOM", name: "n", value: 1 },
  { type: "ACTIVITY_SNAPSHOT", messageId: "a1", activityType: "plan", content: { n: 1 } },
  {
    type: "ACTIVITY_DELTA",
    messageId: "a1",
    activityType: "plan",
    patch: [{ op: "replace", path: "/n", value: 2 }],
  },
  patch("/plan/-", "two"),
  finished("r2"),
];

const ACTIVITY = { messageId: "a1", activityType: "plan" };
const OWNS = { "@ag-ui/client": { authoritativeActivityTypes: null } };
const renamed = { id: "c", type: "function", function: { name: "found", arguments: "{" } };

const HTTP_CLIENTS = AGUI_CLIENTS.filter(({ waitsForRun }) => waitsForRun);

function opened(client: AguiClient, sessionId: string): OpenClient {
  return client.open(service.httpAddress, sessionId);
}

/** Resolves when the client has been answered, and has seen the snapshot. */
function joined(agent: OpenClient): {
  readonly isJoined: Promise<void>;
  readonly ended: Promise<void>;
} {
  const { promise: isJoined, resolve } = Promise.withResolvers<void>();
  const onEvent = (type: string): void => {
    if (type === "MESSAGES_SNAPSHOT") resolve();
  };
  return { isJoined, ended: agent.connect({ onEvent }) };
}

const texts = (events: readonly AguiEvent[]): readonly string[] =>
  events.map((event) => JSON.stringify(event));

describe.each(HTTP_CLIENTS)("$name", (client) => {
  describe.each([
    ["row by row", push],
    ["merged", pushMerged],
  ])("%s", (_, pushAs) => {
    test.each<[string, readonly AguiEvent[]]>([
      ["several runs of everything", EVERYTHING],
      [
        "an error with blocks open",
        [started("r1"), ...step("s", [start("m1"), content("m1", "ha")]), failed],
      ],
      [
        "an error and another run",
        [started("r1"), start("m1"), failed, started("r2"), ...text("m2", "ok"), finished("r2")],
      ],
      ["a state that is no object", [started("r1"), state([1]), patch("/-", 2), finished("r1")]],
      [
        "a snapshot of messages",
        [
          started("r1"),
          ...text("m1", "gone"),
          { type: "MESSAGES_SNAPSHOT", messages: [{ id: "m9", role: "user", content: "new" }] },
          ...text("m2", "after"),
          finished("r1"),
        ],
      ],
    ])(
      "%s: a connect shows the whole conversation, and a second connect doubles nothing",
      async (_name, events) => {
        const sessionId = newSession();
        await pushAs(sessionId, events);
        const agent = opened(client, sessionId);
        await agent.connect();
        const once = agent.conversation();
        expect(once).toEqual(await client.fed(texts(events)));
        await agent.connect();
        expect(agent.conversation()).toEqual(once);
      },
    );
  });

  test("THINKING events of older runners are served as reasoning, with the same ids for every client", async () => {
    const sessionId = newSession();
    await push(sessionId, [started("r1"), ...thinking, ...text("m1", "so"), finished("r1")]);
    const agent = opened(client, sessionId);
    await agent.connect();
    const once = agent.conversation();
    expect(once.messages).toMatchObject([
      { role: "reasoning", content: "first this, then that" },
      { content: "so" },
    ]);
    await agent.connect();
    const replayed = opened(client, `${sessionId}?replay=events`);
    await replayed.connect();
    expect([agent.conversation(), replayed.conversation()]).toEqual([once, once]);
    // The title of a thinking is nothing that reasoning has, and clients would tell the user so.
    const warned = vi.spyOn(console, "warn").mock.calls;
    expect(JSON.stringify(warned)).not.toMatch(/title/);
  });

  test("a client that joins a run at any event sees the whole run when it finishes", async () => {
    const whole = await client.fed(texts(EVERYTHING));
    const first = EVERYTHING.findIndex(({ runId }) => runId === "r2") + 1;
    const joins = EVERYTHING.slice(first).map(async (_, index) => {
      const sessionId = newSession();
      await push(sessionId, EVERYTHING.slice(0, first + index));
      const agent = opened(client, sessionId);
      const { isJoined, ended } = joined(agent);
      await isJoined;
      await push(sessionId, EVERYTHING.slice(first + index));
      await ended;
      return { at: first + index, shown: agent.conversation() };
    });
    for (const { at, shown } of await Promise.all(joins)) {
      expect({ at, shown }).toEqual({ at, shown: whole });
    }
  });

  test("arguments are added to a call only while they are not whole, wherever a client joins", async () => {
    // Bug: a call that came again had its arguments twice, one text behind the other.
    const args = (toolCallId: string, delta: string): AguiEvent => ({
      type: "TOOL_CALL_ARGS",
      toolCallId,
      delta,
    });
    const opening = (toolCallId: string): AguiEvent => ({
      type: "TOOL_CALL_START",
      toolCallId,
      toolCallName: "f",
      parentMessageId: "m1",
    });
    const ending = (toolCallId: string): AguiEvent => ({ type: "TOOL_CALL_END", toolCallId });
    const whole = (toolCallId: string, ...deltas: readonly string[]): readonly AguiEvent[] => [
      opening(toolCallId),
      ...deltas.map((delta) => args(toolCallId, delta)),
      ending(toolCallId),
    ];
    const events = [
      started("r1"),
      ...text("m1", "one"),
      ...whole("same", '{"a":', '"}"}'),
      ...whole("other", '{"n":1}'),
      ...whole("late", '{"a":1}'),
      args("late", '{"b":2}'),
      ...whole("half", '{"a":'),
      args("half", "1}"),
      finished("r1"),
      started("r2"),
      ...whole("same", '{"a":', '"}"}'),
      ...whole("other", '{"n":', "2}"),
      ...whole("half"),
      { type: "TOOL_CALL_CHUNK", toolCallId: "late", toolCallName: "f", delta: '{"c":3}' },
      ...text("m2", "two"),
      { type: "TOOL_CALL_CHUNK", toolCallId: "late", delta: "{}" },
      finished("r2"),
    ];
    const expected = { same: '{"a":"}"}', other: '{"n":2}', late: '{"c":3}', half: '{"a":1}' };
    const first = events.findIndex(({ runId }) => runId === "r2") + 1;
    for (let at = first; at < events.length; at += 1) {
      const sessionId = newSession();
      await push(sessionId, events.slice(0, at));
      const agents = [opened(client, sessionId), opened(client, `${sessionId}?replay=events`)];
      const here = agents.map(joined);
      await Promise.all(here.map(({ isJoined }) => isJoined));
      await push(sessionId, events.slice(at));
      await Promise.all(here.map(({ ended }) => ended));
      const later = [opened(client, sessionId), opened(client, `${sessionId}?replay=events`)];
      for (const agent of later) await agent.connect();
      const shown = [...agents, ...later].map((agent) => argumentsIn(agent.conversation()));
      expect({ at, shown }).toEqual({ at, shown: shown.map(() => expected) });
    }
  });

  test("an input that repeats the conversation under new ids doubles nothing", async () => {
    // Bug: three turns were twelve messages.
    const sessionId = newSession();
    const said: { readonly role: string; readonly content: string }[] = [];
    const turn = (at: number): readonly AguiEvent[] => {
      said.push({ role: "user", content: at === 2 ? "text of user 1" : `text of user ${at}` });
      const messages = said.map((message, index) => ({ ...message, id: `${at}-${index}` }));
      const system = { id: `${at}-system`, role: "system", content: "Answer in rhymes" };
      const { input } = userInput(`r${at}`, "");
      said.push({ role: "assistant", content: `answer ${at}` });
      return [
        started(`r${at}`, { input: { ...input, messages: [system, ...messages] } }),
        ...text(`m${at}`, "answer ", String(at)),
        finished(`r${at}`),
      ];
    };
    const shown = (agent: OpenClient): unknown =>
      agent.conversation().messages.map((message) => spokenSchema.parse(message));
    await push(sessionId, turn(1));
    const agents = ["?follow=true", "?replay=events&follow=true"].map((query) =>
      opened(client, `${sessionId}${query}`),
    );
    const here = agents.map(joined);
    await Promise.all(here.map(({ isJoined }) => isJoined));
    for (const at of [2, 3]) await push(sessionId, turn(at));
    const expected = [{ role: "system", content: "Answer in rhymes" }, ...said];
    for (const agent of agents) await expect.poll(() => shown(agent)).toEqual(expected);
    for (const query of ["", "?replay=events"]) {
      const later = opened(client, `${sessionId}${query}`);
      await later.connect();
      expect(shown(later)).toEqual(expected);
    }
    await rpc.unary(SessionService.method.deleteSession, { id: sessionId });
    await Promise.allSettled(here.map(({ ended }) => ended));
  });

  test("a connect to a session that does not exist yet waits, and shows the session when it begins", async () => {
    const sessionId = newSession();
    const agent = opened(client, sessionId);
    const answered = Promise.withResolvers<void>();
    const ended = agent.connect({ onAnswer: answered.resolve });
    await answered.promise;
    await push(sessionId, [
      started("r1", userInput("r1", "hi")),
      ...text("m1", "yes"),
      finished("r1"),
    ]);
    await ended;
    expect(agent.conversation().messages).toMatchObject([{ content: "hi" }, { content: "yes" }]);
  });

  test("runAgent of the client ends with no messages for a session without runs", async () => {
    const sessionId = newSession();
    const request = { sessionId, eventType: "lifecycle", payload: "{}" };
    await impatiently.unary(SessionService.method.pushSessionMessage, request);
    const agent = client.open(impatient.httpAddress, sessionId);
    await agent.connect();
    expect(agent.conversation().messages).toEqual([]);
  });

  test("runAgent of the client ends with RUN_ERROR for a mistyped session id", async () => {
    const agent = client.open(impatient.httpAddress, newSession());
    const types: string[] = [];
    await agent.connect({ onEvent: (type) => types.push(type) });
    expect(types).toEqual(["RUN_ERROR"]);
  });

  test("an interrupt is pending until a run answers it", async () => {
    const sessionId = newSession();
    const outcome = { type: "interrupt", interrupts: [{ id: "i1", reason: "may_i" }] };
    await push(sessionId, [started("r1"), ...text("m1", "may I?"), finished("r1", { outcome })]);
    const asked = opened(client, sessionId);
    await asked.connect();
    expect(asked.conversation().interrupts).toEqual(outcome.interrupts);
    const resume = [{ interruptId: "i1", status: "resolved", payload: "yes" }];
    await push(sessionId, [started("r2", userInput("r2", "yes", { resume })), failed]);
    for (const agent of [opened(client, sessionId)]) {
      await agent.connect();
      expect(agent.conversation().interrupts).toEqual([]);
    }
  });

  test("a replay ends with the same messages and state, and a second replay doubles nothing", async () => {
    const sessionId = newSession();
    await pushMerged(sessionId, EVERYTHING);
    const whole = await client.fed(texts(EVERYTHING));
    const agent = opened(client, `${sessionId}?replay=events`);
    const types: string[] = [];
    await agent.connect({ onEvent: (type) => types.push(type) });
    expect(agent.conversation()).toEqual(whole);
    expect(types.filter((type) => type === "TEXT_MESSAGE_CONTENT").length).toBeGreaterThan(5);
    await agent.connect();
    expect(byId(agent.conversation().messages)).toEqual(byId(whole.messages));
    expect(agent.conversation().state).toEqual(whole.state);
  });

  test("an activity that begins with replace=false is not doubled by further replays", async () => {
    const sessionId = newSession();
    const events: readonly AguiEvent[] = [
      started("r1"),
      { type: "ACTIVITY_SNAPSHOT", ...ACTIVITY, content: { n: [7] }, replace: false },
      { type: "ACTIVITY_DELTA", ...ACTIVITY, patch: [{ op: "add", path: "/n/-", value: "a" }] },
      finished("r1"),
    ];
    await push(sessionId, events);
    const agent = opened(client, `${sessionId}?replay=events`);
    for (let time = 0; time < 3; time += 1) await agent.connect();
    expect(agent.conversation()).toEqual(await client.fed(texts(events)));
  });

  test.each<[string, readonly AguiEvent[], readonly AguiEvent[]]>([
    [
      "a result that came into the middle",
      [
        started("r1"),
        ...text("m1", "a"),
        ...call("c").slice(0, 4),
        ...thought("t"),
        ...text("m2", "b"),
      ],
      call("c").slice(4),
    ],
    [
      "a message that left and returned, with an activity between",
      [
        started("r1"),
        ...text("m0", "a"),
        { type: "ACTIVITY_SNAPSHOT", ...ACTIVITY, content: {} },
        ...text("m1", "b"),
      ],
      [snapshot({ id: "m1", role: "assistant", content: "b" }), ...text("m0", "c")],
    ],
    [
      "reasoning that left",
      [started("r1"), ...text("m1", "a"), ...thought("t")],
      [snapshot({ id: "t2", role: "reasoning", content: "x" }), ...text("m2", "b")],
    ],
  ])(
    "a client that connects again shows the same as a new client: %s",
    async (_name, before, after) => {
      const sessionId = newSession();
      await push(sessionId, [...before, finished("r1")]);
      const clients = ["", "?replay=events"].map((query) => opened(client, `${sessionId}${query}`));
      for (const agent of clients) await agent.connect();
      await push(sessionId, [started("r2"), ...after, finished("r2")]);
      const fresh = opened(client, sessionId);
      await fresh.connect();
      const shown = fresh.conversation();
      for (const agent of clients) {
        await agent.connect();
        expect(agent.conversation()).toEqual(shown);
      }
    },
  );

  test.each(["", "?replay=events"])(
    "a client that left before a tool's result shows it in front of an activity that came before: %s",
    async (query) => {
      const sessionId = newSession();
      const activity = { type: "ACTIVITY_SNAPSHOT", ...ACTIVITY, content: {} };
      const [result, ...called] = call("c").toSpliced(1, 2).toReversed();
      const before = [started("r1"), ...called.toReversed(), activity, finished("r1")];
      const events = [
        ...before,
        started("r2"),
        ...(result === undefined ? [] : [result]),
        finished("r2"),
      ];
      await push(sessionId, before);
      const agent = opened(client, `${sessionId}${query}`);
      await agent.connect();
      await push(sessionId, events.slice(before.length));
      await agent.connect();
      const shown = agent.conversation();
      expect(shown).toEqual(await client.fed(texts(events)));
      expect(shown.messages).toMatchObject([{ role: "assistant" }, { role: "tool" }, { id: "a1" }]);
    },
  );

  test.each(["", "?replay=events"])(
    "a client that has only activities shows them where all clients do: %s",
    async (query) => {
      const sessionId = newSession();
      const activity = { type: "ACTIVITY_SNAPSHOT", ...ACTIVITY, content: {} };
      const first = [started("r1"), activity, finished("r1")];
      await push(sessionId, first);
      const agent = opened(client, `${sessionId}${query}`);
      await agent.connect();
      const other = snapshot({ ...ACTIVITY, id: "a2", role: "activity", content: {} });
      const second = [started("r2"), other, ...text("m1", "a"), activity, finished("r2")];
      await push(sessionId, second);
      await agent.connect();
      expect(agent.conversation()).toEqual(await client.fed(texts([...first, ...second])));
    },
  );

  test("a client that connects again loses reasoning and activities that the log no longer has", async () => {
    const sessionId = newSession();
    const activity = { type: "ACTIVITY_SNAPSHOT", ...ACTIVITY, content: {} };
    await push(sessionId, [
      started("r1"),
      ...text("m1", "a"),
      activity,
      ...thought("t"),
      finished("r1"),
    ]);
    const agent = opened(client, sessionId);
    await agent.connect();
    expect(agent.conversation().messages).toHaveLength(3);
    const other = snapshot({ id: "t", role: "assistant", content: "no reasoning" });
    const none = { ...snapshot({ id: "m1", role: "assistant", content: "a" }), metadata: OWNS };
    await push(sessionId, [started("r2"), other, none, finished("r2")]);
    await agent.connect();
    expect(agent.conversation().messages).toEqual([{ id: "m1", role: "assistant", content: "a" }]);
  });

  test.each<[string, readonly AguiEvent[], AguiEvent]>([
    [
      "text",
      [start("m1"), content("m1", "a"), snapshot({ id: "m2", role: "user", content: "b" })],
      content("m1", "more"),
    ],
    [
      "reasoning, where another stays",
      [...thought("t").slice(0, 3), snapshot({ id: "t2", role: "reasoning", content: "b" })],
      { type: "REASONING_MESSAGE_CONTENT", messageId: "t", delta: "more" },
    ],
    [
      "a call whose message left, and a message of its id that came",
      [
        ...call("c").slice(0, 2),
        snapshot(),
        snapshot(
          { id: "m1", role: "assistant", content: "a" },
          { id: "c", role: "assistant", content: "b" },
        ),
      ],
      { type: "TOOL_CALL_ARGS", toolCallId: "c", delta: "more" },
    ],
    [
      "a call that was renamed",
      [...call("c").slice(0, 2), snapshot({ id: "m1", role: "assistant", toolCalls: [renamed] })],
      { type: "TOOL_CALL_ARGS", toolCallId: "c", delta: "more" },
    ],
  ])(
    "a join after a snapshot that left out an open block continues the block: %s",
    async (_name, before, continuation) => {
      const events = [started("r1"), ...before, continuation, finished("r1")];
      const sessionId = newSession();
      await push(sessionId, events.slice(0, -2));
      const agent = opened(client, sessionId);
      const { isJoined, ended } = joined(agent);
      await isJoined;
      await push(sessionId, events.slice(-2));
      await ended;
      // Clients refuse a run that ends with something open: it is fed as a run that failed.
      const failing = texts([...events.slice(0, -1), failed]);
      expect(agent.conversation()).toEqual(await client.fed(failing));
    },
  );

  test("a client whose last message was removed by a snapshot is not mistaken for one that typed it", async () => {
    const sessionId = newSession();
    await push(sessionId, [started("r1", userInput("r1", "hello"))]);
    const agent = opened(client, sessionId);
    const { isJoined, ended } = joined(agent);
    await isJoined;
    const other = { id: "other", role: "user", content: "hello" };
    await push(sessionId, [snapshot(other), finished("r1")]);
    await ended;
    const old = opened(client, sessionId);
    old.say({ id: "u-r1", role: "user", content: "hello" });
    await old.connect();
    expect(old.conversation().messages).toEqual([other]);
  });

  test("a connect with follow stays for further runs", async () => {
    const sessionId = newSession();
    await push(sessionId, [started("r1"), ...text("m1", "one"), finished("r1")]);
    const agent = opened(client, `${sessionId}?follow=true`);
    const seen: string[] = [];
    const until = new Map<number, PromiseWithResolvers<void>>();
    const ends = (count: number): Promise<void> => {
      const waiting = Promise.withResolvers<void>();
      until.set(count, waiting);
      return waiting.promise;
    };
    const [first, second, third] = [ends(1), ends(2), ends(3)];
    const ended = agent.connect({
      onEvent: (type) => {
        if (type === "RUN_FINISHED") seen.push(type);
        until.get(seen.length)?.resolve();
      },
    });
    await first;
    await push(sessionId, [started("r2"), ...text("m2", "two"), finished("r2")]);
    await second;
    await push(sessionId, [...text("m3", "between"), state({ n: 1 })]);
    await push(sessionId, [started("r3"), ...text("m4", "three"), finished("r3")]);
    await third;
    await push(sessionId, [started("r4"), failed]);
    await rpc.unary(SessionService.method.deleteSession, { id: sessionId });
    await ended; // And no second RUN_ERROR in a row, which clients refuse.
    const { messages, state: last } = agent.conversation();
    expect(messages).toMatchObject(
      ["one", "two", "between", "three"].map((said) => ({ content: said })),
    );
    expect(last).toEqual({ n: 1 });
  });

  test("a stalled run ends for the client with RUN_ERROR, which is not stored", async () => {
    const sessionId = newSession();
    await push(sessionId, [started("r1"), ...text("m1", "and"), start("m2")], impatiently);
    const agent = client.open(impatient.httpAddress, sessionId);
    const types: string[] = [];
    await agent.connect({ onEvent: (type) => types.push(type) });
    expect(types.at(-1)).toBe("RUN_ERROR");
    expect(agent.conversation().messages).toMatchObject([{ content: "and" }, { id: "m2" }]);
    const rows = await impatiently.unary(SessionService.method.listSessionEvents, { sessionId });
    expect(rows.items.map(({ eventType }) => eventType)).not.toContain("RUN_ERROR");
    // A runner that was only slow continues, and so does a client that connects again.
    await push(sessionId, [content("m2", "so on"), end("m2"), finished("r1")], impatiently);
    await agent.connect();
    expect(agent.conversation().messages).toMatchObject([{ content: "and" }, { content: "so on" }]);
  });
});

test("a stop of the service sends RUN_ERROR, and a client that connects again gets the rest", async () => {
  const own = await startService();
  const writer = new RpcClient(own.grpcAddress);
  const sessionId = newSession();
  await push(sessionId, [started("r1"), ...text("m1", "one"), start("m2")], writer);
  const agent = new HttpAgent({ url: `http://${own.httpAddress}/agui/sessions/${sessionId}` });
  const isJoined = Promise.withResolvers<void>();
  const errors: unknown[] = [];
  const ended = agent.runAgent(
    {},
    {
      onMessagesSnapshotEvent: () => isJoined.resolve(),
      onRunErrorEvent: ({ event }) => {
        errors.push(event.code);
      },
    },
  );
  await isJoined.promise;
  writer.close();
  expect(await own.stop()).toBe(0);
  await ended;
  expect(errors).toEqual(["SHUTTING_DOWN"]);
  const again = await startAgain(own);
  const second = new RpcClient(again.grpcAddress);
  agent.url = `http://${again.httpAddress}/agui/sessions/${sessionId}`;
  await push(sessionId, [content("m2", "two"), end("m2"), finished("r1")], second);
  await agent.runAgent();
  expect(agent.messages).toMatchObject([{ content: "one" }, { content: "two" }]);
  second.close();
  await endService(again);
});

describe("a request that is refused before the stream begins", () => {
  const post = (path: string, body: string, headers: Record<string, string> = {}) =>
    fetch(`http://${service.httpAddress}/agui/sessions/${path}`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body,
    });

  test.each([
    ["a%2Fb", "{}", 400, "id"],
    ["s?follow=yes", "{}", 400, "follow"],
    ["s?replay=all", "{}", 400, "replay"],
    ["s?replay=events&speed=1", "{}", 400, "speed"],
    ["s?follow=true&follow=true", "{}", 400, "follow"],
    ["s?folow=true", "{}", 400, "folow"],
    ["s", '{"threadId":7}', 400, "threadId"],
    ["s", '{"runId":{}}', 400, "runId"],
    ["s", '{"protocolVersion":1}', 400, "protocolVersion"],
    ["s", '{"protocolVersion":"0.0.57"}', 400, "protocolVersion"],
    ["s", '{"protocolVersion":"0.0.58"}', 400, "protocolVersion"],
    ["s", '{"messages":"hi"}', 400, "messages"],
    ["s", "[]", 400, ""],
    ["s", '"text"', 400, ""],
    ["s", "{", 400, ""],
    ["s", "", 400, ""],
  ])("%s %s is %d and names %j", async (path, body, status, field) => {
    const answer = await post(path, body);
    expect(answer.status).toBe(status);
    expect(answer.headers.get("content-type")).toMatch("application/problem+json");
    expect(await answer.json()).toMatchObject({ status, violations: [{ field }] });
  });

  test("the status is 415 for another body type, 404 for a deleted session, 405 for GET", async () => {
    expect((await post("s", "{}", { "content-type": "text/plain" })).status).toBe(415);
    const sessionId = newSession();
    await push(sessionId, [started("r1")]);
    await rpc.unary(SessionService.method.deleteSession, { id: sessionId });
    expect((await post(sessionId, "{}")).status).toBe(404);
    expect((await fetch(`http://${service.httpAddress}/agui/sessions/s`)).status).toBe(405);
  });
});

test("frames are SSE with ids, and nulls and unknown fields of the input are ignored", async () => {
  const sessionId = newSession();
  await push(sessionId, [started("r1"), ...text("m1", "one"), finished("r1")]);
  const answer = await fetch(`http://${service.httpAddress}/agui/sessions/${sessionId}`, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "text/event-stream" },
    body: '{"threadId":null,"runId":"x","protocolVersion":null,"messages":null,"more":{"a":[]}}',
  });
  expect(answer.status).toBe(200);
  expect(answer.headers.get("content-type")).toMatch(/^text\/event-stream/);
  const body = await answer.text();
  expect(body).not.toContain("\r");
  const events = body.split("\n\n").filter((frame) => frame.includes("data: "));
  expect(events.map((event) => /^id: (\d+)\ndata: \{"type":"(\w+)"/.exec(event)?.slice(1))).toEqual(
    [
      ["5", "RUN_STARTED"],
      ["5", "MESSAGES_SNAPSHOT"],
      ["5", "RUN_FINISHED"],
    ],
  );
});

const spokenSchema = z.object({ role: z.string(), content: z.string() });

const callsSchema = z.array(
  z.object({
    toolCalls: z
      .array(z.object({ id: z.string(), function: z.object({ arguments: z.string() }) }))
      .default([]),
  }),
);

/** The arguments of each call. */
function argumentsIn({ messages }: Conversation): Readonly<Record<string, string>> {
  const calls = callsSchema.parse(messages).flatMap(({ toolCalls }) => toolCalls);
  return Object.fromEntries(calls.map(({ id, function: called }) => [id, called.arguments]));
}

function byId(messages: readonly unknown[]): readonly unknown[] {
  return messages.toSorted((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));
}
