/**
 * Makes the events of one run, and notes what is open: a START comes with the first part, an END
 * comes once, and `endAll` ends the rest, the newest first. So a framework may leave out what it
 * does not know: a call without an end gets its END with the result.
 */
import { printJson } from "./print.ts";

/** One AG-UI event, as an object that JSON can print. */
export interface AguiEvent {
  readonly type: string;
  readonly [member: string]: unknown;
}

/** The subagent that an event belongs to; empty: the agent itself. */
export interface Owner {
  readonly subagentRunId?: string;
}

type AguiEvents = Generator<AguiEvent, void, undefined>;

export class EventMaker {
  /** The END events of each open construct, in the order of their STARTs. */
  readonly #open = new Map<string, readonly AguiEvent[]>();
  /** Tool calls of this run, open or not. */
  readonly #calls = new Set<string>();

  *text(messageId: string, delta: string, owner: Owner = {}): AguiEvents {
    if (delta === "") return;
    yield* this.#start(
      `text ${messageId}`,
      [{ type: "TEXT_MESSAGE_START", messageId, role: "assistant", ...owner }],
      [{ type: "TEXT_MESSAGE_END", messageId, ...owner }],
    );
    yield { type: "TEXT_MESSAGE_CONTENT", messageId, delta, ...owner };
  }

  *endText(messageId: string): AguiEvents {
    yield* this.#end(`text ${messageId}`);
  }

  *reasoning(messageId: string, delta: string, owner: Owner = {}): AguiEvents {
    if (delta === "") return;
    yield* this.#start(
      `reasoning ${messageId}`,
      [
        { type: "REASONING_START", messageId, ...owner },
        { type: "REASONING_MESSAGE_START", messageId, role: "reasoning", ...owner },
      ],
      [
        { type: "REASONING_MESSAGE_END", messageId, ...owner },
        { type: "REASONING_END", messageId, ...owner },
      ],
    );
    yield { type: "REASONING_MESSAGE_CONTENT", messageId, delta, ...owner };
  }

  *endReasoning(messageId: string): AguiEvents {
    yield* this.#end(`reasoning ${messageId}`);
  }

  /** Begins a tool call, unless this run began it before. */
  *call(
    toolCallId: string,
    { name, parentMessageId }: { readonly name: string; readonly parentMessageId?: string },
    owner: Owner = {},
  ): AguiEvents {
    if (this.#calls.has(toolCallId)) return;
    this.#calls.add(toolCallId);
    const parent = parentMessageId === undefined ? {} : { parentMessageId };
    yield* this.#start(
      `call ${toolCallId}`,
      [{ type: "TOOL_CALL_START", toolCallId, toolCallName: name, ...parent, ...owner }],
      [{ type: "TOOL_CALL_END", toolCallId, ...owner }],
    );
  }

  /** Arguments after the end of a call are left out: a framework may repeat a call as a whole. */
  *args(toolCallId: string, delta: string, owner: Owner = {}): AguiEvents {
    if (delta === "" || !this.#open.has(`call ${toolCallId}`)) return;
    yield { type: "TOOL_CALL_ARGS", toolCallId, delta, ...owner };
  }

  *endCall(toolCallId: string): AguiEvents {
    yield* this.#end(`call ${toolCallId}`);
  }

  /** The call may be of an earlier run. */
  *result(
    toolCallId: string,
    { content, messageId = crypto.randomUUID() }: ResultContent,
    owner: Owner = {},
  ): AguiEvents {
    yield* this.endCall(toolCallId);
    yield { type: "TOOL_CALL_RESULT", messageId, toolCallId, content, role: "tool", ...owner };
  }

  hasCall(toolCallId: string): boolean {
    return this.#calls.has(toolCallId);
  }

  /** Steps that are open at the same time have different names. Returns the name of the step. */
  *step(name: string): Generator<AguiEvent, string, undefined> {
    let stepName = name;
    for (let nth = 2; this.#open.has(`step ${stepName}`); nth += 1) stepName = `${name} ${nth}`;
    yield* this.#start(
      `step ${stepName}`,
      [{ type: "STEP_STARTED", stepName }],
      [{ type: "STEP_FINISHED", stepName }],
    );
    return stepName;
  }

  *endStep(stepName: string): AguiEvents {
    yield* this.#end(`step ${stepName}`);
  }

  /** A subagent that a tool call runs has the id of that call. */
  *subagent(toolCallId: string, name: string): AguiEvents {
    yield* this.#start(
      `subagent ${toolCallId}`,
      [
        {
          type: "SUBAGENT_STARTED",
          subagentRunId: toolCallId,
          name,
          parentToolCallId: toolCallId,
        },
      ],
      [{ type: "SUBAGENT_FINISHED", subagentRunId: toolCallId }],
    );
  }

  /** Ends what the subagent has open first. */
  *endSubagent(toolCallId: string): AguiEvents {
    if (!this.#open.has(`subagent ${toolCallId}`)) return;
    for (const [key, [end]] of [...this.#open].toReversed()) {
      if (end?.["subagentRunId"] === toolCallId) yield* this.#end(key);
    }
  }

  *endAll(): AguiEvents {
    for (const key of [...this.#open.keys()].toReversed()) yield* this.#end(key);
  }

  *#start(key: string, start: readonly AguiEvent[], end: readonly AguiEvent[]): AguiEvents {
    if (this.#open.has(key)) return;
    this.#open.set(key, end);
    yield* start;
  }

  *#end(key: string): AguiEvents {
    const end = this.#open.get(key);
    if (end === undefined) return;
    this.#open.delete(key);
    yield* end;
  }
}

interface ResultContent {
  readonly content: string;
  readonly messageId?: string;
}

/** Text as it is, anything else as its JSON. */
export function contentOf(value: unknown): string {
  if (typeof value === "string" || value === undefined) return value ?? "";
  return (printJson([value]).text ?? "").slice(1, -1); // As a member it may be replaced.
}
