/**
 * The AG-UI clients of npm behind one interface: `HttpAgent` of both generations of @ag-ui/client, and
 * CopilotKit's core. The same clients are the oracle: `fed` gives a client the events themselves through
 * its own fetch, so that only the server is replaced.
 */
import { HttpAgent as HttpAgent1 } from "@ag-ui/client";
import {
  CopilotKitCore,
  CopilotKitCoreErrorCode,
  ProxiedCopilotRuntimeAgent,
} from "@copilotkit/core";
import { HttpAgent as HttpAgent0 } from "agui-client-0";
import { EventSchemas } from "agui-core-0";
import { z } from "zod";

/** What a client shows of a session. */
export interface Conversation {
  readonly messages: readonly unknown[];
  readonly state: unknown;
  /** Interrupts that wait for an answer. */
  readonly interrupts: readonly unknown[];
}

const conversationSchema = z.object({
  messages: z.array(z.unknown()),
  state: z.unknown(),
  interrupts: z.array(z.unknown()),
});

export interface OpenClient {
  /**
   * Asks for the session and resolves when the answer has ended. The client keeps its messages, as on a
   * page: connecting again is what a page does after a disconnect.
   */
  connect(watch?: ConnectWatch): Promise<void>;
  conversation(): Conversation;
  /** Adds a message as a person types it. */
  say(message: TypedMessage): void;
}

export interface TypedMessage {
  readonly id: string;
  readonly role: "user";
  readonly content: string;
}

export interface ConnectWatch {
  /** Called for each event that the client applies; chunks are START, CONTENT and END by then. */
  readonly onEvent?: (type: string, event: object) => void;
  /** Called when the server has answered with headers. */
  readonly onAnswer?: () => void;
}

export interface AguiClient {
  readonly name: string;
  readonly generation: "0.0.59" | "1.0.0";
  /** True for CopilotKit's chat, which must open at once for a session that does not exist yet. */
  readonly waitsForRun: boolean;
  /** `httpAddress` of a service. */
  open(httpAddress: string, sessionId: string): OpenClient;
  /** The conversation after exactly these events, in runs as the client would have requested them. */
  fed(events: readonly string[]): Promise<Conversation>;
}

/** For files that other packages stand beside, with an @ag-ui/client of their own. */
export const HTTP_AGENTS = { "1.0.0": HttpAgent1, "0.0.59": HttpAgent0 };

export const AGUI_CLIENTS: readonly AguiClient[] = [
  httpClient("1.0.0", HttpAgent1),
  httpClient("0.0.59", HttpAgent0),
  copilotKit(),
];

/** The parts that are the same in both generations. */
interface HttpAgentLike {
  messages: readonly unknown[];
  state: unknown;
  pendingInterrupts: readonly { readonly id: string }[];
  fetch: HttpAgent1["fetch"];
  addMessage(message: TypedMessage): void;
  runAgent(
    parameters: { readonly resume?: Answer[] },
    subscriber: {
      readonly onEvent: (params: { readonly event: { readonly type: string } }) => void;
    },
  ): Promise<unknown>;
}

type ClientFetch = (url: string, init?: RequestInit) => Promise<Response>;

interface Answer {
  interruptId: string;
  status: "cancelled";
}

type HttpAgentClass = new (config: { url: string; threadId: string }) => HttpAgentLike;

