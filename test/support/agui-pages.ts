/**
 * Pages of people who talk to an agent over AG-UI: the clients of npm behind one interface; and the
 * turns of a runner, as the README's takes them.
 */
import { eventually } from "./eventually.ts";
import { HttpAgent as HttpAgent1 } from "@ag-ui/client";
import { CopilotKitCore } from "@copilotkit/core";
import { HttpAgent as HttpAgent0 } from "agui-client-0";
import { expect } from "vitest";
import { z } from "zod";
import { createLedgerClient, createSessionWriter, ledger } from "@session-ledger/runner";

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

export interface Shown {
  readonly id: string;
  readonly role: string;
  readonly content?: unknown;
}

/** One page of a person. */
export interface Page {
  /** Adds a message, as a person types it. */
  type(message: TypedMessage): void;
  /** Removes all messages behind this one, as a page does before it regenerates, or edits the next. */
  cutBehind(id: string): void;
  /** Asks for another answer to the last message. */
  regenerate(): Promise<void>;
  /** Runs the agent; resolves when the answer has ended, and rejects when the run has failed. */
  run(resume?: readonly Answer[]): Promise<void>;
  /** Opens the session: CopilotKit connects, and an HttpAgent runs without anything new. */
  join(): Promise<void>;
  /** Answers a question of a graph, as CopilotKit's `useInterrupt` does. */
  resumeGraph(answer: unknown): Promise<void>;
  /** Leaves the answer. */
  leave(): Promise<void>;
  /** The codes of the RUN_ERRORs so far. */
  readonly codes: readonly unknown[];
  readonly messages: readonly Shown[];
  readonly interrupts: readonly string[];
  /** The values of the questions of a graph that `useInterrupt` shows. */
  readonly questions: readonly unknown[];
}

/** A function of the page that the agent may call. */
export interface FrontendTool {
  readonly name: string;
  readonly handler: (given: Readonly<Record<string, unknown>>) => Promise<string>;
}

export interface PageClient {
  readonly name: string;
  /** True: the page calls its tools by itself, and runs the agent with the results. */
  readonly callsTools: boolean;
  open(httpAddress: string, sessionId: string, tools?: readonly FrontendTool[]): Page;
}

const shownSchema = z.array(
  z.looseObject({ id: z.string(), role: z.string(), content: z.unknown().optional() }),
);

interface AgentLike {
  readonly messages: unknown;
  readonly pendingInterrupts: readonly { readonly id: string }[];
  addMessage(message: TypedMessage): void;
  setMessages(messages: Shown[]): void;
  subscribe(subscriber: {
    readonly onRunErrorEvent: (given: { readonly event: { readonly code?: unknown } }) => void;
    readonly onCustomEvent: (given: {
      readonly event: { readonly name: string; readonly value?: unknown };
    }) => void;
    readonly onRunStartedEvent: () => void;
    readonly onRunFinalized: () => void;
  }): unknown;
}

type Asking = Pick<Page, "run" | "regenerate" | "join" | "leave" | "resumeGraph">;

function pageOf(agent: AgentLike, asking: Asking): Page {
  const codes: unknown[] = [];
  let [asked, questions]: [unknown[], readonly unknown[]] = [[], []];
  agent.subscribe({
    onRunErrorEvent: ({ event }) => void codes.push(event.code),
    onCustomEvent({ event }) {
      if (event.name === "on_interrupt") asked.push(event.value);
    },
    onRunStartedEvent() {
      [asked, questions] = [[], []];
    },
    onRunFinalized() {
      questions = asked;
    },
  });
  return {
    ...asking,
    codes,
    type: (message) => agent.addMessage(message),
    cutBehind(id) {
      const messages = shownSchema.parse(agent.messages);
      agent.setMessages(messages.slice(0, messages.findIndex((one) => one.id === id) + 1));
    },
    get messages() {
      return shownSchema.parse(JSON.parse(JSON.stringify(agent.messages)));
    },
    get interrupts() {
      return agent.pendingInterrupts.map(({ id }) => id);
    },
    get questions() {
      return questions;
    },
  };
}

type HttpAgentClass = new (config: { url: string; threadId: string }) => HttpAgent1 | HttpAgent0;

