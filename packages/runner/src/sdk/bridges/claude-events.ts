/**
 * Converts the messages of `query` to AG-UI events. A complete message repeats its partial ones;
 * one that was not streamed, such as a subagent's, comes complete only. A subagent has the id of
 * the tool call that runs it.
 */
import { isObject, type JsonObject, objectsIn } from "@session-ledger/agui/json";
import type { AgentEvent, AgentEvents, RunInput } from "../bridge.ts";
import { EventMaker, contentOf, type Owner } from "@session-ledger/agui/event-maker";
import { APPROVAL_SCHEMA } from "./history.ts";

/** A message of the SDK. Types that the bridge does not know are left out. */
export interface ClaudeMessage {
  readonly type: string;
}

/** A message that is streamed: its blocks by their index. */
interface Streamed {
  readonly id: string;
  readonly blocks: Map<unknown, Block>;
}

interface Block {
  readonly kind: "text" | "reasoning" | "call";
  readonly id: string;
  /** The whole input of a call whose arguments are not streamed. */
  input?: unknown;
}

export class ClaudeRun {
  readonly #input: RunInput;
  readonly #constructs = new EventMaker();
  /** The message that is streamed, by the subagent. */
  readonly #streamed = new Map<string | undefined, Streamed>();
  readonly #streamedIds = new Set<string>();
  /** Texts and reasonings of each message: those after the first need an id of their own. */
  readonly #counts = new Map<string, number>();
  readonly #endedSubagents = new Set<string>();
  readonly #usage: object[] = [];
  #model: string | undefined;
  #interrupt: object | undefined;

  constructor(input: RunInput) {
    this.#input = input;
  }

  async *events(
    messages: AsyncIterable<ClaudeMessage>,
  ): AsyncGenerator<AgentEvent, void, undefined> {
    for await (const message of messages) {
      if (isObject(message)) yield* this.#eventsOf(message);
    }
    yield* this.#constructs.endAll();
    yield this.#finished();
  }

  *#eventsOf(message: JsonObject): AgentEvents {
    const owner = ownerOf(message);
    if (message["type"] === "result") this.#result(message);
    if (owner.subagentRunId !== undefined) {
      if (this.#endedSubagents.has(owner.subagentRunId)) return;
      const { subagent_type: name } = message;
      yield* this.#constructs.subagent(owner.subagentRunId, contentOf(name ?? "subagent"));
    }
    if (message["type"] === "stream_event" && isObject(message["event"])) {
      yield* this.#stream(message["event"], owner);
    }
    if (!isObject(message["message"])) return;
    const { id, model, content } = message["message"];
    const blocks = objectsIn(content);
    if (message["type"] === "assistant") {
      if (owner.subagentRunId === undefined && typeof model === "string") this.#model = model;
      if (this.#streamedIds.has(String(id))) return;
      for (const block of blocks) yield* this.#whole(String(id), block, owner);
    }
    if (message["type"] === "user") {
      for (const block of blocks) yield* this.#answer(block, owner, message["tool_use_result"]);
    }
  }

  *#stream(event: JsonObject, owner: Owner): AgentEvents {
    const { type, index, message, content_block: block, delta } = event;
    if (type === "message_start" && isObject(message)) {
      const id = String(message["id"]);
      this.#streamedIds.add(id);
      this.#streamed.set(owner.subagentRunId, { id, blocks: new Map() });
    }
    const streamed = this.#streamed.get(owner.subagentRunId);
    if (streamed === undefined) return;
    if (type === "content_block_start" && isObject(block)) {
      yield* this.#answer(block, owner);
      const opened = this.#blockOf(streamed.id, block);
      if (opened === undefined) return;
      streamed.blocks.set(index, opened);
      yield* this.#begin(streamed.id, opened, block, owner);
    }
    const open = streamed.blocks.get(index);
    if (open === undefined) return;
    if (type === "content_block_delta" && isObject(delta)) yield* this.#delta(open, delta, owner);
    if (type === "content_block_stop") yield* this.#end(open, owner);
  }

