/**
 * The messages that the SDK sends, in the shapes of its documentation. `claude-sdk.test.ts` runs the SDK
 * itself.
 */
import { z } from "zod";
import { ClaudeBridge, type ClaudeOptions } from "@session-ledger/runner/claude";
import type { ClaudeMessage } from "@session-ledger/runner/internal/sdk/bridges/claude-events";
import {
  callsOf,
  type Player,
  type Probe,
  type Step,
  steps,
  TOOL,
  toolOf,
  answerOf,
} from "./script.ts";

type Parameters = globalThis.Parameters<ClaudeOptions["query"]>[0];

interface Options {
  readonly abortController: AbortController;
  readonly hooks: {
    readonly PreToolUse: readonly { readonly hooks: readonly [Hook] }[];
  };
}

type Hook = (input: object) => Promise<{
  readonly hookSpecificOutput?: { readonly permissionDecision: string };
}>;

const optionsSchema = z.custom<Options>((value) => typeof value === "object");

const USAGE = { input_tokens: 7, output_tokens: 5 };

export const CLAUDE: Player = {
  name: "claude",
  bridge(list, probe) {
    const claude = new Claude(steps(list), probe);
    return new ClaudeBridge({
      query: (parameters) => claude.query(parameters),
      needsApproval: () => claude.asks,
    });
  },
};

class Claude {
  /** Whether the call that is decided needs an approval. */
  asks = false;
  readonly #next: () => Step;
  readonly #probe: Probe | undefined;
  #deferred: Step | undefined;

  constructor(next: () => Step, probe: Probe | undefined) {
    this.#next = next;
    this.#probe = probe;
  }

  async *query({ options }: Parameters): AsyncGenerator<ClaudeMessage> {
    const { abortController, hooks } = optionsSchema.parse(options);
    yield message("system", { subtype: "init" });
    for (let deferred = this.#deferred; ; deferred = undefined) {
      const step = deferred ?? this.#next();
      if (deferred === undefined) yield* this.#said(step);
      if (step.fails !== undefined) {
        const subtype = "error_during_execution";
        yield message("result", { subtype, is_error: true, errors: [step.fails], usage: USAGE });
        return;
      }
      for (const { id } of callsOf(step)) {
        const tool = toolOf(step, id);
        this.asks = "asks" in tool;
        const [hook] = hooks.PreToolUse.at(-1)?.hooks ?? [];
        const called = { tool_name: TOOL, tool_input: {}, tool_use_id: id };
        const decision = (await hook?.(called))?.hookSpecificOutput?.permissionDecision;
        if (decision === "defer") {
          this.#deferred = step;
          const call = { id, name: TOOL, input: {} };
          yield message("result", { ...SUCCESS, deferred_tool_use: call });
          return;
        }
        const { signal } = abortController;
        const content =
          decision === "deny"
            ? "refused"
            : await answerOf(tool, id, { probe: this.#probe, signal });
        yield said("user", { content: [{ type: "tool_result", tool_use_id: id, content }] });
      }
      this.#deferred = undefined;
      if (callsOf(step).length === 0) {
        yield message("result", SUCCESS);
        return;
      }
    }
  }

  /** Blocks one after the other, as the API streams them; then the whole message. */
  *#said(step: Step): Generator<ClaudeMessage> {
    const id = `msg_${crypto.randomUUID()}`;
    yield streamed({ type: "message_start", message: { id, model: "mock" } });
    const indexes = new Map<string, number>();
    for (const beat of step.beats) {
      const key =
        "text" in beat ? "text" : "think" in beat ? "think" : "call" in beat ? beat.call : beat.of;
      const index = indexes.get(key) ?? indexes.size;
      if (!indexes.has(key)) {
        indexes.set(key, index);
        const block = blockOf(key);
        yield streamed({ type: "content_block_start", index, content_block: block });
      }
      if ("call" in beat) continue;
      const delta =
        "text" in beat
          ? { type: "text_delta", text: beat.text }
          : "think" in beat
            ? { type: "thinking_delta", thinking: beat.think }
            : { type: "input_json_delta", partial_json: beat.args };
      yield streamed({ type: "content_block_delta", index, delta });
    }
    const content = [...indexes.keys()].map(blockOf);
    yield said("assistant", { id, model: "mock", content });
    const stopped = step.isTacit === true ? [] : indexes.values();
    for (const index of stopped) yield streamed({ type: "content_block_stop", index });
    yield streamed({ type: "message_stop" });
  }
}

const SUCCESS = { subtype: "success", is_error: false, usage: USAGE };

function blockOf(key: string): object {
  if (key === "text") return { type: "text", text: "" };
  if (key === "think") return { type: "thinking", thinking: "" };
  return { type: "tool_use", id: key, name: TOOL, input: {} };
}

function streamed(event: object): ClaudeMessage {
  return message("stream_event", { event, parent_tool_use_id: null });
}

function said(type: "user" | "assistant", own: object): ClaudeMessage {
  return message(type, { message: { role: type, ...own }, parent_tool_use_id: null });
}

function message(type: string, members: object): ClaudeMessage {
  return { type, ...members };
}
