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
 *                      └── too much is open (constructs.ts): the oldest as by its END
 *
 * Constructs that are open at the end of the events become no message: a replay would send the
 * complete message under the key of the incomplete one.
 */
import { createHash } from "node:crypto";
import { lookup } from "@session-ledger/agui/catalogue";
import { EFFECTS } from "@session-ledger/agui/constructs";
import { isNothing, parseJson, isObject, type JsonObject } from "@session-ledger/agui/json";
import type { MESSAGE_TYPES } from "@session-ledger/agui/message-types";
import { memberSpans } from "@session-ledger/agui/spans";
import { ID_BYTES_MAX } from "@session-ledger/base/ids";
import { COMPRESSOR_LIMITS } from "@session-ledger/compressor/compressor";
import { ConstructTracker, type TrackedConstruct, textField, ungrouped } from "./constructs.ts";

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
  /** The service's limit of a message, in bytes; a longer one is cut. Default: 1 MiB. */
  readonly payloadBytesMax?: number;
}

export class MessageDeriver {
  readonly #lifecycle: boolean;
  readonly #bytesMax: number;
  readonly #keys = new MessageKeys();
  readonly #constructs: ConstructTracker;
  #derived: DerivedMessage[] = [];

  constructor({
    lifecycle = true,
    payloadBytesMax = COMPRESSOR_LIMITS.payloadBytesMax,
  }: DeriveOptions = {}) {
    this.#lifecycle = lifecycle;
    this.#bytesMax = payloadBytesMax;
    // A UTF-16 unit takes at least one byte, so no payload holds more of them.
    const limits = { textCharsMax: payloadBytesMax };
    this.#constructs = new ConstructTracker((construct) => this.#onConstructEnd(construct), limits);
  }

  /** Takes the next event, as JSON; returns the messages that it completes, mostly none. */
  next(payload: string): readonly DerivedMessage[] {
    const event = parseJson(payload);
    if (!isObject(event)) return [];
    for (const one of ungrouped(event)) this.#take(one, payload);
    const derived = this.#derived;
    this.#derived = [];
    return derived;
  }

  /** A run that began without a RUN_STARTED: a claim has stored it. */
  beginRun(runId: string): void {
    if (!this.#keys.isOf(runId)) this.#begin(runId);
  }

  #begin(runId: string | undefined): void {
    this.#constructs.breakOff();
    this.#keys.beginRun(runId);
  }

