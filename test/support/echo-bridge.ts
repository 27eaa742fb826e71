/** Bridges for tests of runners: agents of a few lines. */
import {
  type Adapter,
  type AgentEvent,
  capabilitiesOf,
  PlatformBridge,
  type PlatformContext,
  type RunInput,
} from "@session-ledger/runner/internal/sdk/bridge";
import type { RunContext } from "@session-ledger/runner/internal/sdk/middleware/middleware";

export type AgentOfTest = (
  input: RunInput,
  signal: AbortSignal,
) => AsyncGenerator<AgentEvent, void, undefined>;

/** An agent as a function. It keeps the inputs and the contexts. */
export class TestBridge extends PlatformBridge {
  readonly inputs: RunInput[] = [];
  readonly contexts: PlatformContext[] = [];
  interrupts = 0;
  readonly #agent: AgentOfTest;
  readonly #keepsHistory: boolean;

  constructor(agent: AgentOfTest = echo, { keepsHistory = false } = {}) {
    super();
    this.#agent = agent;
    this.#keepsHistory = keepsHistory;
  }

  createAdapter(context: PlatformContext): Adapter {
    this.contexts.push(context);
    return {
      run: (input, signal) => {
        this.inputs.push(input);
        return this.#agent(input, signal);
      },
      interrupt: () => {
        this.interrupts += 1;
      },
    };
  }

  capabilities() {
    return capabilitiesOf({ framework: "test", sessionPersistence: this.#keepsHistory });
  }
}

/** Says the last message of a person again, without its sender. */
export async function* echo(input: RunInput): AsyncGenerator<AgentEvent, void, undefined> {
  yield* saying(input, `You said: ${lastText(input)}`);
}

export async function* saying(
  { runId }: RunInput,
  text: string,
): AsyncGenerator<AgentEvent, void, undefined> {
  const messageId = `answer-${runId}`;
  yield { type: "TEXT_MESSAGE_START", messageId, role: "assistant" };
  for (const delta of text.split(/(?<= )/))
    yield { type: "TEXT_MESSAGE_CONTENT", messageId, delta };
  yield { type: "TEXT_MESSAGE_END", messageId };
}

/** The prompt of the last message, which is behind its delimiter. */
export function lastText({ messages }: RunInput): string {
  const content = messages.at(-1)?.["content"];
  const part: unknown = Array.isArray(content) ? content.at(-1) : content;
  if (typeof part === "object" && part !== null && "text" in part) return String(part.text);
  return String(part);
}

// The context of a run for tests of middleware.

class Silent extends PlatformBridge {
  createAdapter() {
    return { run: silent };
  }

  capabilities() {
    return capabilitiesOf({ framework: "none" });
  }
}

async function* silent(): AsyncGenerator<never> {
  // It says nothing.
}

export function runContext(given: Partial<RunContext> = {}): RunContext {
  const input = { state: {}, messages: [], tools: [], context: [], forwardedProps: {} };
  return {
    sessionId: "s",
    runId: "r",
    input: { threadId: "s", runId: "r", ...input },
    bridge: new Silent(),
    signal: new AbortController().signal,
    ...given,
  };
}
