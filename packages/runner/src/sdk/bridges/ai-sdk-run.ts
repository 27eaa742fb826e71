/** One run of the AI SDK as AG-UI events, made of the parts of its full stream. */
import { contentOf, EventMaker } from "@session-ledger/agui/event-maker";
import { isObject } from "@session-ledger/agui/json";
import type { AgentEvent, AgentEvents, RunInput } from "../bridge.ts";
import { APPROVAL_SCHEMA, DENIED } from "./history.ts";

/** A part of the full stream: the members that the bridge reads. */
export interface AiSdkPart {
  readonly type: string;
  readonly id?: string;
  readonly text?: string;
  readonly delta?: string;
  readonly toolCallId?: string;
  readonly toolName?: string;
  readonly input?: unknown;
  readonly output?: unknown;
  readonly error?: unknown;
  readonly reason?: unknown;
  readonly preliminary?: boolean;
  readonly file?: { readonly base64: string; readonly mediaType: string };
  readonly toolCall?: { readonly toolCallId: string; readonly toolName: string };
  readonly isAutomatic?: boolean;
  readonly response?: { readonly modelId?: string };
  readonly totalUsage?: AiSdkUsage;
}

interface AiSdkUsage {
  readonly inputTokens?: number | undefined;
  readonly outputTokens?: number | undefined;
  readonly totalTokens?: number | undefined;
  readonly inputTokenDetails?: {
    readonly cacheReadTokens?: number | undefined;
    readonly cacheWriteTokens?: number | undefined;
  };
  readonly outputTokenDetails?: { readonly reasoningTokens?: number | undefined };
}

type RunIdsOfInput = Pick<RunInput, "threadId" | "runId">;

export class AiSdkRun {
  readonly #input: RunIdsOfInput;
  readonly #constructs = new EventMaker();
  /** Our ids of texts and reasonings: a provider uses its own again in the next step. */
  readonly #ids = new Map<string, string>();
  readonly #interrupts: unknown[] = [];
  #steps = 0;
  #step: string | undefined;
  /** The message that the next tool call belongs to, and whether a text opened it. */
  #message: { id: string; hasText: boolean } = { id: crypto.randomUUID(), hasText: false };
  #model: string | undefined;
  #usage: AiSdkUsage = {};

  constructor(input: RunIdsOfInput) {
    this.#input = input;
  }

  async *events(parts: AsyncIterable<AiSdkPart>): AsyncGenerator<AgentEvent, void, undefined> {
    for await (const part of parts) {
      if (part.type === "error") throw asError(part.error);
      // The run was cancelled: how it ends is for the runner to say.
      if (part.type === "abort") return;
      yield* this.#eventsOf(part);
    }
    yield* this.#constructs.endAll();
    yield this.#finished();
  }

