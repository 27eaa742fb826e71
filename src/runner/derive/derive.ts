/**
 * Derives the conversation that a person reads from the events that an agent emits
 * (docs/dual-push.md has the table). The code is incremental and pure: the result depends only on
 * the events so far. So a restarted runner that replays its events derives the same messages under
 * the same keys. No input makes it throw: an input that is not an event derives nothing.
 *
 *   START, CHUNK ──► open ──► fragments gather, each construct alone ──► END ──► message
 *                      │
 *                      ├── a chunk run ends with the next event that is not a chunk of it; in lanes
 *                      ├── RUN_FINISHED, which leaves nothing open: as by its END
 *                      ├── RUN_ERROR, RUN_STARTED of the next run: an open text is sent,
 *                      │   an open tool call is dropped
 *                      └── too much is open (open-constructs.ts): the oldest as by its END
 *
 * Constructs that are open at the end of the events become no message: a replay would send the
 * complete message under the key of the incomplete one.
 */
import { lookup } from "../../agui/catalogue.ts";
import type { JsonObject } from "../../agui/json.ts";
import type { MESSAGE_TYPES } from "../../agui/message-types.ts";
import { EFFECTS } from "../../agui/sequence-effects.ts";
import { memberSpans } from "../../agui/spans.ts";
import { Constructs } from "./constructs.ts";
import { readEvent, textField, ungrouped } from "./event.ts";
import { MessageKeys } from "./keys.ts";
import type { OpenConstruct } from "./open-constructs.ts";
import {
  assistantPayload,
  customPayload,
  errorPayload,
  lifecyclePayload,
  toolResultPayload,
  toolUsePayload,
} from "./payloads.ts";

type MessageType = (typeof MESSAGE_TYPES)[number];

/** A message to push. */
export interface DerivedMessage {
  /** `assistant`, `tool_use`, `tool_result`, `system`, `error` or `lifecycle`. */
  readonly eventType: MessageType;
  readonly payload: string;
  /** The idempotency key: the same in each derivation of the run. */
  readonly key: string;
}

export interface DeriveOptions {
  /** False: no messages for the start and the finish of runs. */
  readonly lifecycle?: boolean;
  /** The service's limit of a message, in bytes; a longer message is cut, with a note. */
  readonly payloadBytesMax?: number;
}

/** The default PAYLOAD_BYTES_MAX of a service. */
const PAYLOAD_BYTES_MAX = 1_048_576;

export class MessageDeriver {
  readonly #lifecycle: boolean;
  readonly #bytesMax: number;
  readonly #keys = new MessageKeys();
  readonly #constructs: Constructs;
  #derived: DerivedMessage[] = [];

  constructor({ lifecycle = true, payloadBytesMax = PAYLOAD_BYTES_MAX }: DeriveOptions = {}) {
    this.#lifecycle = lifecycle;
    this.#bytesMax = payloadBytesMax;
    // A UTF-16 unit takes at least one byte, so no payload holds more of them.
    const limits = { textCharsMax: payloadBytesMax };
    this.#constructs = new Constructs((construct) => this.#ended(construct), limits);
  }

  /**
   * Takes the next event, as JSON; returns the messages that it completes, in order; mostly none.
   */
  next(payload: string): readonly DerivedMessage[] {
    const event = readEvent(payload);
    if (event === undefined) return [];
    for (const one of ungrouped(event)) this.#take(one, payload);
    const derived = this.#derived;
    this.#derived = [];
    return derived;
  }

  #take(event: JsonObject, payload: string): void {
    const { type } = event;
    const entry = typeof type === "string" ? lookup(type) : undefined;
    const effect = entry && EFFECTS.get(entry.type);
    if (effect === undefined) return;
    this.#constructs.endChunks(effect, event);
    switch (type) {
      case "TEXT_MESSAGE_START":
      case "TOOL_CALL_START":
        return this.#constructs.start(effect, event);
      case "TEXT_MESSAGE_CONTENT":
      case "TOOL_CALL_ARGS":
        return this.#constructs.goOn(effect, event);
      case "TEXT_MESSAGE_END":
      case "TOOL_CALL_END":
        return this.#constructs.end(effect, event);
      case "TEXT_MESSAGE_CHUNK":
      case "TOOL_CALL_CHUNK":
      case "REASONING_MESSAGE_CHUNK":
        return this.#constructs.chunk(effect, event);
      case "TOOL_CALL_RESULT":
        return this.#result(event);
      case "CUSTOM":
        return this.#custom(event, payload);
      case "RUN_STARTED":
        this.#constructs.breakOff();
        this.#keys.beginRun(textField(event, "runId"));
        return this.#lifecycleOf("run_started");
      case "RUN_FINISHED":
        this.#constructs.endAll();
        return this.#lifecycleOf("run_finished");
      case "RUN_ERROR":
        this.#constructs.breakOff();
        return this.#error(event);
      default:
    }
  }

  #ended({ kind, key, owner, name, isAssistants, ...said }: OpenConstruct): void {
    if (!isAssistants) return;
    // Subagents may use the same ids as each other and as the agent.
    const constructId = owner === undefined ? key : `${owner}/${key}`;
    if (kind === "text") {
      const payload = assistantPayload(said, this.#bytesMax);
      if (payload !== undefined) this.#add({ eventType: "assistant", constructId, payload });
    } else {
      const payload = toolUsePayload({ name, toolCallId: key, ...said }, this.#bytesMax);
      this.#add({ eventType: "tool_use", constructId, payload });
    }
  }

  #result(event: JsonObject): void {
    const toolCallId = textField(event, "toolCallId");
    // Agents without a framework use `result`, which no version of the protocol has.
    const content = event["content"] ?? event["result"];
    if (toolCallId === undefined || isNothing(content)) return;
    const payload = toolResultPayload(toolCallId, content);
    this.#add({ eventType: "tool_result", constructId: toolCallId, payload });
  }

  #custom(event: JsonObject, text: string): void {
    const name = textField(event, "name");
    if (name === undefined) return;
    const span = memberSpans(text).findLast(({ key }) => key === "value")?.valueSpan;
    const value = span === undefined ? "" : text.slice(span.start, span.end);
    const eventType = name.toLowerCase().includes("error") ? "error" : "system";
    const payload = customPayload({ name, value }, this.#bytesMax);
    this.#add({ eventType, constructId: name, payload });
  }

  #error({ code, error, ...event }: JsonObject): void {
    // Two of the recorded agents use `error`, which no version of the protocol has.
    const message = textField(event, "message") ?? (isNothing(error) ? undefined : textOf(error));
    const said = {
      message: message ?? "unknown error",
      code: isNothing(code) ? undefined : textOf(code),
    };
    const payload = errorPayload(said, this.#bytesMax);
    this.#add({ eventType: "error", constructId: "run_error", payload });
  }

  #lifecycleOf(event: "run_started" | "run_finished"): void {
    if (!this.#lifecycle) return;
    const payload = lifecyclePayload(event);
    this.#add({ eventType: "lifecycle", constructId: event, payload });
  }

  #add(message: Omit<DerivedMessage, "key"> & { readonly constructId: string }): void {
    const { eventType, payload } = message;
    // The id or the name alone is longer than a payload, so no message is possible.
    if (Buffer.byteLength(payload) > this.#bytesMax) return;
    this.#derived.push({ eventType, payload, key: this.#keys.next(message) });
  }
}

function isNothing(value: unknown): value is null | undefined {
  return value === undefined || value === null;
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}
