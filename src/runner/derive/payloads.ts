/**
 * The payloads of derived messages. Text is for a person. Characters that no payload may hold
 * (U+0000, which PostgreSQL's text cannot store, and half a surrogate pair) become U+FFFD. A text
 * that is too long is cut, with a note. JSON from an agent is copied unchanged, so numbers keep
 * their digits.
 */
import { isObject } from "../../agui/json.ts";

/** The part of a tool's result that a message shows; the event keeps the whole result. */
const RESULT_CHARS_MAX = 2_000;
/** The room for the note about a cut. */
const CUT_BYTES = 200;
/** The longest form of a UTF-16 unit in JSON: `\u0007`. */
const ESCAPED_BYTES = 6;

interface Kept {
  readonly text: string;
  /** Characters that are missing here. */
  readonly missingChars: number;
}

/** Undefined: there is no content. */
export function assistantPayload(
  { text, missingChars }: Kept,
  bytesMax: number,
): string | undefined {
  if (text.trim() === "") return undefined;
  const shown = shownText(text);
  if (missingChars === 0 && Buffer.byteLength(shown) <= bytesMax) return shown;
  const kept = firstBytes(shown, bytesMax - CUT_BYTES);
  return `${kept}${cutAt(kept.length, text.length + missingChars)}`;
}

interface ToolUse extends Kept {
  readonly name: string | undefined;
  readonly toolCallId: string;
}

export function toolUsePayload({ name, toolCallId, ...args }: ToolUse, bytesMax: number): string {
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
function inputOf({ text }: Kept): string {
  if (text === "") return "";
  const value = parsed(text);
  if (value === undefined) return rawInput(text);
  const json = text.trim().toWellFormed();
  return isObject(value) ? json : `{"value":${json}}`;
}

function rawInput(text: string): string {
  return `{"raw":${quoted(text)}}`;
}

export function toolResultPayload(toolCallId: string, content: unknown): string {
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

export function customPayload({ name, value }: CustomEvent, bytesMax: number): string {
  const print = (shown: string): string => printed({ custom_event: quoted(name), value: shown });
  const whole = print(value.toWellFormed());
  if (Buffer.byteLength(whole) <= bytesMax) return whole;
  return print(quoted(cutText({ text: value, missingChars: 0 }, RESULT_CHARS_MAX)));
}

interface RunError {
  readonly message: string;
  readonly code: string | undefined;
}

export function errorPayload({ message, code }: RunError, bytesMax: number): string {
  const error = cutText(
    { text: message, missingChars: 0 },
    Math.floor(bytesMax / 2 / ESCAPED_BYTES),
  );
  return printed({ error: quoted(error), code: code === undefined ? "" : quoted(code) });
}

export function lifecyclePayload(event: string): string {
  return printed({ event: quoted(event) });
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

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // The text is not JSON.
  }
}

/** At most `charsMax` characters, and a note about the rest. */
function cutText({ text, missingChars }: Kept, charsMax: number): string {
  if (missingChars === 0 && text.length <= charsMax) return text;
  const end = Math.min(text.length, Math.max(0, charsMax));
  const kept = text.slice(0, isInsidePair(text, end) ? end - 1 : end);
  return `${kept}${cutAt(kept.length, text.length + missingChars)}`;
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
