/**
 * People talk to an agent over AG-UI: the clients of npm type, answer interrupts and results of their
 * own tools, and get the answers of a runner that claims turns. What a client shows is compared with
 * the rows, and with what a new client shows.
 */
import { HttpAgent as HttpAgent1 } from "@ag-ui/client";
import { CopilotKitCore } from "@copilotkit/core";
import { HttpAgent as HttpAgent0 } from "agui-client-0";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { z } from "zod";
import { createLedgerClient, createSessionWriter, ledger } from "../../src/runner/index.ts";
import { newSession, rowsOf } from "../support/pushing.ts";
import { type UsedService, useService } from "../support/use-service.ts";

const { service, client: rpc } = useService();
const { service: impatient } = useService({ env: { RUN_WAIT: "1s" } });
beforeAll(() => {
  vi.spyOn(console, "warn").mockReturnValue(); // 1.0.0 tells of every field that it strips.
  vi.spyOn(console, "error").mockReturnValue();
});
afterAll(() => {
  vi.restoreAllMocks();
});

interface Answer {
  readonly interruptId: string;
  readonly status: "resolved" | "cancelled";
  readonly payload?: unknown;
}

type TypedMessage =
  | { readonly id: string; readonly role: "user"; readonly content: string }
  | {
      readonly id: string;
      readonly role: "tool";
      readonly content: string;
      readonly toolCallId: string;
    };

interface Shown {
  readonly id: string;
  readonly role: string;
  readonly content?: unknown;
}

/** One page of a person. */
interface Page {
  /** Adds a message, as a person types it. */
  type(message: TypedMessage): void;
  /** Runs the agent; resolves when the answer has ended, and rejects when the run has failed. */
  run(resume?: readonly Answer[]): Promise<void>;
  /** Opens the session: CopilotKit connects, and an HttpAgent runs without anything new. */
  join(): Promise<void>;
  /** Leaves the answer. */
  leave(): Promise<void>;
  /** The codes of the RUN_ERRORs so far. */
  readonly codes: readonly unknown[];
  readonly messages: readonly Shown[];
  readonly interrupts: readonly string[];
}

interface Client {
  readonly name: string;
  open(sessionId: string, of?: "impatient"): Page;
}

const shownSchema = z.array(
  z.looseObject({ id: z.string(), role: z.string(), content: z.unknown().optional() }),
);

interface AgentLike {
  readonly messages: unknown;
  readonly pendingInterrupts: readonly { readonly id: string }[];
  addMessage(message: TypedMessage): void;
  detachActiveRun(): Promise<void>;
  subscribe(subscriber: {
    readonly onRunErrorEvent: (given: { readonly event: { readonly code?: unknown } }) => void;
  }): unknown;
}

type Asking = Pick<Page, "run" | "join">;

function pageOf(agent: AgentLike, asking: Asking): Page {
  const codes: unknown[] = [];
  agent.subscribe({ onRunErrorEvent: ({ event }) => void codes.push(event.code) });
  return {
    ...asking,
    codes,
    type: (message) => agent.addMessage(message),
    leave: () => agent.detachActiveRun(),
    get messages() {
      return shownSchema.parse(JSON.parse(JSON.stringify(agent.messages)));
    },
    get interrupts() {
      return agent.pendingInterrupts.map(({ id }) => id);
    },
  };
}

type HttpAgentClass = new (config: { url: string; threadId: string }) => HttpAgent1 | HttpAgent0;

function httpClient(name: string, Agent: HttpAgentClass): Client {
  return {
    name,
    open(sessionId, of) {
      const { httpAddress } = of === undefined ? service : impatient;
      const url = `http://${httpAddress}/agui/sessions/${sessionId}`;
      const agent = new Agent({ url, threadId: sessionId });
      const run: Page["run"] = async (resume) => {
        await agent.runAgent(resume === undefined ? {} : { resume: [...resume] });
      };
      return pageOf(agent, { run, join: () => run() });
    },
  };
}