function httpClient(generation: "0.0.59" | "1.0.0", Agent: HttpAgentClass): AguiClient {
  const run = async (agent: HttpAgentLike, { onEvent }: ConnectWatch): Promise<void> => {
    // A client with an open interrupt sends no request before the interrupt is answered.
    const resume = agent.pendingInterrupts.map(({ id }): Answer => cancelled(id));
    await agent.runAgent(resume.length === 0 ? {} : { resume }, {
      onEvent: ({ event }) => onEvent?.(event.type, event),
    });
  };
  return {
    name: `@ag-ui/client ${generation}`,
    generation,
    waitsForRun: true,
    open(httpAddress, sessionId) {
      const url = `http://${httpAddress}/agui/sessions/${sessionId}`;
      const agent = new Agent({ url, threadId: sessionId });
      return {
        connect(watch = {}) {
          agent.fetch = watchedFetch(watch);
          return run(agent, watch);
        },
        conversation: () => conversationOf(agent),
        say: (message) => agent.addMessage(message),
      };
    },
    async fed(events) {
      const agent = new Agent({ url: "http://fed/", threadId: "fed" });
      for (const own of runsOf(events)) {
        agent.fetch = answerOf(own);
        await run(agent, {});
      }
      return conversationOf(agent);
    },
  };
}

/** The core asks the runtime for its agents and then connects to one of them. */
function copilotKit(): AguiClient {
  return {
    name: "@copilotkit/core",
    generation: "0.0.59",
    waitsForRun: false,
    open(httpAddress, sessionId) {
      const core = new CopilotKitCore({ runtimeUrl: `http://${httpAddress}/copilotkit` });
      const failures: Error[] = [];
      core.subscribe({
        onError: ({ code, error }) => {
          // A RUN_ERROR of the log is no failure of the client: it is the end of the run.
          if (code !== CopilotKitCoreErrorCode.AGENT_RUN_ERROR_EVENT) failures.push(error);
        },
      });
      const names = { agentId: "viewer", runtimeAgentId: "default" };
      const { agent } = core.registerProxiedAgent(names);
      agent.threadId = sessionId;
      return {
        async connect(watch = {}) {
          agent.fetch = watchedFetch(watch);
          const subscription = agent.subscribe({
            onEvent: ({ event }) => watch.onEvent?.(event.type, event),
          });
          await core.connectAgent({ agent });
          subscription.unsubscribe();
          const [cause] = failures.splice(0);
          if (cause !== undefined) throw cause;
        },
        conversation: () => conversationOf(agent),
        say: (message) => agent.addMessage(message),
      };
    },
    async fed(events) {
      // An unreadable event ends the stream for this client, without an error.
      for (const event of events) EventSchemas.parse(JSON.parse(event));
      const agent = new ProxiedCopilotRuntimeAgent({
        runtimeUrl: "http://fed",
        agentId: "fed",
        threadId: "fed",
        transport: "rest",
        fetch: answerOf(events),
      });
      await agent.connectAgent();
      return conversationOf(agent);
    },
  };
}

function cancelled(interruptId: string): Answer {
  return { interruptId, status: "cancelled" };
}

function conversationOf(agent: {
  readonly messages: readonly unknown[];
  readonly state: unknown;
  readonly pendingInterrupts: readonly unknown[];
}): Conversation {
  const { messages, state, pendingInterrupts: interrupts } = agent;
  // As JSON: a client that uses zod keeps undefined keys.
  const text = JSON.stringify({ messages, state, interrupts });
  return conversationSchema.parse(JSON.parse(text));
}

/** A client asks once for each run. */
function runsOf(events: readonly string[]): readonly (readonly string[])[] {
  const runs: string[][] = [];
  for (const event of events) {
    const last = runs.at(-1);
    if (last === undefined || typeOf(event) === "RUN_STARTED") runs.push([event]);
    else last.push(event);
  }
  return runs;
}

export function typeOf(event: string): string {
  const value: unknown = JSON.parse(event);
  return typeof value === "object" && value !== null && "type" in value ? String(value.type) : "";
}

function watchedFetch({ onAnswer }: ConnectWatch): ClientFetch {
  return async (url, init) => {
    const response = await fetch(url, init);
    if (!url.endsWith("/info")) onAnswer?.();
    return response;
  };
}

function answerOf(events: readonly string[]): () => Promise<Response> {
  const body = events.map((event) => `data: ${event}\n\n`).join("");
  const headers = { "content-type": "text/event-stream" };
  return () => Promise.resolve(new Response(body, { headers }));
}
