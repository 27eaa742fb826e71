/**
 * What every bridge must do, in one table of scenarios. Each player makes the same agent with its
 * framework; the events must be legal for both generations of AG-UI, and their clients must show the
 * same conversation.
 */
import { describe, expect, test } from "vitest";
import { z } from "zod";
import type {
  AgentEvent,
  PlatformBridge,
  ResumeEntry,
  RunInput,
} from "@session-ledger/runner/internal/sdk/bridge";
import { AGUI_CLIENTS } from "../support/agui-clients.ts";
import { checkLegal } from "../support/agui-oracle.ts";
import { AGUI_0, AGUI_1 } from "./players/agui.ts";
import { AI_SDK } from "./players/ai-sdk.ts";
import { CLAUDE } from "./players/claude.ts";
import { LANGGRAPH } from "./players/langgraph.ts";
import { type Step, TOOL } from "./players/script.ts";

const PLAYERS = [AGUI_1, AGUI_0, AI_SDK, LANGGRAPH, CLAUDE];

interface Scenario {
  readonly title: string;
  readonly steps: readonly Step[];
  /** The messages that a client shows after the last run, without ids. */
  readonly shows: readonly object[];
  /** Answers of the second run to the interrupts of the first one. */
  readonly answers?: unknown;
  readonly failsWith?: string;
  /** Types that come in this order, with others between them. */
  readonly order?: readonly string[];
}

const called = (...calls: readonly { readonly id: string; readonly args: string }[]) => ({
  toolCalls: calls.map(({ id, args }) => ({
    id,
    type: "function",
    function: { name: TOOL, arguments: args },
  })),
});
const tool = (toolCallId: string, content: string) => ({ role: "tool", toolCallId, content });
const assistant = (content: string | undefined, calls: object = {}) => ({
  role: "assistant",
  ...(content !== undefined && { content }),
  ...calls,
});