  #take(event: JsonObject, payload: string): void {
    const { type } = event;
    const entry = typeof type === "string" ? lookup(type) : undefined;
    const effect = entry && EFFECTS.get(entry.type);
    if (effect === undefined) return;
    this.#constructs.take(effect, event);
    switch (type) {
      case "TOOL_CALL_RESULT":
        return this.#result(event);
      case "CUSTOM":
        return this.#custom(event, payload);
      case "RUN_STARTED":
        this.#begin(textField(event, "runId"));
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

  #onConstructEnd({ kind, id, owner, name, isAssistants, ...content }: TrackedConstruct): void {
    if (!isAssistants) return;
    // Subagents may use the same ids as each other and as the agent.
    const constructId = owner === undefined ? id : `${owner}/${id}`;
    if (kind === "text") {
      const payload = assistantPayload(content, this.#bytesMax);
      if (payload !== undefined) this.#add({ eventType: "assistant", constructId, payload });
    } else {
      const payload = toolUsePayload({ name, toolCallId: id, ...content }, this.#bytesMax);
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
    const fields = {
      message: message ?? "unknown error",
      code: isNothing(code) ? undefined : textOf(code),
    };
    const payload = errorPayload(fields, this.#bytesMax);
    this.#add({ eventType: "error", constructId: "run_error", payload });
  }

  #lifecycleOf(event: "run_started" | "run_finished"): void {
    if (!this.#lifecycle) return;
    const payload = printed({ event: quoted(event) });
    this.#add({ eventType: "lifecycle", constructId: event, payload });
  }

  #add(message: Omit<DerivedMessage, "key"> & { readonly constructId: string }): void {
    const { eventType, payload } = message;
    // The id or the name alone is longer than a payload, so no message is possible.
    if (Buffer.byteLength(payload) > this.#bytesMax) return;
    this.#derived.push({ eventType, payload, key: this.#keys.next(message) });
  }
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Bases that are counted separately in one run: at most 128 bytes each. */
const COUNTED_MAX = 10_000;
/** 64 bits of the content, in addition to all other parts of the key, which must be equal too. */
const DIGEST_HEX = 16;

interface MessageText {
  readonly eventType: string;
  readonly constructId: string;
  readonly payload: string;
}

/**
 * Idempotency keys of derived messages: `{runId}:{message type}:{construct id}:{n}`, where n
 * counts, from 1, the messages of that run, type and construct. The keys depend only on the events.
 * So a restarted runner that replays its run pushes each message under the same key, and the
 * service keeps one.
 *
 *   longer than a key may be, or holding     `sha256:` and the digest of the whole
 *   what a proto string cannot
 *   a message outside of every run           `:{type}:{id}:{n}:{digest of the payload}`: there is
 *                                            nothing that tells two runs apart, and what both number
 *                                            alike but say differently must not be one message
 */
class MessageKeys {
  readonly #counts = new Map<string, number>();
  #runId: string | undefined;
  #total = 0;

  isOf(runId: string): boolean {
    return runId === this.#runId;
  }

  /** A run that continues under the same id continues its counts. */
  beginRun(runId: string | undefined): void {
    if (runId !== undefined && runId === this.#runId) return;
    this.#runId = runId;
    this.#counts.clear();
    this.#total = 0;
  }

  next({ eventType, constructId, payload }: MessageText): string {
    const base = `${this.#runId ?? ""}:${eventType}:${constructId}`;
    const key = `${base}:${this.#count(base)}`;
    return fitted(this.#runId === undefined ? `${key}:${digest(payload, DIGEST_HEX)}` : key);
  }

  /** Above the limit, n is the number of all messages of the run: higher than every earlier n. */
  #count(base: string): number {
    this.#total += 1;
    const name = fitted(base);
    const count = (this.#counts.get(name) ?? 0) + 1;
    if (count === 1 && this.#counts.size >= COUNTED_MAX) return this.#total;
    this.#counts.set(name, count);
    return count;
  }
}

function fitted(key: string): string {
  const isPlain = key.isWellFormed() && !key.includes("\0");
  if (isPlain && Buffer.byteLength(key) <= ID_BYTES_MAX) return key;
  return `sha256:${digest(key)}`;
}

function digest(text: string, hexDigits?: number): string {
  return createHash("sha256").update(text).digest("hex").slice(0, hexDigits);
}

/**
 * The payloads of derived messages, for a person. Characters that no payload may hold (U+0000, half
 * a surrogate pair) become U+FFFD. A text that is too long is cut, with a note. JSON from an agent
 * is copied unchanged, so numbers keep their digits.
 */

/** The part of a tool's result that a message shows; the event keeps the whole result. */
const RESULT_CHARS_MAX = 2_000;
/** The room for the note about a cut. */
const CUT_BYTES = 200;
/** The longest form of a UTF-16 unit in JSON: `\u0007`. */
const ESCAPED_BYTES = 6;

interface PartialText {
  readonly text: string;
  readonly missingChars: number;
}

/** Undefined: no content. */
function assistantPayload(
  { text, missingChars }: PartialText,
  bytesMax: number,
): string | undefined {
  if (text.trim() === "") return undefined;
  const shown = shownText(text);
  if (missingChars === 0 && Buffer.byteLength(shown) <= bytesMax) return shown;
  const shortened = firstBytes(shown, bytesMax - CUT_BYTES);
  return `${shortened}${cutAt(shortened.length, text.length + missingChars)}`;
}

interface ToolUse extends PartialText {
  readonly name: string | undefined;
  readonly toolCallId: string;
}

function toolUsePayload({ name, toolCallId, ...args }: ToolUse, bytesMax: number): string {
  // The same name that the service gives clients for a call whose START was lost.
  const tool = shownText(name ?? "unknown");
  const print = (input: string): string =>
    printed({ tool: quoted(tool), tool_call_id: quoted(toolCallId), input });
  const whole = print(inputOf(args));
  if (args.missingChars === 0 && Buffer.byteLength(whole) <= bytesMax) return whole;
  const room = bytesMax - Buffer.byteLength(print("")) - CUT_BYTES;
  return print(rawInput(cutText(args, Math.floor(room / ESCAPED_BYTES))));
}

/** Empty when the call has no arguments. */
function inputOf({ text }: PartialText): string {
  if (text === "") return "";
  const value = parseJson(text);
  if (value === undefined) return rawInput(text);
  const json = text.trim().toWellFormed();
  return isObject(value) ? json : `{"value":${json}}`;
}

function rawInput(text: string): string {
  return `{"raw":${quoted(text)}}`;
}

function toolResultPayload(toolCallId: string, content: unknown): string {
  const text = resultText(content);
  const result = cutText({ text, missingChars: 0 }, RESULT_CHARS_MAX);
  return printed({ tool_call_id: quoted(toolCallId), result: quoted(result) });
}

/** Parts that are not text are named and not shown. */
function resultText(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return JSON.stringify(content) ?? "";
  return content.map(partText).join("\n");
}

function partText(part: unknown): string {
  if (!isObject(part)) return JSON.stringify(part) ?? "";
  if (typeof part["text"] === "string") return part["text"];
  return typeof part["type"] === "string" ? `[${part["type"]}]` : "[not text]";
}

interface CustomEvent {
  readonly name: string;
  /** JSON text, as in the event; empty: the event has none. */
  readonly value: string;
}

function customPayload({ name, value }: CustomEvent, bytesMax: number): string {
  const print = (shown: string): string => printed({ custom_event: quoted(name), value: shown });
  const whole = print(value.toWellFormed());
  if (Buffer.byteLength(whole) <= bytesMax) return whole;
  return print(quoted(cutText({ text: value, missingChars: 0 }, RESULT_CHARS_MAX)));
}

interface RunError {
  readonly message: string;
  readonly code: string | undefined;
}

function errorPayload({ message, code }: RunError, bytesMax: number): string {
  const error = cutText(
    { text: message, missingChars: 0 },
    Math.floor(bytesMax / 2 / ESCAPED_BYTES),
  );
  return printed({ error: quoted(error), code: code === undefined ? "" : quoted(code) });
}

/** Members in the given order; empty ones are left out. */
function printed(members: Readonly<Record<string, string>>): string {
  const shown = Object.entries(members).filter(([, json]) => json !== "");
  return `{${shown.map(([name, json]) => `"${name}":${json}`).join(",")}}`;
}

/** In JSON, U+0000 is an ordinary escape and may stay. */
function quoted(text: string): string {
  return JSON.stringify(text.toWellFormed());
}

function shownText(text: string): string {
  return text.toWellFormed().replaceAll("\0", "\uFFFD");
}

/** At most `charsMax` characters, and a note about the rest. */
function cutText({ text, missingChars }: PartialText, charsMax: number): string {
  if (missingChars === 0 && text.length <= charsMax) return text;
  const end = Math.min(text.length, Math.max(0, charsMax));
  const shortened = text.slice(0, isInsidePair(text, end) ? end - 1 : end);
  return `${shortened}${cutAt(shortened.length, text.length + missingChars)}`;
}

function isInsidePair(text: string, at: number): boolean {
  return (text.codePointAt(at - 1) ?? 0) > 0xffff;
}

/** The longest prefix of whole characters within `bytesMax` bytes. */
function firstBytes(text: string, bytesMax: number): string {
  const bytes = Buffer.from(text);
  let end = Math.min(bytes.length, Math.max(0, bytesMax));
  // A byte 10xxxxxx continues the character before it.
  while (end > 0 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  return bytes.toString("utf8", 0, end);
}

function cutAt(chars: number, charsTotal: number): string {
  return `… [cut after ${chars} of ${charsTotal} characters]`;
}
