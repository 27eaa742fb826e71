/** An agent that is a function: its texts become one message, and its events stay as they are. */
import {
  type Adapter,
  type AgentEvent,
  capabilitiesOf,
  type FrameworkCapabilities,
  PlatformBridge,
  type RunInput,
} from "./bridge.ts";

/**
 * Runs once for each turn. A text is the next piece of the answer, an object is an AG-UI event. The signal
 * aborts when the run is cancelled, and when the process stops.
 */
export type AgentFunction = (
  input: RunInput,
  signal: AbortSignal,
) => AsyncIterable<string | AgentEvent>;

export class FunctionBridge extends PlatformBridge {
  readonly #agent: AgentFunction;

  constructor(agent: AgentFunction) {
    super();
    this.#agent = agent;
  }

  createAdapter(): Adapter {
    return { run: (input, signal) => eventsOf(this.#agent(input, signal), input) };
  }

  capabilities(): FrameworkCapabilities {
    return capabilitiesOf({ framework: "none" });
  }
}

/** Texts behind an event begin another message: what came before it is closed. */
async function* eventsOf(
  pieces: AsyncIterable<string | AgentEvent>,
  { runId }: RunInput,
): AsyncGenerator<AgentEvent, void, undefined> {
  let messages = 0;
  let isText = false;
  for await (const piece of pieces) {
    if (typeof piece !== "string") {
      isText = false;
      yield piece;
      continue;
    }
    if (!isText) messages += 1;
    isText = true;
    const messageId = `${runId}-${messages}`;
    yield { type: "TEXT_MESSAGE_CHUNK", messageId, role: "assistant", delta: piece };
  }
}