const SCENARIOS: readonly Scenario[] = [
  {
    title: "text comes in parts, after reasoning",
    steps: [{ beats: [{ think: "hm" }, { think: "m" }, { text: "Hel" }, { text: "lo" }] }],
    shows: [{ role: "reasoning", content: "hmm" }, assistant("Hello")],
    order: ["REASONING_MESSAGE_CONTENT", "TEXT_MESSAGE_START", "TEXT_MESSAGE_END"],
  },
  {
    title: "a text stays open while the arguments of a call are streamed",
    steps: [
      {
        beats: [
          { text: "I " },
          { call: "c1" },
          { args: '{"q":', of: "c1" },
          { text: "look" },
          { args: "1}", of: "c1" },
        ],
        tools: { c1: { result: "found" } },
      },
      { beats: [{ text: "Done" }] },
    ],
    shows: [
      assistant("I look", called({ id: "c1", args: '{"q":1}' })),
      tool("c1", "found"),
      assistant("Done"),
    ],
    order: [
      "TEXT_MESSAGE_START",
      "TOOL_CALL_START",
      "TOOL_CALL_ARGS",
      "TEXT_MESSAGE_CONTENT",
      "TOOL_CALL_ARGS",
      "TEXT_MESSAGE_END",
      "TOOL_CALL_RESULT",
    ],
  },
  {
    title: "parallel calls are all begun before one ends",
    steps: [
      {
        beats: [
          { call: "c1" },
          { call: "c2" },
          { args: '{"a":', of: "c1" },
          { args: '{"b":', of: "c2" },
          { args: "1}", of: "c1" },
          { args: "2}", of: "c2" },
        ],
        tools: { c1: { result: "one" }, c2: { result: "two" } },
      },
      { beats: [{ text: "Done" }] },
    ],
    shows: [
      assistant(undefined, called({ id: "c1", args: '{"a":1}' }, { id: "c2", args: '{"b":2}' })),
      tool("c1", "one"),
      tool("c2", "two"),
      assistant("Done"),
    ],
    order: ["TOOL_CALL_START", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"],
  },
  {
    title: "the result of a call ends it if nothing else does",
    steps: [
      {
        beats: [{ call: "c1" }, { args: "{}", of: "c1" }],
        tools: { c1: { result: "found" } },
        isTacit: true,
      },
      { beats: [{ text: "Done" }] },
    ],
    shows: [
      assistant(undefined, called({ id: "c1", args: "{}" })),
      tool("c1", "found"),
      assistant("Done"),
    ],
    order: ["TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT", "TEXT_MESSAGE_START"],
  },
  {
    title: "an error in the middle of a text ends the run",
    steps: [{ beats: [{ text: "Hel" }], fails: "the model is away" }],
    shows: [assistant("Hel")],
    failsWith: "the model is away",
  },
  {
    title: "an interrupt ends the run, and the approval resumes it",
    steps: [
      {
        beats: [{ text: "May I?" }, { call: "c1" }, { args: "{}", of: "c1" }],
        tools: { c1: { asks: true, result: "found" } },
      },
      { beats: [{ text: "Done" }] },
    ],
    answers: { approved: true },
    shows: [
      assistant("May I?", called({ id: "c1", args: "{}" })),
      tool("c1", "found"),
      assistant("Done"),
    ],
  },
];

const CANCELLED: readonly Step[] = [
  {
    beats: [{ text: "Wait" }, { call: "c1" }, { args: "{}", of: "c1" }],
    tools: { c1: { hangs: true } },
  },
  { beats: [{ text: "Again" }] },
];

describe.each(PLAYERS)("the bridge $name", (player) => {
  test.each(SCENARIOS)("$title", async ({ steps, shows, answers, failsWith, order }) => {
    const session = new Session(await player.bridge(steps));
    const { failure, interrupts } = await session.play(answers);
    expect(failure?.message).toBe(failsWith);
    expect(interrupts).toBe(answers === undefined ? 0 : 1);
    expect(session.interrupts()).toEqual([]);
    await checkLegal(session.events);
    const events = session.events.map((event) => JSON.stringify(event));
    for (const client of AGUI_CLIENTS.slice(0, 2)) {
      const { messages } = await client.fed(events);
      expect(messages.map(withoutId)).toEqual(shows);
    }
    if (order !== undefined) expectOrder(session.events, order);
  });

  test("a cancel ends a tool call, and the next run answers", async () => {
    let hang = (): void => {};
    const hangs = new Promise<void>((resolve) => {
      hang = resolve;
    });
    const bridge = await player.bridge(CANCELLED, { called: () => hang() });
    const session = new Session(bridge);
    const running = session.run();
    await hangs;
    expect(await bridge.interrupt()).toBe(1);
    await running;
    expect(bridge.isRunning()).toBe(false);
    await checkLegal(session.events);
    expect(await session.run()).toBeUndefined();
    await checkLegal(session.events);
    expect(session.texts()).toContain("Again");
  });
});

const resumeSchema = z.object({
  interruptId: z.string(),
  status: z.literal("resolved"),
  payload: z.unknown(),
});
const interruptSchema = z.object({ id: z.string() });
const endSchema = z.object({
  outcome: z
    .object({ type: z.string(), interrupts: z.array(interruptSchema).optional() })
    .optional(),
});

/** Runs of one session, as the runner makes them of what the adapter leaves out. */
class Session {
  readonly events: AgentEvent[] = [];
  readonly #bridge: PlatformBridge;
  #runs = 0;

  constructor(bridge: PlatformBridge) {
    this.#bridge = bridge;
  }

  async run(resume?: readonly ResumeEntry[]): Promise<Error | undefined> {
    this.#runs += 1;
    const ids = { threadId: "s", runId: `run-${this.#runs}` };
    const input: RunInput = {
      ...ids,
      state: {},
      messages: await this.#messages(resume === undefined),
      tools: [],
      context: [],
      forwardedProps: {},
      ...(resume !== undefined && { resume }),
    };
    const context = { sessionId: "s", isContinuation: this.#runs > 1 };
    const first = this.events.length;
    let failure: Error | undefined;
    try {
      for await (const event of this.#bridge.run(input, context)) {
        if (this.events.length === first && event.type !== "RUN_STARTED") {
          this.events.push({ type: "RUN_STARTED", ...ids });
        }
        this.events.push(event);
      }
    } catch (cause) {
      failure = cause instanceof Error ? cause : new Error(String(cause));
    }
    const end = this.events.at(-1);
    if (end?.type === "RUN_ERROR") return new Error(String(end["message"]));
    if (end?.type !== "RUN_FINISHED") {
      this.events.push({ type: "RUN_ERROR", message: failure?.message ?? "it has no end" });
    }
    return failure;
  }

  /** The first run, and the one that answers its interrupts, which it counts. */
  async play(answers: unknown): Promise<{ failure: Error | undefined; interrupts: number }> {
    const failure = await this.run();
    const entries = this.interrupts().map(({ id: interruptId }) =>
      resumeSchema.parse({ interruptId, status: "resolved", payload: answers }),
    );
    if (entries.length === 0) return { failure, interrupts: 0 };
    return { failure: await this.run(entries), interrupts: entries.length };
  }

  interrupts(): readonly { readonly id: string }[] {
    return endSchema.parse(this.events.at(-1)).outcome?.interrupts ?? [];
  }

  texts(): string {
    return this.events
      .map(({ type, delta }) => (type === "TEXT_MESSAGE_CONTENT" ? delta : ""))
      .join("");
  }

  /** The conversation that a client shows, and a question of a person. */
  async #messages(asks: boolean): Promise<RunInput["messages"]> {
    const question = { role: "user", content: "question", id: `user-${this.#runs}` };
    const [client] = AGUI_CLIENTS;
    const { messages = [] } =
      (await client?.fed(this.events.map((event) => JSON.stringify(event)))) ?? {};
    return [...z.array(messageSchema).parse(messages), ...(asks ? [question] : [])];
  }
}

const messageSchema = z.looseObject({ id: z.string(), role: z.string() });

function withoutId(message: unknown): object {
  const { id: _, ...rest } = messageSchema.parse(message);
  return rest;
}

function expectOrder(events: readonly AgentEvent[], order: readonly string[]): void {
  let at = -1;
  for (const type of order) {
    const found = events.findIndex((event, index) => index > at && event.type === type);
    expect(
      found,
      `${type} after ${at} in ${events.map((one) => one.type).join(" ")}`,
    ).toBeGreaterThan(at);
    at = found;
  }
}
