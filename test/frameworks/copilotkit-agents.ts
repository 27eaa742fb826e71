/** Agents for CopilotKit's runtime, as its users write them. */
import { AbstractAgent, type BaseEvent, type RunAgentInput } from "@ag-ui/client";
import { Observable, type Subscriber } from "rxjs";

type Play = (input: RunAgentInput, emit: (event: object) => void) => Promise<void>;

/** Emits what `play` emits, between a start and an end unless `bare`. */
export class PlayedAgent extends AbstractAgent {
  readonly #play: Play;
  readonly #isBare: boolean;
  /** Aborts with the run. */
  stopped = new AbortController();
  seen: RunAgentInput[] = [];
  /** Its events were emitted, and it waits for its end. */
  isWaiting = false;

  constructor(play: Play, { bare = false }: { readonly bare?: boolean } = {}) {
    super();
    this.#play = play;
    this.#isBare = bare;
  }

  override run(input: RunAgentInput): Observable<BaseEvent> {
    this.seen.push(input);
    return new Observable((subscriber) => void this.#perform(input, subscriber));
  }

  override abortRun(): void {
    this.stopped.abort();
  }

  /** The runtime clones an agent for each request; the test looks at this one. */
  override clone(): this {
    this.stopped = new AbortController();
    return this;
  }

  async #perform(input: RunAgentInput, subscriber: Subscriber<BaseEvent>): Promise<void> {
    const { threadId, runId } = input;
    const emit = (event: object): void => subscriber.next(JSON.parse(JSON.stringify(event)));
    try {
      if (!this.#isBare) emit({ type: "RUN_STARTED", threadId, runId });
      await this.#play(input, emit);
      if (!this.#isBare) emit({ type: "RUN_FINISHED", threadId, runId });
      subscriber.complete();
    } catch (error) {
      subscriber.error(error);
    }
  }
}

/** A page that opens a thread. */
export class ConnectingAgent extends AbstractAgent {
  readonly #connect: () => Observable<BaseEvent>;

  constructor(connect: () => Observable<BaseEvent>) {
    super();
    this.#connect = connect;
  }

  override run(): Observable<BaseEvent> {
    return this.#connect();
  }

  protected override connect(): Observable<BaseEvent> {
    return this.#connect();
  }
}

export function saying(...texts: readonly string[]): PlayedAgent {
  return new PlayedAgent(async ({ runId }, emit) => say(emit, `${runId}-answer`, texts));
}

export function say(
  emit: (event: object) => void,
  messageId: string,
  texts: readonly string[],
): void {
  emit({ type: "TEXT_MESSAGE_START", messageId, role: "assistant" });
  for (const delta of texts) emit({ type: "TEXT_MESSAGE_CONTENT", messageId, delta });
  emit({ type: "TEXT_MESSAGE_END", messageId });
}

/** Begins a text and a tool call, and waits for its end. */
export function thinking(): PlayedAgent {
  const agent: PlayedAgent = new PlayedAgent(
    async ({ threadId, runId }, emit) => {
      emit({ type: "RUN_STARTED", threadId, runId });
      emit({ type: "TEXT_MESSAGE_START", messageId: "open", role: "assistant" });
      emit({ type: "TEXT_MESSAGE_CONTENT", messageId: "open", delta: "Half a" });
      const parentMessageId = "open";
      emit({ type: "TOOL_CALL_START", toolCallId: "call", toolCallName: "look", parentMessageId });
      agent.isWaiting = true;
      await new Promise<void>((resolve) => {
        if (agent.stopped.signal.aborted) resolve();
        agent.stopped.signal.addEventListener("abort", () => resolve(), { once: true });
      });
    },
    { bare: true },
  );
  return agent;
}
