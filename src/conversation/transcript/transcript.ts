/**
 * What a session's events come to: the messages, the state and what the agent waits for, as an AG-UI
 * client shows them that saw every event. One definition, for the snapshots that clients join with,
 * for REST and for the inspector.
 *
 * It is the reducer of `@ag-ui/client` 1.0.0 (`defaultApplyEvents`), held against the original at
 * every event by test/property/agui-transcript.property.test.ts, in time that grows with the events
 * and not with their square: messages and tool calls are found by id, text is appended and never
 * copied, and patches change the state where it stands. Where it differs from 0.0.59, and what it
 * does that neither does, is in docs/ag-ui.md.
 *
 * Events come in canonical form: chunks expanded, THINKING_* as REASONING_*. Nothing that an event
 * holds makes it throw; an event that is not what its type should be, or of a type that changes
 * nothing (steps, subagents, CUSTOM, one it does not know), is passed over.
 */
import { isObject, type JsonObject } from "../../agui/json.ts";
import { applyActivityDelta, applyActivitySnapshot } from "./activities.ts";
import { afterRunFinished, afterRunStarted } from "./interrupts.ts";
import { adopted, MessageList } from "./message-list.ts";
import { Metadata } from "./metadata.ts";
import { Allowance, Patched } from "./patched.ts";
import type { Reduction } from "./reduction.ts";
import { applySnapshot } from "./snapshot.ts";
import { addText, endText, startReasoning, startText } from "./texts.ts";
import { addArguments, addResult, endCall, setEncryptedValue, startCall } from "./tool-calls.ts";
import { weightOf } from "./weight.ts";

export interface TranscriptLimits {
  /** What the state, or one activity, may come to weigh by patches (see weight.ts). */
  readonly patchedBytesMax: number;
  /** What all patches of the session may cost beyond their own text (see patched.ts). */
  readonly patchCostBytesMax: number;
}

/** CopilotKit's client fails on a frame over 10 MiB; a state that is of use is far below this. */
const LIMITS: TranscriptLimits = {
  patchedBytesMax: 64 * 1024 * 1024,
  patchCostBytesMax: 64 * 1024 * 1024,
};

export class Transcript {
  readonly #reduction: Reduction;
  /** What patches apply to: an empty object before the first snapshot, as for the clients. */
  #state: Patched;
  #stateIs: "none" | "set" | "too_large" = "none";
  #stateBytes = 0;
  #interrupts: readonly JsonObject[] = [];
  #interruptsBytes = 0;

  constructor({ patchedBytesMax, patchCostBytesMax }: TranscriptLimits = LIMITS) {
    const allowance = new Allowance(patchCostBytesMax);
    this.#reduction = {
      list: new MessageList(),
      metadata: new Metadata(),
      patchedLimits: { bytesMax: patchedBytesMax, allowance },
    };
    this.#state = new Patched({}, this.#reduction.patchedLimits);
  }

  /**
   * Of the newest event applied. What it gives may be changed by the next `apply`, and so has to be
   * made a text, or copied, before that.
   */
  messages(): readonly JsonObject[] {
    return this.#reduction.list.toArray();
  }

  /** Whether there is a message with this id. */
  has(id: unknown): boolean {
    return this.#reduction.list.find(id) !== undefined;
  }

  /**
   * Undefined when there is none: no event set it, or patches made more of it than may be, which only
   * a STATE_SNAPSHOT ends. To be used like `messages()`.
   */
  get state(): unknown {
    return this.#stateIs === "set" ? this.#state.value : undefined;
  }

  /** Whether there is no state because patches made too much of it. */
  get isStateTooLarge(): boolean {
    return this.#stateIs === "too_large";
  }

  /** What the agent asked and nobody has answered, as far as the log says. */
  interrupts(): readonly JsonObject[] {
    return this.#interrupts;
  }

  /** What it keeps of memory, as weight.ts estimates it. */
  get bytes(): number {
    return this.#reduction.list.bytes + this.#stateBytes + this.#interruptsBytes;
  }

  /** Keeps parts of the event, and changes none. */
  apply(event: JsonObject): void {
    switch (event["type"]) {
      case "RUN_STARTED":
        return this.#startRun(event);
      case "RUN_FINISHED":
        this.#interrupts = afterRunFinished(event);
        this.#interruptsBytes = weightOf(this.#interrupts).bytes;
        return;
      case "STATE_SNAPSHOT":
        return this.#setState(event);
      case "STATE_DELTA":
        return this.#patchState(event);
      case "MESSAGES_SNAPSHOT":
        return applySnapshot(this.#reduction.list, event);
      default:
        return applyToMessages(this.#reduction, event);
    }
  }

  #startRun(event: JsonObject): void {
    // What is answered weighs on until the run ends: to look at it again would be paid by no event.
    this.#interrupts = afterRunStarted(this.#interrupts, event);
    const { input } = event;
    if (!isObject(input) || !Array.isArray(input["messages"])) return;
    const { list } = this.#reduction;
    for (const message of input["messages"].filter(isObject)) {
      if (list.find(message["id"]) === undefined) list.push(adopted(message));
    }
  }

  #setState({ snapshot }: JsonObject): void {
    if (snapshot === undefined) return;
    this.#state = new Patched(snapshot, this.#reduction.patchedLimits);
    this.#stateBytes = weightOf(snapshot).bytes;
    this.#stateIs = "set";
  }

  #patchState({ delta }: JsonObject): void {
    if (this.#stateIs === "too_large") return;
    const outcome = this.#state.apply(delta);
    if (outcome === "applied") {
      this.#stateIs = "set";
      this.#stateBytes = this.#state.bytes ?? 0;
    }
    if (outcome !== "too_large") return;
    this.#stateBytes = 0;
    this.#state = new Patched({}, this.#reduction.patchedLimits);
    this.#stateIs = "too_large";
  }
}

function applyToMessages(reduction: Reduction, event: JsonObject): void {
  switch (event["type"]) {
    case "TEXT_MESSAGE_START":
      return startText(reduction, event);
    case "REASONING_MESSAGE_START":
      return startReasoning(reduction, event);
    case "TEXT_MESSAGE_CONTENT":
    case "REASONING_MESSAGE_CONTENT":
      return addText(reduction, event);
    case "TEXT_MESSAGE_END":
    case "REASONING_MESSAGE_END":
      return endText(reduction, event);
    case "TOOL_CALL_START":
      return startCall(reduction, event);
    case "TOOL_CALL_ARGS":
      return addArguments(reduction, event);
    case "TOOL_CALL_END":
      return endCall(reduction, event);
    case "TOOL_CALL_RESULT":
      return addResult(reduction, event);
    case "REASONING_ENCRYPTED_VALUE":
      return setEncryptedValue(reduction, event);
    case "ACTIVITY_SNAPSHOT":
      return applyActivitySnapshot(reduction, event);
    case "ACTIVITY_DELTA":
      return applyActivityDelta(reduction, event);
    default:
  }
}
