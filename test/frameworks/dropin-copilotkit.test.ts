/**
 * SessionLedgerRunner with CopilotKit's own runtime and client. The first group has the facts that
 * CopilotKit tests of its own runners; the others are those of a ledger: restarts, replicas, other doors.
 */
import { randomUUID } from "node:crypto";
import { setImmediate } from "node:timers/promises";
import type { BaseEvent, Message } from "@ag-ui/client";
import {
  type AgentRunner,
  CopilotRuntime,
  createCopilotRuntimeHandler,
} from "@copilotkit/runtime/v2";
import { CopilotKitCore } from "@copilotkit/core";
import { firstValueFrom, type Observable, toArray } from "rxjs";
import { afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { z } from "zod";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { SessionLedgerRunner } from "@session-ledger/runner/copilotkit";
import { rowsOf } from "../support/pushing.ts";
import { claim, emit as push, say as tell } from "../support/turns.ts";
import { useService } from "../support/use-service.ts";
import { ConnectingAgent, PlayedAgent, say, saying, thinking } from "./copilotkit-agents.ts";

const { service, client } = useService();

type Runner = SessionLedgerRunner<BaseEvent>;
const runners: Runner[] = [];

/** A process of the app. */
function replica(options: { readonly lostAfterMs?: number } = {}): Runner {
  const runner: Runner = new SessionLedgerRunner({ address: service.grpcAddress, ...options });
  runners.push(runner);
  return runner;
}

afterEach(async () => {
  for (const runner of runners.splice(0)) await runner.close();
});

function newThread(): string {
  return `t-${randomUUID()}`;
}

function user(id: string, content = `text of ${id}`): Message {
  return { id, role: "user", content };
}

function inputOf(threadId: string, runId: string, messages: readonly Message[] = [user("q")]) {
  const none = { state: {}, tools: [], context: [], forwardedProps: {} };
  return { threadId, runId, messages: [...messages], ...none };
}

const shownSchema = z.looseObject({
  type: z.string(),
  messageId: z.string().optional(),
  delta: z.string().optional(),
  input: z.looseObject({ messages: z.array(z.looseObject({ id: z.string() })) }).optional(),
});
type Shown = z.infer<typeof shownSchema>;

async function all(events: Observable<BaseEvent>): Promise<Shown[]> {
  return z.array(shownSchema).parse(await firstValueFrom(events.pipe(toArray())));
}

function ran(
  runner: Runner,
  threadId: string,
  agent: PlayedAgent,
  { runId = "r1", messages }: { readonly runId?: string; readonly messages?: Message[] } = {},
): Promise<Shown[]> {
  const input = inputOf(threadId, runId, messages);
  agent.threadId = threadId;
  agent.setMessages(input.messages);
  return all(runner.run({ threadId, agent, input }));
}

function seen(runner: Runner, threadId: string): Promise<Shown[]> {
  return all(runner.connect({ threadId }));
}

function typesOf(events: readonly Shown[]): readonly string[] {
  return events.map(({ type }) => type);
}

function startsOf(events: readonly Shown[]): readonly (readonly string[] | undefined)[] {
  return events
    .filter(({ type }) => type === "RUN_STARTED")
    .map(({ input }) => input?.messages.map(({ id }) => id));
}

/** The text of a message, from its pieces. */
function textIn(events: readonly Shown[], messageId: string): string {
  return events
    .filter((event) => event.type === "TEXT_MESSAGE_CONTENT" && event.messageId === messageId)
    .map(({ delta }) => delta)
    .join("");
}

const shownMessageSchema = z.object({ id: z.string(), role: z.string(), content: z.string() });

async function openRun(threadId: string): Promise<string | undefined> {
  const session = await client
    .unary(SessionService.method.getSession, { id: threadId })
    .catch(() => undefined);
  return session?.openRunId;
}

const TEXT = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"];

describe("as CopilotKit's own runners", () => {
  test("a run is shown from its start to its end, and again to a later page", async () => {
    const [runner, threadId] = [replica(), newThread()];
    const shown = await ran(runner, threadId, saying("Hel", "lo"));
    expect(typesOf(shown)).toEqual([
      "RUN_STARTED",
      ...TEXT.toSpliced(1, 0, TEXT[1] ?? ""),
      "RUN_FINISHED",
    ]);
    const later = await seen(runner, threadId);
    expect(typesOf(later)).toEqual(["RUN_STARTED", ...TEXT, "RUN_FINISHED"]);
    expect(textIn(later, "r1-answer")).toBe("Hello");
  });

  test("each start has only the messages that are new", async () => {
    const [runner, threadId] = [replica(), newThread()];
    const first = await ran(runner, threadId, saying("a"), { messages: [user("q1"), user("q2")] });
    const answer: Message = { id: "r1-answer", role: "assistant", content: "a" };
    const messages = [user("q1"), user("q2"), answer, user("q3")];
    const second = await ran(runner, threadId, saying("b"), { runId: "r2", messages });
    expect([...startsOf(first), ...startsOf(second)]).toEqual([["q1", "q2"], ["q3"]]);
    expect(startsOf(await seen(runner, threadId))).toEqual([["q1", "q2"], ["q3"]]);
  });

  test("the input of a start that the agent has written is shown as it is", async () => {
    const [runner, threadId] = [replica(), newThread()];
    const input = inputOf(threadId, "r1", []);
    const agent = new PlayedAgent(
      async ({ runId }, emit) => {
        emit({ type: "RUN_STARTED", threadId, runId, input });
        emit({ type: "RUN_FINISHED", threadId, runId });
      },
      { bare: true },
    );
    const shown = await ran(runner, threadId, agent);
    expect(shown[0]).toMatchObject({ input });
  });

  test("a list that was cut regenerates the answer to its last message, or edits a message", async () => {
    const [runner, threadId] = [replica(), newThread()];
    const answer = (id: string, content: string): Message => ({ id, role: "assistant", content });
    const shown = async (): Promise<unknown> => {
      const { messages } = await client.unary(SessionService.method.getTranscript, {
        sessionId: threadId,
      });
      return z.array(shownMessageSchema).parse(JSON.parse(messages));
    };
    const one = [user("q1"), answer("r1-answer", "a")];
    await ran(runner, threadId, saying("a"), { messages: [user("q1")] });
    await ran(runner, threadId, saying("b"), { runId: "r2", messages: [...one, user("q2")] });
    await ran(runner, threadId, saying("c"), { runId: "r3", messages: [...one, user("q2")] });
    const two = [user("q1"), answer("r1-answer", "a"), user("q2"), answer("r3-answer", "c")];
    expect(await shown()).toEqual(two);
    await ran(runner, threadId, saying("d"), { runId: "r4", messages: [...one, user("q3")] });
    expect(await shown()).toEqual([...one, user("q3"), answer("r4-answer", "d")]);
    const page = new ConnectingAgent(() => runner.connect({ threadId }));
    await page.connectAgent();
    expect(z.array(shownMessageSchema).parse(page.messages)).toEqual(await shown());
  });

  test("three runs are shown in their order, as the same to several pages", async () => {
    const [runner, threadId] = [replica(), newThread()];
    for (const n of [1, 2, 3])
      await ran(runner, threadId, saying(`${n}`), { runId: `r${n}`, messages: [user(`q${n}`)] });
    const [one, two] = await Promise.all([seen(runner, threadId), seen(runner, threadId)]);
    expect(one).toEqual(two);
    expect(typesOf(one)).toEqual([1, 2, 3].flatMap(() => ["RUN_STARTED", ...TEXT, "RUN_FINISHED"]));
    expect([1, 2, 3].map((n) => textIn(one, `r${n}-answer`))).toEqual(["1", "2", "3"]);
  });

  test("a page that comes during a run sees all of it, and its answer ends with the run", async () => {
    const [runner, threadId] = [replica(), newThread()];
    const gate = Promise.withResolvers<void>();
    const agent = new PlayedAgent(async (_, emit) => {
      say(emit, "before", ["one"]);
      await gate.promise;
      say(emit, "after", ["two"]);
    });
    const whole = ran(runner, threadId, agent);
    const early: Shown[] = [];
    const late = new Promise<void>((resolve) =>
      runner.connect({ threadId }).subscribe({
        next: (event) => {
          early.push(shownSchema.parse(event));
          if (textIn(early, "before") === "one") gate.resolve();
        },
        complete: resolve,
      }),
    );
    await Promise.all([whole, late]);
    expect(typesOf(early)).toEqual(["RUN_STARTED", ...TEXT, ...TEXT, "RUN_FINISHED"]);
  });

  test("a second run of a thread that runs throws at once", async () => {
    const [runner, threadId] = [replica(), newThread()];
    const agent = thinking();
    const first = ran(runner, threadId, agent);
    expect(() => runner.run({ threadId, agent, input: inputOf(threadId, "r2") })).toThrow(
      "Thread already running",
    );
    await expect.poll(() => openRun(threadId)).toBe("r1");
    await runner.stop({ threadId });
    await first;
  });

  test.each([
    ["fails", new Error("no model"), "no model"],
    ["ends without an end", undefined, "Run ended without emitting a terminal event"],
  ])(
    "an agent that %s ends its run with RUN_ERROR, and the next run works",
    async (_, failure, message) => {
      vi.spyOn(console, "error").mockReturnValue();
      const [runner, threadId] = [replica(), newThread()];
      const agent = new PlayedAgent(
        async ({ runId }, emit) => {
          emit({ type: "RUN_STARTED", threadId, runId });
          emit({ type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" });
          emit({ type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "so far" });
          await setImmediate(); // The client of AG-UI drops events that it has not looked at.
          if (failure !== undefined) throw failure;
        },
        { bare: true },
      );
      const shown = await ran(runner, threadId, agent);
      expect(typesOf(shown)).toEqual(["RUN_STARTED", ...TEXT, "RUN_ERROR"]);
      expect(shown.at(-1)).toMatchObject({ message, code: "INCOMPLETE_STREAM" });
      expect(await runner.isRunning({ threadId })).toBe(false);
      const next = await ran(runner, threadId, saying("ok"), {
        runId: "r2",
        messages: [user("q2")],
      });
      expect(typesOf(next).at(-1)).toBe("RUN_FINISHED");
      expect(
        typesOf(await seen(runner, threadId)).filter((type) => type.startsWith("RUN_")),
      ).toEqual(["RUN_STARTED", "RUN_ERROR", "RUN_STARTED", "RUN_FINISHED"]);
    },
  );

  test("nothing follows a RUN_ERROR", async () => {
    const [runner, threadId] = [replica(), newThread()];
    const agent = new PlayedAgent(async (_, emit) => {
      emit({ type: "RUN_ERROR", message: "broken" });
    });
    expect(typesOf(await ran(runner, threadId, agent))).toEqual(["RUN_STARTED", "RUN_ERROR"]);
    expect(typesOf(await seen(runner, threadId))).toEqual(["RUN_STARTED", "RUN_ERROR"]);
  });

  test("a stop ends the run, and every open construct in it", async () => {
    const [runner, threadId] = [replica(), newThread()];
    const agent = thinking();
    const run = ran(runner, threadId, agent);
    await expect.poll(() => agent.isWaiting).toBe(true);
    expect(await runner.isRunning({ threadId })).toBe(true);
    expect(await runner.stop({ threadId, runId: "another" })).toBe(false);
    expect(await runner.stop({ threadId, runId: "r1" })).toBe(true);
    expect(await runner.stop({ threadId })).toBe(false);
    const shown = await run;
    expect(typesOf(shown).slice(-5)).toEqual([
      "TOOL_CALL_START",
      "TEXT_MESSAGE_END",
      "TOOL_CALL_END",
      "TOOL_CALL_RESULT",
      "RUN_FINISHED",
    ]);
    expect(await runner.isRunning({ threadId })).toBe(false);
    expect(typesOf(await seen(runner, threadId))).toEqual(typesOf(shown));
    const [last] = (await rowsOf(client, "events", threadId)).slice(-1);
    expect(last?.payload).toContain('"outcome":{"type":"cancelled"}');
    expect(JSON.stringify(await seen(runner, threadId))).not.toContain("cancelled");
  });

  test("an agent that refuses to stop continues", async () => {
    const [runner, threadId] = [replica(), newThread()];
    const agent = thinking();
    const refusal = vi.spyOn(agent, "abortRun").mockImplementationOnce(() => {
      throw new Error("not now");
    });
    const run = ran(runner, threadId, agent);
    await expect.poll(() => agent.isWaiting).toBe(true);
    expect(await runner.stop({ threadId })).toBe(false);
    expect(await runner.isRunning({ threadId })).toBe(true);
    refusal.mockRestore();
    expect(await runner.stop({ threadId })).toBe(true);
    expect(typesOf(await run).at(-1)).toBe("RUN_FINISHED");
  });

  test("an unknown thread is empty, does not run, and cannot be stopped", async () => {
    const [runner, threadId] = [replica(), newThread()];
    expect(await seen(runner, threadId)).toEqual([]);
    expect(await runner.isRunning({ threadId })).toBe(false);
    expect(await runner.stop({ threadId })).toBe(false);
  });

  test("threads do not see each other, and a thousand events come in order", async () => {
    const [runner, one, two] = [replica(), newThread(), newThread()];
    const words = Array.from({ length: 1_000 }, (_, n) => `${n} `);
    const [shown] = await Promise.all([
      ran(runner, one, saying(...words)),
      ran(runner, two, saying("other")),
    ]);
    expect(shown).toHaveLength(1_004);
    expect(textIn(await seen(runner, one), "r1-answer")).toBe(words.join(""));
    expect(textIn(await seen(runner, two), "r1-answer")).toBe("other");
  });
});

describe("in several processes", () => {
  test("a new process has the threads of the earlier one", async () => {
    const threadId = newThread();
    await ran(replica(), threadId, saying("kept"));
    const later = await seen(replica(), threadId);
    expect(typesOf(later)).toEqual(["RUN_STARTED", ...TEXT, "RUN_FINISHED"]);
    expect(startsOf(later)).toEqual([["q"]]);
  });

  test("another process shows, reports and stops a run", async () => {
    const [here, there, threadId] = [replica(), replica(), newThread()];
    const agent = thinking();
    const run = ran(here, threadId, agent);
    await expect.poll(() => agent.isWaiting).toBe(true);
    expect(await there.isRunning({ threadId })).toBe(true);
    const shown = seen(there, threadId);
    expect(await there.stop({ threadId, runId: "another" })).toBe(false);
    expect(await there.stop({ threadId })).toBe(true);
    expect(typesOf(await run).at(-1)).toBe("RUN_FINISHED");
    expect(typesOf(await shown).slice(-2)).toEqual(["TOOL_CALL_RESULT", "RUN_FINISHED"]);
    expect(await there.stop({ threadId })).toBe(false);
  });

  test("another process does not begin a second run, and stores nothing of it", async () => {
    const [here, there, threadId] = [replica(), replica(), newThread()];
    const run = ran(here, threadId, thinking());
    await expect.poll(() => openRun(threadId)).toBe("r1");
    const refused = await ran(there, threadId, saying("no"), {
      runId: "r2",
      messages: [user("q2")],
    });
    expect(refused).toMatchObject([{ type: "RUN_ERROR", message: "Thread already running" }]);
    await here.stop({ threadId });
    await run;
    expect(JSON.stringify(await rowsOf(client, "messages", threadId), noBigInt)).not.toContain(
      "q2",
    );
  });

  test("of ten processes that begin at once, one runs its agent", async () => {
    const threadId = newThread();
    const agents = Array.from({ length: 10 }, () => thinking());
    const places = agents.map((agent) => ({ agent, runner: replica() }));
    const runs = places.map(({ runner, agent }, n) =>
      ran(runner, threadId, agent, { runId: `r${n}`, messages: [user(`q${n}`)] }),
    );
    let over = 0;
    for (const run of runs) void run.then(() => (over += 1));
    await expect.poll(() => over).toBe(9);
    await expect.poll(() => replica().stop({ threadId })).toBe(true);
    const ends = (await Promise.all(runs)).map((events) => events.at(-1)?.type);
    expect(ends.filter((type) => type === "RUN_FINISHED")).toHaveLength(1);
    expect(agents.filter(({ seen: given }) => given.length > 0)).toHaveLength(1);
  });

  test("a run whose process was killed does not keep its thread", async () => {
    const [runner, threadId] = [replica({ lostAfterMs: 1 }), newThread()];
    await tell(client, threadId, "lost question");
    await claim(client, { sessionId: threadId, runId: "r1" }); // Its process is dead from here on.
    const [start, end] = await seen(runner, threadId);
    expect(start).toMatchObject({ type: "RUN_STARTED", runId: "r1" });
    expect(end).toMatchObject({ type: "RUN_ERROR", code: "STALLED" });
    const shown = await ran(runner, threadId, saying("back"), {
      runId: "r2",
      messages: [user("q2")],
    });
    expect(typesOf(shown).at(-1)).toBe("RUN_FINISHED");
    const log = await seen(runner, threadId);
    expect(log.filter(({ type }) => type.startsWith("RUN_"))).toMatchObject([
      { type: "RUN_STARTED", runId: "r1" },
      { type: "RUN_ERROR", code: "RUNNER_LOST" },
      { type: "RUN_STARTED", runId: "r2" },
      { type: "RUN_FINISHED", runId: "r2" },
    ]);
  });

  test("a run that another process takes over ends, and its agent is stopped", async () => {
    const [slow, other, threadId] = [replica(), replica({ lostAfterMs: 0 }), newThread()];
    const agent = thinking();
    const lost = ran(slow, threadId, agent);
    await expect.poll(() => agent.isWaiting).toBe(true);
    await ran(other, threadId, saying("mine"), { runId: "r2", messages: [user("q2")] });
    expect((await lost).at(-1)).toMatchObject({ type: "RUN_ERROR", code: "STALE_EPOCH" });
    expect(agent.stopped.signal.aborted).toBe(true);
  });
});

describe("together with the other APIs of the ledger", () => {
  test("the questions and the answers are messages, too", async () => {
    const [runner, threadId] = [replica(), newThread()];
    await ran(runner, threadId, saying("An answer."), { messages: [user("q", "A question?")] });
    const rows = await rowsOf(client, "messages", threadId);
    expect(rows.map(({ eventType }) => eventType)).toEqual(["user", "assistant", "lifecycle"]);
    const { messages } = await client.unary(SessionService.method.getTranscript, {
      sessionId: threadId,
    });
    expect(JSON.parse(messages)).toMatchObject([
      { id: "q", role: "user", content: "A question?" },
      { id: "r1-answer", role: "assistant", content: "An answer." },
    ]);
  });

  test("what people sent on another way reaches the agent before the new question", async () => {
    const [runner, threadId] = [replica(), newThread()];
    await tell(client, threadId, "from Slack");
    const agent = saying("both");
    const shown = await ran(runner, threadId, agent);
    expect(agent.seen[0]?.messages.map(({ content }) => content)).toEqual([
      "from Slack",
      "text of q",
    ]);
    expect(startsOf(shown)[0]).toHaveLength(2);
    const session = await client.unary(SessionService.method.getSession, { id: threadId });
    expect(session.waiting).toBe(0n);
  });

  test("a run without a new message begins, and its id begins no second one", async () => {
    const [runner, threadId] = [replica(), newThread()];
    await ran(runner, threadId, saying("a"));
    const agent = saying("again");
    const again = await ran(runner, threadId, agent, { runId: "r2", messages: [user("q")] });
    expect(typesOf(again).at(-1)).toBe("RUN_FINISHED");
    expect(startsOf(again)).toEqual([["q"]]); // It is answered again.
    const repeated = await ran(runner, threadId, agent, { runId: "r2", messages: [user("q")] });
    expect(repeated).toMatchObject([{ type: "RUN_ERROR", message: "run r2 has begun before" }]);
    expect(agent.seen).toHaveLength(1);
  });

  test("a result of a tool of the page begins a run", async () => {
    const [runner, threadId] = [replica(), newThread()];
    const asking = new PlayedAgent(async (_, emit) => {
      emit({
        type: "TOOL_CALL_START",
        toolCallId: "c1",
        toolCallName: "confirm",
        parentMessageId: "a",
      });
      emit({ type: "TOOL_CALL_END", toolCallId: "c1" });
    });
    await ran(runner, threadId, asking);
    const call = {
      id: "c1",
      type: "function" as const,
      function: { name: "confirm", arguments: "" },
    };
    const messages: Message[] = [
      user("q"),
      { id: "a", role: "assistant", toolCalls: [call] },
      { id: "result", role: "tool", toolCallId: "c1", content: "yes" },
    ];
    const next = await ran(runner, threadId, saying("done"), { runId: "r2", messages });
    expect(startsOf(next)).toEqual([["result"]]);
  });

  test("a thread with a name that is no session id is refused with the reason", async () => {
    const [refused] = await ran(replica(), "a/b", saying("no"));
    expect(refused).toMatchObject({ type: "RUN_ERROR", code: "INVALID_REQUEST" });
  });

  test("a run of another runner is shown, also one without an end", async () => {
    const [runner, threadId] = [replica(), newThread()];
    await push(client, threadId, { type: "RUN_STARTED", threadId, runId: "x" });
    await push(client, threadId, { type: "RUN_STARTED", threadId, runId: "y" });
    await push(client, threadId, { type: "RUN_FINISHED", threadId, runId: "y" });
    expect(typesOf(await seen(runner, threadId))).toEqual([
      "RUN_STARTED",
      "RUN_STARTED",
      "RUN_FINISHED",
    ]);
  });
});

function noBigInt(_: string, value: unknown): unknown {
  return typeof value === "bigint" ? `${value}` : value;
}

describe("with CopilotKit's runtime and client", () => {
  beforeAll(() => {
    vi.spyOn(console, "warn").mockReturnValue();
  });

  /** A page and a process of the app; the request of the page is answered without a network. */
  function app(agent: PlayedAgent) {
    const runner: AgentRunner = replica();
    const runtime = new CopilotRuntime({ agents: { default: agent }, runner });
    const handler = createCopilotRuntimeHandler({ runtime, basePath: "/copilotkit" });
    vi.stubGlobal("fetch", (url: string, init: RequestInit) => handler(new Request(url, init)));
    const core = new CopilotKitCore({ runtimeUrl: "http://app.test/copilotkit" });
    const { agent: shown } = core.registerProxiedAgent({
      agentId: "page",
      runtimeAgentId: "default",
    });
    return { core, agent: shown };
  }

  test("a page that is loaded again in another process shows the whole thread", async () => {
    const threadId = newThread();
    const first = app(saying("Noon", "."));
    first.agent.threadId = threadId;
    first.agent.addMessage(user("q", "What is the time?"));
    await first.core.runAgent({ agent: first.agent });
    expect(first.agent.messages).toMatchObject([
      { id: "q" },
      { role: "assistant", content: "Noon." },
    ]);
    const second = app(saying("never"));
    second.agent.threadId = threadId;
    await second.core.connectAgent({ agent: second.agent });
    expect(second.agent.messages).toMatchObject([
      { id: "q", role: "user", content: "What is the time?" },
      { role: "assistant", content: "Noon." },
    ]);
    vi.unstubAllGlobals();
  });
});
