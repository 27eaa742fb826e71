/** An agent without a model: words of a question choose its answer from a script. */
import { setTimeout as delay } from "node:timers/promises";
import { isObject, type JsonObject } from "@session-ledger/agui/json";
import {
  type Adapter,
  type AgentEvent,
  type AgentEvents,
  capabilitiesOf,
  PlatformBridge,
  type RunInput,
} from "@session-ledger/runner/internal/sdk/bridge";
import { promptsOf } from "@session-ledger/runner/internal/sdk/input";
import { REFUND_CALL } from "./written.ts";
import { asking, called, pauseMs, resultOf, spoken, thought } from "./pieces.ts";

export class ScriptedAgent extends PlatformBridge {
  readonly #paceMs: number;

  /** `paceMs` is the time of a word. */
  constructor(paceMs: number) {
    super();
    this.#paceMs = paceMs;
  }

  createAdapter(): Adapter {
    return { run: (input, signal) => this.#run(input, signal) };
  }

  capabilities() {
    const agentFeatures = ["interrupt"];
    return capabilitiesOf({ framework: "session-ledger demo", agentFeatures, thinking: true });
  }

  async *#run(input: RunInput, signal: AbortSignal): AsyncGenerator<AgentEvent, void, undefined> {
    let position = 0;
    for (const event of answerTo(input, new Date())) {
      position += 1;
      await delay(pauseMs(event, position, this.#paceMs), undefined, { signal });
      yield event;
    }
  }
}

/** Ids of parts of an answer are made of the id of its run. */
interface AgentQuestion {
  readonly runId: string;
  readonly text: string;
  readonly answers: number;
  readonly now: Date;
}

/** The events of an answer. Throws where the script has a failure. */
function* answerTo(input: RunInput, now: Date): AgentEvents {
  const { runId, resume = [] } = input;
  const text = promptsOf(input).join("\n").trim();
  const state = isObject(input.state) ? input.state : {};
  const answers = Number(state["answers"] ?? 0) + 1;
  const question = { runId, text, answers, now };
  if (resume.length > 0) yield* decided(question, resume);
  else yield* (SCRIPTS.find(({ words }) => words.test(text))?.answer ?? usual)(question);
  yield* remembered(question, state);
}

const SCRIPTS: readonly {
  readonly words: RegExp;
  readonly answer: (to: AgentQuestion) => AgentEvents;
}[] = [
  { words: /\b(?:deploy|approve|approval)\b/i, answer: deployment },
  { words: /\bfail\b/i, answer: failure },
  { words: /\btools?\b/i, answer: tools },
  { words: /\b(?:table|code|markdown)\b/i, answer: markdown },
  { words: /\blong\b/i, answer: long },
];

const MENU = `Type a message with one of these words:

- **tools**: three calls at once, and a plan
- **table**: Markdown
- **long**: an answer with time to press *Cancel*
- **deploy**: I ask you before I do it
- **fail**: a run that ends with an error`;

function* usual({ runId, text, answers }: AgentQuestion): AgentEvents {
  const words = text.split(/\s+/).filter(Boolean).length;
  const call = { toolCallId: `count-${runId}`, toolCallName: "count_words", args: { text } };
  yield* thought(
    `reason-${runId}`,
    `This is message ${answers} that I answer here. I count its words first, then I say what I can do.`,
  );
  yield* called(call);
  yield resultOf(call.toolCallId, JSON.stringify({ words, characters: text.length }));
  yield* spoken(
    `answer-${runId}`,
    `You wrote ${words} ${words === 1 ? "word" : "words"}:\n\n${quoted(text)}\n\nI am a script without a model, so I understand little. ${MENU}`,
  );
}

function* tools({ runId, now }: AgentQuestion): AgentEvents {
  const plan = { messageId: `plan-${runId}`, activityType: "PLAN" };
  const calls = [
    { toolCallName: "read_clock", args: { zone: "UTC" }, result: { time: now.toISOString() } },
    { toolCallName: "roll_dice", args: { dice: 2 }, result: { rolled: diceOf(runId) } },
    {
      toolCallName: "count_days",
      args: { until: `${now.getUTCFullYear()}-12-31` },
      result: { days: daysLeft(now) },
    },
  ].map((call) => ({ ...call, toolCallId: `${call.toolCallName}-${runId}` }));
  const steps = calls.map(({ toolCallName: title }) => ({ title, status: "running" }));
  yield* thought(
    `reason-${runId}`,
    "The three calls do not need each other, so I make them at once.",
  );
  yield { type: "ACTIVITY_SNAPSHOT", ...plan, content: { title: "Three tools", steps } };
  yield { type: "STEP_STARTED", stepName: "tools" };
  for (const call of calls) yield* called(call);
  // The last one is the quickest.
  for (const [index, { toolCallId, result }] of [...calls.entries()].toReversed()) {
    yield resultOf(toolCallId, JSON.stringify(result));
    const patch = [{ op: "replace", path: `/steps/${index}/status`, value: "done" }];
    yield { type: "ACTIVITY_DELTA", ...plan, patch };
  }
  yield { type: "STEP_FINISHED", stepName: "tools" };
  const rows = calls.map(
    ({ toolCallName, result }) => `| \`${toolCallName}\` | ${Object.values(result).join(", ")} |`,
  );
  yield* spoken(
    `answer-${runId}`,
    `All three have answered:\n\n| tool | result |\n| --- | --- |\n${rows.join("\n")}`,
  );
}

function* markdown({ runId }: AgentQuestion): AgentEvents {
  yield* spoken(
    `answer-${runId}`,
    `### A table

| part | place | lost when a process dies |
| --- | --- | --- |
| a message | PostgreSQL | no |
| a word of this answer | PostgreSQL, merged with others into one row | no |
| the cursor of your page | the address of the page | no |

### Some code

\`\`\`ts
for await (const { event } of readSession({ address, sessionId: "demo-live" })) {
  console.log(event.type);
}
\`\`\`

> Each word came as a separate event. Drag the scrubber to see this answer grow again.`,
  );
}

function* long({ runId }: AgentQuestion): AgentEvents {
  const lines = Array.from(
    { length: 24 },
    (_, line) =>
      `${line + 1}. A ledger keeps what was said, in the order in which it was said, and line ${line + 1} of this answer too.`,
  );
  yield* spoken(
    `answer-${runId}`,
    `This takes a while. Press *Cancel* to stop me; what I have said stays.\n\n${lines.join("\n")}`,
  );
}

function* failure({ runId }: AgentQuestion): AgentEvents {
  const call = { toolCallId: `fetch-${runId}`, toolCallName: "fetch_report", args: { year: 1999 } };
  yield* called(call);
  yield resultOf(call.toolCallId, '{"error":"the archive does not answer"}');
  yield* spoken(`answer-${runId}`, "The archive does not answer, so");
  throw new Error("the archive does not answer (this failure is part of the demo)");
}

const VERSION = "2.0";

function* deployment({ runId }: AgentQuestion): AgentEvents {
  const toolCallId = `deploy-${runId}`;
  const args = { version: VERSION, target: "production" };
  yield* thought(
    `reason-${runId}`,
    "A deployment changes what users see. I need the approval of a person.",
  );
  yield* spoken(`answer-${runId}`, `I am ready to deploy version ${VERSION}, and I wait for you.`);
  yield* called({ toolCallId, toolCallName: "deploy", args });
  yield asking(toolCallId, `Deploy version ${VERSION} to production?`);
}

function* decided({ runId }: AgentQuestion, resume: NonNullable<RunInput["resume"]>): AgentEvents {
  for (const [index, { interruptId, status, payload }] of resume.entries()) {
    const isRefused = isObject(payload) && payload["approved"] === false;
    const isApproved = status === "resolved" && !isRefused;
    const toolCallId = /^approval:(.+)$/.exec(interruptId)?.[1];
    const done = toolCallId === REFUND_CALL ? "refunded" : "deployed";
    if (toolCallId !== undefined)
      yield resultOf(toolCallId, JSON.stringify({ [done]: isApproved }));
    yield* spoken(
      `answer-${runId}-${index}`,
      isApproved ? `Thank you. It is **${done}**.` : `I have **not** ${done} it.`,
    );
  }
}

/** The state that all runs of the session share. */
function* remembered({ text, answers, now }: AgentQuestion, state: JsonObject): AgentEvents {
  const next = { answers, lastQuestion: text.slice(0, 200), lastAnswerAt: now.toISOString() };
  if (Object.keys(state).length === 0) {
    yield { type: "STATE_SNAPSHOT", snapshot: next };
    return;
  }
  const delta = Object.entries(next).map(([key, value]) => ({ op: "add", path: `/${key}`, value }));
  yield { type: "STATE_DELTA", delta };
}

function quoted(text: string): string {
  return text
    .slice(0, 500)
    .split("\n")
    .map((line) => `> ${line}`)
    .join("\n");
}

function diceOf(runId: string): readonly number[] {
  const sum = Buffer.from(runId).reduce((total, byte) => total + byte, 0);
  return [(sum % 6) + 1, (Math.trunc(sum / 6) % 6) + 1];
}

function daysLeft(now: Date): number {
  return Math.round((Date.UTC(now.getUTCFullYear(), 11, 31) - now.getTime()) / 86_400_000);
}