function httpClient(name: string, Agent: HttpAgentClass): PageClient {
  return {
    name,
    callsTools: false,
    open(httpAddress, sessionId) {
      const url = `http://${httpAddress}/agui/sessions/${sessionId}`;
      const agent = new Agent({ url, threadId: sessionId });
      const run: Page["run"] = async (resume) => {
        await agent.runAgent(resume === undefined ? {} : { resume: [...resume] });
      };
      const leave = async (): Promise<void> => {
        await agent.detachActiveRun();
        agent.abortRun(); // Else it reads on.
      };
      const resumeGraph = async (resume: unknown): Promise<void> => {
        await agent.runAgent({ forwardedProps: { command: { resume } } });
      };
      const regenerate = async (): Promise<void> => {
        await agent.runAgent({ forwardedProps: { regenerate: true } });
      };
      return pageOf(agent, { run, regenerate, join: () => run(), leave, resumeGraph });
    },
  };
}

const COPILOTKIT: PageClient = {
  name: "@copilotkit/core",
  callsTools: true,
  open(httpAddress, sessionId, tools = []) {
    const core = new CopilotKitCore({ runtimeUrl: `http://${httpAddress}/copilotkit` });
    const failures: Error[] = [];
    core.subscribe({ onError: ({ error }) => void failures.push(error) });
    const { agent } = core.registerProxiedAgent({ agentId: "chat", runtimeAgentId: "default" });
    agent.threadId = sessionId;
    for (const tool of tools) core.addTool(tool);
    const check = (): void => {
      const [failure] = failures.splice(0);
      if (failure !== undefined) throw failure;
    };
    const run: Page["run"] = async (resume) => {
      await core.runAgent(resume === undefined ? { agent } : { agent, resume: [...resume] });
      check();
    };
    return pageOf(agent, {
      run,
      regenerate: () => run(),
      async join() {
        await core.connectAgent({ agent });
        check();
      },
      async resumeGraph(resume) {
        await core.runAgent({ agent, forwardedProps: { command: { resume } } });
        check();
      },
      leave: () => agent.detachActiveRun(),
    });
  },
};

export const PAGE_CLIENTS: readonly PageClient[] = [
  httpClient("@ag-ui/client 1.0.0", HttpAgent1),
  httpClient("@ag-ui/client 0.0.59", HttpAgent0),
  COPILOTKIT,
];

/** The fields that all versions of the clients keep. */
export const plain = (messages: readonly Shown[]): readonly Shown[] =>
  messages.map(({ id, role, content }) => ({ id, role, content }));

type Event = Readonly<Record<string, unknown>> & { readonly type: string };

export interface Turn {
  readonly payloads: readonly string[];
  event(event: Event): void;
  /** Begins a message of the agent. */
  start(messageId: string, token: string): void;
  /** Ends it, with its last token. */
  end(messageId: string, token: string): void;
  finish(more?: object): Promise<void>;
}

let epoch = 1n;

/** Claims the next turn of the session, as the runner of the README does. */
export async function nextTurn(
  address: string,
  sessionId: string,
  runId: string,
  { messagesMax = 10 } = {},
): Promise<Turn> {
  const client = createLedgerClient({ address });
  epoch += 1n;
  const writer = createSessionWriter({ address, sessionId, epoch, lifecycleMessages: false });
  const runStarted = JSON.stringify({ runId });
  const claim = { sessionId, producerEpoch: epoch, runStarted, messagesMax };
  const asked = { ...claim, wait: { seconds: 60n } };
  const { messages } = await client.call(ledger.claimTurn, asked, { deadlineMs: 70_000 });
  const startedIds = new Set<string>();
  return {
    payloads: messages.map(({ payload }) => payload),
    event: (event) => writer.event(event),
    start(messageId, delta) {
      writer.event({ type: "TEXT_MESSAGE_START", messageId, role: "assistant" });
      writer.event({ type: "TEXT_MESSAGE_CONTENT", messageId, delta });
      startedIds.add(messageId);
    },
    end(messageId, delta) {
      if (!startedIds.has(messageId))
        writer.event({ type: "TEXT_MESSAGE_START", messageId, role: "assistant" });
      writer.event({ type: "TEXT_MESSAGE_CONTENT", messageId, delta });
      writer.event({ type: "TEXT_MESSAGE_END", messageId });
    },
    async finish(more = {}) {
      writer.event({ type: "RUN_FINISHED", threadId: sessionId, runId, ...more });
      await writer.close({ timeoutMs: 60_000 });
      client.close();
    },
  };
}

/** Resolves when the page shows exactly these texts. */
export function shows(page: Page, ...texts: readonly unknown[]): Promise<void> {
  return eventually(() => expect(page.messages.map(({ content }) => content)).toEqual(texts));
}