const COPILOTKIT: Client = {
  name: "@copilotkit/core",
  open(sessionId, of) {
    const { httpAddress } = of === undefined ? service : impatient;
    const core = new CopilotKitCore({ runtimeUrl: `http://${httpAddress}/copilotkit` });
    const failures: Error[] = [];
    core.subscribe({ onError: ({ error }) => void failures.push(error) });
    const { agent } = core.registerProxiedAgent({ agentId: "chat", runtimeAgentId: "default" });
    agent.threadId = sessionId;
    const check = (): void => {
      const [failure] = failures.splice(0);
      if (failure !== undefined) throw failure;
    };
    return pageOf(agent, {
      async run(resume) {
        await core.runAgent(resume === undefined ? { agent } : { agent, resume: [...resume] });
        check();
      },
      async join() {
        await core.connectAgent({ agent });
        check();
      },
    });
  },
};

const CLIENTS: readonly Client[] = [
  httpClient("@ag-ui/client 1.0.0", HttpAgent1),
  httpClient("@ag-ui/client 0.0.59", HttpAgent0),
  COPILOTKIT,
];

const user = (id: string, content: string) => ({ id, role: "user", content }) as const;
const assistant = (id: string, content: string) => ({ id, role: "assistant", content });
/** The fields that all versions of the clients keep. */
const plain = (messages: readonly Shown[]): readonly Shown[] =>
  messages.map(({ id, role, content }) => ({ id, role, content }));

type Event = Readonly<Record<string, unknown>> & { readonly type: string };
interface Turn {
  readonly runId: string;
  readonly payloads: readonly string[];
  event(event: Event): void;
  /** Begins a message of the agent. */
  start(messageId: string, token: string): void;
  /** Ends it, with its last token. */
  end(messageId: string, token: string): void;
  finish(more?: object): Promise<void>;
}

let epoch = 1n;

interface TurnOptions {
  readonly messagesMax?: number;
  readonly of?: UsedService;
}

/** Claims the next turn of the session, as the runner of the README does. */
async function nextTurn(
  sessionId: string,
  runId: string,
  { messagesMax = 10, of = service }: TurnOptions = {},
): Promise<Turn> {
  const address = of.grpcAddress;
  const client = createLedgerClient({ address });
  epoch += 1n;
  const writer = createSessionWriter({ address, sessionId, epoch, lifecycleMessages: false });
  const runStarted = JSON.stringify({ runId });
  const claim = { sessionId, producerEpoch: epoch, runStarted, messagesMax };
  const asked = { ...claim, wait: { seconds: 60n } };
  const { messages } = await client.call(ledger.claimTurn, asked, { deadlineMs: 70_000 });
  const begun = new Set<string>();
  return {
    runId,
    payloads: messages.map(({ payload }) => payload),
    event: (event) => writer.event(event),
    start(messageId, delta) {
      writer.event({ type: "TEXT_MESSAGE_START", messageId, role: "assistant" });
      writer.event({ type: "TEXT_MESSAGE_CONTENT", messageId, delta });
      begun.add(messageId);
    },
    end(messageId, delta) {
      if (!begun.has(messageId))
        writer.event({ type: "TEXT_MESSAGE_START", messageId, role: "assistant" });
      writer.event({ type: "TEXT_MESSAGE_CONTENT", messageId, delta });
      writer.event({ type: "TEXT_MESSAGE_END", messageId });
    },
    async finish(more = {}) {
      writer.event({ type: "RUN_FINISHED", threadId: sessionId, runId, ...more });
      await writer.close({ timeoutMs: 20_000 });
      client.close();
    },
  };
}

const WAIT = { interval: 10, timeout: 20_000 };

/** Resolves when the page shows exactly these texts. */
function shows(page: Page, ...texts: readonly unknown[]): Promise<void> {
  return vi.waitFor(() => expect(page.messages.map(({ content }) => content)).toEqual(texts), WAIT);
}

