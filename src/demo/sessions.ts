/** The recorded sessions of the demo: real agents (recorded.json), and two written ones. */
import type { Session } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { parseObject } from "@session-ledger/agui/json";
import { objectIn } from "@session-ledger/runner/internal/user-messages";
import recorded from "./recorded.json" with { type: "json" };
import { type DemoTurn, refund, release, report, trip } from "./written.ts";

export interface DemoSession {
  /** With a project the service chooses the id, and the label `demo-session` has this one. */
  readonly id: string;
  readonly name: string;
  readonly projectId?: string;
  readonly agentId?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly phase: "Completed" | "Failed" | "Stopped";
  /** The time between its end and the fill. */
  readonly agoMinutes: number;
  readonly turns: readonly DemoTurn[];
  /** The message that a person likes. */
  readonly liked?: string;
  /** The name of a session with its history up to the question. */
  readonly fork?: string;
}

/** The label of a session whose id the service has chosen. */
export const ID_LABEL = "demo-session";

export const LIVE = { id: "demo-live", name: "Talk to the scripted agent" };

/** All sessions of the demo have it, and the agent answers in no other one. */
export const DEMO_LABEL = { demo: "yes" };

export function forkOf(id: string): string {
  return `${id}-fork`;
}

/** Also a session that was not filled to its end, and one that a visitor gave the label. */
export function isOfDemo({ metadata, labels = "" }: Session): boolean {
  const ids = [LIVE, ...demoSessions()].flatMap(({ id }) => [id, forkOf(id)]);
  const has = objectIn(labels);
  const isMade = has?.["demo"] === DEMO_LABEL.demo || typeof has?.[ID_LABEL] === "string";
  return ids.includes(metadata?.id ?? "") || isMade;
}

type RecordedStream = keyof typeof recorded.streams;

function turn(from: string, text: string, stream: RecordedStream): DemoTurn {
  const events = recorded.streams[stream].map((line) => ({ type: "", ...parseObject(line) }));
  return { from, text, events };
}

const EQUATION = "Think step-by-step: If x + 5 = 12, what is x? Show your reasoning process.";

/** The oldest first, as they are filled. */
export function demoSessions(): readonly DemoSession[] {
  return [...recordedSessions(), ...writtenSessions()];
}

function recordedSessions(): readonly DemoSession[] {
  return [
    {
      id: "demo-failed-run",
      name: "A run that fails (Google ADK)",
      phase: "Failed",
      agoMinutes: 190,
      turns: [
        turn(
          "Ana",
          "Say hello and introduce yourself briefly in 2-3 sentences.",
          "google-adk/simple",
        ),
        turn("Ana", "What is my favorite programming language?", "google-adk/multi_turn_memory"),
      ],
    },
    {
      id: "demo-three-models",
      name: "Three models (Pydantic AI)",
      phase: "Completed",
      agoMinutes: 95,
      turns: [
        turn("Tomás", EQUATION, "pydantic-anthropic/thinking"),
        turn("Tomás", EQUATION, "pydantic-openai/thinking"),
        turn("Tomás", EQUATION, "pydantic-gemini/thinking"),
      ],
    },
    {
      id: "demo-graph",
      name: "Steps, state (LangGraph)",
      phase: "Completed",
      agoMinutes: 41,
      turns: [
        turn(
          "Ana",
          "Calculate 42 * 17 using the calculator tool and tell me the result.",
          "langgraph-cerebras/tool_calc",
        ),
      ],
    },
    {
      id: "demo-tools",
      name: "Two tools at once (Agno)",
      phase: "Completed",
      agoMinutes: 24,
      turns: [
        turn(
          "Tomás",
          "Say hello and introduce yourself briefly in 2-3 sentences.",
          "agno-anthropic/simple",
        ),
        turn(
          "Tomás",
          "First get the current time, then calculate 10 + 20.",
          "agno-anthropic/multi_tool",
        ),
        turn("Ana", EQUATION, "agno-anthropic/thinking"),
      ],
    },
  ];
}

function writtenSessions(): readonly DemoSession[] {
  return [
    {
      id: "demo-trip",
      name: "يومان في مراكش",
      phase: "Completed",
      agoMinutes: 12,
      turns: [trip()],
      liked: "answer-trip",
      fork: "يومان في فاس",
    },
    {
      id: "demo-report",
      name: "A number with its source (a subagent)",
      projectId: "research",
      agentId: "analyst",
      labels: { team: "tea", priority: "low" },
      phase: "Completed",
      agoMinutes: 9,
      turns: [report()],
    },
    {
      id: "demo-refund",
      name: "A broken lamp",
      projectId: "support",
      agentId: "clerk",
      labels: { team: "shop", priority: "high" },
      phase: "Stopped",
      agoMinutes: 6,
      turns: [refund()],
    },
    {
      id: "demo-release",
      name: "发布 2.4.1：等待批准",
      phase: "Stopped",
      agoMinutes: 4,
      turns: [release()],
    },
  ];
}