  *#whole(messageId: string, block: JsonObject, owner: Owner): AgentEvents {
    yield* this.#answer(block, owner);
    const opened = this.#blockOf(messageId, block);
    if (opened === undefined) return;
    yield* this.#begin(messageId, opened, block, owner);
    yield* this.#end(opened, owner);
  }

  #blockOf(messageId: string, { type, id, input }: JsonObject): Block | undefined {
    if (type === "text") return { kind: "text", id: this.#next(messageId) };
    if (type === "thinking") return { kind: "reasoning", id: this.#next(`${messageId}-thinking`) };
    // tool_use, server_tool_use, mcp_tool_use
    if (typeof type !== "string" || !type.endsWith("tool_use")) return undefined;
    return { kind: "call", id: String(id), input };
  }

  #next(id: string): string {
    const count = (this.#counts.get(id) ?? 0) + 1;
    this.#counts.set(id, count);
    return count === 1 ? id : `${id}-${count}`;
  }

  *#begin(messageId: string, { kind, id }: Block, block: JsonObject, owner: Owner): AgentEvents {
    if (kind === "text") yield* this.#constructs.text(id, contentOf(block["text"] ?? ""), owner);
    if (kind === "reasoning") {
      yield* this.#constructs.reasoning(id, contentOf(block["thinking"] ?? ""), owner);
    }
    if (kind === "call") {
      const name = contentOf(block["name"]);
      yield* this.#constructs.call(id, { name, parentMessageId: messageId }, owner);
    }
  }

  *#delta(block: Block, delta: JsonObject, owner: Owner): AgentEvents {
    const { text, thinking, partial_json: args } = delta;
    if (typeof text === "string") yield* this.#constructs.text(block.id, text, owner);
    if (typeof thinking === "string") yield* this.#constructs.reasoning(block.id, thinking, owner);
    if (typeof args === "string" && args !== "") {
      block.input = undefined;
      yield* this.#constructs.args(block.id, args, owner);
    }
  }

  *#end({ kind, id, input }: Block, owner: Owner): AgentEvents {
    if (kind === "text") yield* this.#constructs.endText(id);
    if (kind === "reasoning") yield* this.#constructs.endReasoning(id);
    if (kind !== "call") return;
    if (input !== undefined) yield* this.#constructs.args(id, contentOf(input), owner);
    yield* this.#constructs.endCall(id);
  }

  /** A block with the result of a tool call. A subagent in the background outlives its result. */
  *#answer(
    { tool_use_id: callId, content }: JsonObject,
    owner: Owner,
    output?: unknown,
  ): AgentEvents {
    if (typeof callId !== "string") return;
    if (!isObject(output) || output["status"] !== "async_launched") {
      this.#endedSubagents.add(callId);
      yield* this.#constructs.endSubagent(callId);
    }
    yield* this.#constructs.result(callId, { content: textIn(content) }, owner);
  }

  #result(message: JsonObject): void {
    const { subtype, is_error: isError, result, errors, usage, deferred_tool_use: call } = message;
    if (subtype !== "success" || isError === true) {
      const texts = Array.isArray(errors) ? errors.map(String) : [];
      throw new Error(texts.join("; ") || contentOf(result ?? subtype));
    }
    if (isObject(usage)) this.#usage.push(usageOf(usage, this.#model));
    if (!isObject(call)) return;
    const { id, name } = call;
    this.#interrupt = {
      id,
      toolCallId: id,
      reason: "approval",
      message: `May the agent call ${contentOf(name)}?`,
      responseSchema: APPROVAL_SCHEMA,
    };
  }

  #finished(): AgentEvent {
    const { threadId, runId } = this.#input;
    return {
      type: "RUN_FINISHED",
      threadId,
      runId,
      ...(this.#interrupt !== undefined && {
        outcome: { type: "interrupt", interrupts: [this.#interrupt] },
      }),
      ...(this.#usage.length > 0 && { usage: this.#usage }),
    };
  }
}

function ownerOf({ parent_tool_use_id: id }: JsonObject): Owner {
  return typeof id === "string" ? { subagentRunId: id } : {};
}

/** The texts of a tool's result; other blocks as their JSON. */
function textIn(content: unknown): string {
  if (!Array.isArray(content)) return contentOf(content ?? "");
  return content
    .map((block: unknown) =>
      isObject(block) && typeof block["text"] === "string" ? block["text"] : contentOf(block),
    )
    .join("\n");
}

/** The model's own count leaves the cached tokens out of its input. */
function usageOf(usage: JsonObject, model: string | undefined): object {
  const count = (name: string): number => Number(usage[name] ?? 0);
  const cachedInputTokens = count("cache_read_input_tokens");
  const cacheWriteInputTokens = count("cache_creation_input_tokens");
  const inputTokens = count("input_tokens") + cachedInputTokens + cacheWriteInputTokens;
  const outputTokens = count("output_tokens");
  return {
    ...(model !== undefined && { model }),
    inputTokens,
    outputTokens,
    totalTokens: inputTokens + outputTokens,
    cachedInputTokens,
    cacheWriteInputTokens,
  };
}
