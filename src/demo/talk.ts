/** The live part of the demo: some questions, and the agent that answers them and those of visitors. */
import { setTimeout as delay } from "node:timers/promises";
import { ledger } from "@session-ledger/runner/internal/client";
import { createRunner } from "@session-ledger/runner/internal/sdk/loop";
import type { RunnerProblem } from "@session-ledger/runner/internal/sdk/core";
import { ScriptedAgent } from "./agent.ts";
import { type Ledger, nameSession } from "./fill.ts";
import { DEMO_LABEL, LIVE } from "./sessions.ts";

/** The last one leaves an approval open, for the visitor. */
const QUESTIONS = [
  "What can you do?",
  "Which tools do you have? Show them.",
  "Show me a table and some code.",
  "Now fail, please.",
  "Deploy the new version.",
];
const BETWEEN_MS = 15_000;

/** How long an answer may go on after Ctrl-C. */
const STOP_MS = 1_000;

interface TalkOptions {
  readonly paceMs: number;
  readonly onProblem: (problem: string) => void;
  readonly signal: AbortSignal;
}

/** Answers user messages in all sessions of the demo. Resolves after the signal. */
export async function answerPeople(
  to: Ledger,
  { paceMs, onProblem, signal }: TalkOptions,
): Promise<void> {
  const runner = createRunner(new ScriptedAgent(paceMs), {
    ...to.settings,
    name: "session-ledger-demo",
    cancelGraceMs: STOP_MS,
    onProblem: (problem) => onProblem(problemText(problem)),
  });
  const stop = (): void => void runner.stop();
  signal.addEventListener("abort", stop, { once: true });
  if (signal.aborted) stop();
  try {
    await runner.pool({ labels: DEMO_LABEL });
  } finally {
    signal.removeEventListener("abort", stop);
    await runner.stop();
  }
}

/** Each question once, also in the next demo, and none after a visitor's. Rejects on an abort. */
export async function askQuestions(
  to: Ledger,
  { signal }: Pick<TalkOptions, "signal">,
): Promise<void> {
  const { id: sessionId, name } = LIVE;
  for (const [index, payload] of QUESTIONS.entries()) {
    const message = { sessionId, eventType: "user", payload };
    const about = { idempotencyKey: `demo:question:${index}`, sender: { displayName: "Demo" } };
    const { seq: afterSeq, deduplicated } = await to.client.call(
      ledger.pushSessionMessage,
      { ...message, ...about },
      to.retry,
    );
    if (index === 0) await nameSession(to, sessionId, { name });
    if (!deduplicated) await delay(BETWEEN_MS, undefined, { signal });
    const next = { sessionId, afterSeq, eventTypes: ["user"], pageSize: 1 };
    const { items } = await to.client.call(ledger.listSessionMessages, next, to.retry);
    const isQuestion = items.every(({ payload: text }) => text === QUESTIONS[index + 1]);
    if (!isQuestion) return;
  }
}

function problemText({ sessionId, ...problem }: RunnerProblem): string {
  const about = "message" in problem ? `${problem.kind}: ${problem.message}` : problem.kind;
  return sessionId === "" ? about : `session ${sessionId}: ${about}`;
}