  *#eventsOf(part: AiSdkPart): AgentEvents {
    const { id = "", text = "", delta = "", toolCallId = "" } = part;
    const open = this.#constructs;
    switch (part.type) {
      case "start-step":
        this.#message = { id: crypto.randomUUID(), hasText: false };
        this.#steps += 1;
        this.#step = yield* open.step(`step ${this.#steps}`);
        break;
      case "finish-step":
        this.#model = part.response?.modelId;
        if (this.#step !== undefined) yield* open.endStep(this.#step);
        break;
      case "finish":
        this.#usage = part.totalUsage ?? {};
        break;
      case "text-start":
        if (this.#message.hasText) this.#message.id = crypto.randomUUID();
        this.#message.hasText = true;
        this.#ids.set(id, this.#message.id);
        break;
      case "text-delta":
        yield* open.text(this.#idOf(id), text);
        break;
      case "text-end":
        yield* open.endText(this.#idOf(id));
        break;
      case "reasoning-start":
        this.#ids.set(id, crypto.randomUUID());
        break;
      case "reasoning-delta":
        yield* open.reasoning(this.#idOf(id), text);
        break;
      case "reasoning-end":
        yield* open.endReasoning(this.#idOf(id));
        break;
      case "tool-input-start":
        yield* this.#call(id, part.toolName);
        break;
      case "tool-input-delta":
        yield* open.args(id, delta);
        break;
      case "tool-input-end":
        yield* open.endCall(id);
        break;
      case "tool-call":
        yield* this.#wholeCall(toolCallId, part);
        break;
      case "tool-result":
      case "tool-error":
      case "tool-output-denied":
        if (part.preliminary !== true)
          yield* open.result(toolCallId, {
            content: resultOf(part),
            messageId: crypto.randomUUID(),
          });
        break;
      case "tool-approval-request":
        this.#ask(part);
        break;
      case "source":
      case "file":
        yield activityOf(part, crypto.randomUUID());
        break;
    }
  }

  /** Texts and reasonings whose start is missing keep the id of the provider. */
  #idOf(id: string): string {
    return this.#ids.get(id) ?? id;
  }

  *#call(toolCallId: string, name = "unknown"): AgentEvents {
    yield* this.#constructs.call(toolCallId, { name, parentMessageId: this.#message.id });
  }

  /** A provider that does not stream arguments sends the call alone. */
  *#wholeCall(toolCallId: string, { toolName, input }: AiSdkPart): AgentEvents {
    if (!this.#constructs.hasCall(toolCallId)) {
      yield* this.#call(toolCallId, toolName);
      yield* this.#constructs.args(toolCallId, contentOf(input));
    }
    yield* this.#constructs.endCall(toolCallId);
  }

  #ask({ toolCall, isAutomatic, reason }: AiSdkPart): void {
    if (toolCall === undefined || isAutomatic === true) return;
    const { toolCallId, toolName } = toolCall;
    this.#interrupts.push({
      id: toolCallId,
      toolCallId,
      reason: "approval",
      message: typeof reason === "string" ? reason : `May the agent call ${toolName}?`,
      responseSchema: APPROVAL_SCHEMA,
    });
  }

  #finished(): AgentEvent {
    const { threadId, runId } = this.#input;
    const usage = usageOf(this.#usage, this.#model);
    return {
      type: "RUN_FINISHED",
      threadId,
      runId,
      ...(this.#interrupts.length > 0 && {
        outcome: { type: "interrupt", interrupts: this.#interrupts },
      }),
      ...(usage !== undefined && { usage: [usage] }),
    };
  }
}

function resultOf({ type, output, error }: AiSdkPart): string {
  if (type === "tool-output-denied") return DENIED;
  return type === "tool-error" ? `Error: ${asError(error).message}` : contentOf(output);
}

function activityOf({ type, file, ...source }: AiSdkPart, messageId: string): AgentEvent {
  const content = file === undefined ? source : { mediaType: file.mediaType, base64: file.base64 };
  return {
    type: "ACTIVITY_SNAPSHOT",
    messageId,
    activityType: type,
    content,
    replace: true,
  };
}

/** Undefined if the provider counted nothing. */
function usageOf(
  { inputTokens, outputTokens, totalTokens, inputTokenDetails, outputTokenDetails }: AiSdkUsage,
  model: string | undefined,
): object | undefined {
  const counts = Object.entries({
    inputTokens,
    outputTokens,
    totalTokens,
    cachedInputTokens: inputTokenDetails?.cacheReadTokens,
    cacheWriteInputTokens: inputTokenDetails?.cacheWriteTokens,
    reasoningTokens: outputTokenDetails?.reasoningTokens,
  }).filter(([, count]) => Number.isFinite(count));
  if (counts.length === 0) return undefined;
  return { ...(model !== undefined && { model }), ...Object.fromEntries(counts) };
}

function asError(value: unknown): Error {
  if (value instanceof Error) return value;
  const message = isObject(value) && typeof value["message"] === "string" ? value["message"] : "";
  return new Error(message === "" ? contentOf(value) : message, { cause: value });
}