/** The rows of people in the session, as they were pushed. */
async function typedRows(sessionId: string): Promise<readonly string[]> {
  const rows = await rowsOf(rpc, "messages", sessionId);
  return rows.filter(({ eventType }) => eventType === "user").map(({ payload }) => payload);
}

/** Everything that a client shows that comes now. */
async function newcomer(client: Client, sessionId: string): Promise<readonly Shown[]> {
  const page = client.open(sessionId);
  await page.join();
  return plain(page.messages);
}

describe.each(CLIENTS)("$name", (client) => {
  const open = (...given: Parameters<Client["open"]>): Page => client.open(...given);

  test("types a message, and gets the answer of the run that takes it, token by token", async () => {
    const sessionId = newSession();
    const page = open(sessionId);
    for (const at of [1, 2]) {
      page.type(user(`u${at}`, `question ${at}`));
      const before = page.messages.map(({ content }) => content);
      const answered = page.run();
      const turn = await nextTurn(sessionId, `r${at}`);
      expect(turn.payloads).toEqual([
        JSON.stringify({ threadId: sessionId, messages: [user(`u${at}`, `question ${at}`)] }),
      ]);
      turn.start(`a${at}`, "ans");
      await shows(page, ...before, "ans");
      turn.end(`a${at}`, "wer");
      await turn.finish();
      await answered;
    }
    const expected = [
      user("u1", "question 1"),
      assistant("a1", "answer"),
      user("u2", "question 2"),
      assistant("a2", "answer"),
    ];
    expect(plain(page.messages)).toEqual(expected);
    expect(await newcomer(client, sessionId)).toEqual(expected);
    await page.run(); // Nothing is new.
    expect(plain(page.messages)).toEqual(expected);
    expect(await typedRows(sessionId)).toHaveLength(2);
  });

  test("reloads in the middle of the answer, and a second page that watches sees the same", async () => {
    const sessionId = newSession();
    const page = open(sessionId);
    page.type(user("u1", "question"));
    const left = page.run();
    const turn = await nextTurn(sessionId, "r1");
    turn.start("a1", "one ");
    await shows(page, "question", "one ");
    await page.leave();
    await left;
    const [reloaded, watching] = [open(sessionId), open(sessionId)];
    const joined = [reloaded.join(), watching.join()];
    await shows(reloaded, "question", "one ");
    await shows(watching, "question", "one ");
    turn.end("a1", "two");
    await turn.finish();
    await Promise.all(joined);
    const expected = [user("u1", "question"), assistant("a1", "one two")];
    for (const one of [reloaded, watching]) expect(plain(one.messages)).toEqual(expected);
  });

  test("that asks again with the same message gets its answer, and nothing is stored twice", async () => {
    const sessionId = newSession();
    const page = open(sessionId);
    page.type(user("u1", "question"));
    const first = page.run();
    await vi.waitFor(async () => expect(await typedRows(sessionId)).toHaveLength(1), WAIT);
    await page.leave();
    await first;
    const again = page.run();
    const turn = await nextTurn(sessionId, "r1");
    turn.start("a1", "one ");
    await shows(page, "question", "one ");
    const retried = open(sessionId);
    retried.type(user("u1", "question"));
    const joined = retried.run();
    await shows(retried, "question", "one ");
    turn.end("a1", "two");
    await turn.finish();
    await Promise.all([again, joined]);
    const expected = [user("u1", "question"), assistant("a1", "one two")];
    for (const one of [page, retried]) expect(plain(one.messages)).toEqual(expected);
    expect(await typedRows(sessionId)).toHaveLength(1);
  });

  test("that types while a run is open sees the rest of that run, and then its own answer", async () => {
    const sessionId = newSession();
    const [first, second] = [open(sessionId), open(sessionId)];
    first.type(user("u1", "one?"));
    const one = first.run();
    const turn = await nextTurn(sessionId, "r1");
    turn.start("a1", "on");
    await shows(first, "one?", "on");
    second.type(user("u2", "two?"));
    const two = second.run();
    await shows(second, "one?", "on", "two?");
    turn.end("a1", "e");
    await turn.finish();
    await one;
    await shows(second, "one?", "one", "two?");
    const next = await nextTurn(sessionId, "r2");
    expect(next.payloads).toHaveLength(1);
    next.start("a2", "tw");
    await shows(second, "one?", "one", "two?", "tw");
    next.end("a2", "o");
    await next.finish();
    await two;
    expect(plain(second.messages)).toEqual(await newcomer(client, sessionId));
  });

  test("of two pages that type at once, each gets the answer to its message, and shows one order", async () => {
    const sessionId = newSession();
    const pages = [open(sessionId), open(sessionId)] as const;
    const answers = pages.map((page, at) => {
      page.type(user(`u${at}`, `question ${at}`));
      return page.run();
    });
    await vi.waitFor(async () => expect(await typedRows(sessionId)).toHaveLength(2), WAIT);
    for (const runId of ["r1", "r2"]) {
      const turn = await nextTurn(sessionId, runId, { messagesMax: 1 });
      const [payload = ""] = turn.payloads;
      turn.end(`a-${runId}`, `answer to ${/question \d/.exec(payload)?.[0]}`);
      await turn.finish();
    }
    await Promise.all(answers);
    const all = await newcomer(client, sessionId);
    expect(new Set(all.map(({ content }) => content))).toEqual(
      new Set([0, 1].flatMap((at) => [`question ${at}`, `answer to question ${at}`])),
    );
    expect(all).toHaveLength(4);
    const last = pages.filter((page) => page.messages.length === 4);
    expect(last.length).toBeGreaterThan(0); // The other page was answered first, and is not told of the rest.
    for (const page of last) expect(plain(page.messages)).toEqual(all);
  });

  test("approves an interrupt, and nobody waits for it any longer once a run has taken the answer", async () => {
    const sessionId = newSession();
    const page = open(sessionId);
    page.type(user("u1", "delete it"));
    const asked = page.run();
    const turn = await nextTurn(sessionId, "r1");
    turn.end("a1", "Sure?");
    const interrupts = [{ id: "i1", reason: "confirm", message: "Sure?" }];
    await turn.finish({ outcome: { type: "interrupt", interrupts } });
    await asked;
    expect(page.interrupts).toEqual(["i1"]);
    const resume = [{ interruptId: "i1", status: "resolved", payload: { yes: true } }] as const;
    const answered = page.run(resume);
    const next = await nextTurn(sessionId, "r2");
    expect(next.payloads).toEqual([JSON.stringify({ threadId: sessionId, messages: [], resume })]);
    next.start("a2", "do");
    await shows(page, "delete it", "Sure?", "do");
    const watching = open(sessionId);
    const joined = watching.join();
    await shows(watching, "delete it", "Sure?", "do");
    const transcript = await fetch(
      `http://${service.httpAddress}/api/ambient/v1/sessions/${sessionId}/transcript`,
    );
    expect(await transcript.json()).toMatchObject({ interrupts: [] });
    next.end("a2", "ne");
    await next.finish();
    await Promise.all([answered, joined]);
    for (const one of [page, watching]) {
      expect(one.interrupts).toEqual([]);
      expect(one.messages.map(({ content }) => content)).toEqual(["delete it", "Sure?", "done"]);
    }
    expect(await typedRows(sessionId)).toHaveLength(2);
  });

  test("gets no answer without a runner: NO_RUNNER, and a runner that comes later finds the message", async () => {
    const sessionId = newSession();
    const page = open(sessionId, "impatient");
    page.type(user("u1", "question"));
    await page.run().catch(() => undefined);
    expect(page.codes).toEqual(["NO_RUNNER"]);
    expect(plain(page.messages)).toEqual([user("u1", "question")]);
    const turn = await nextTurn(sessionId, "r1", { of: impatient });
    turn.end("a1", "late");
    await turn.finish();
    await page.join();
    expect(plain(page.messages)).toEqual([user("u1", "question"), assistant("a1", "late")]);
  });
});
