/**
 * Converts a message row to AG-UI messages. The Ambient platform's runners read payloads in the same way:
 *
 *   user          a RunAgentInput (a JSON object with `messages`): the new user and tool messages at its
 *                 end, under their own ids, and the answers to interrupts in `resume`; otherwise a JSON
 *                 object with `text`; otherwise the payload is the text
 *   assistant     the same, with the messages of the assistant and of tools
 *   system, error text; an error has the name `error`
 *   tool_use, tool_result   a call of the assistant, and its result (docs/dual-push.md)
 *   lifecycle     nothing
 *
 * A message without an id has the id of its row. No payload makes this function throw, nor a reader that
 * writes the messages as JSON.
 */
import { isObject, type JsonObject, parseExactObject } from "../json.ts";
import { newAtEnd, withIds } from "../message-types.ts";
import { answersGraph } from "../run-end.ts";
import { JSON_DEPTH_MAX } from "../payload.ts";
import { outline } from "../spans.ts";
import type { Branch, RowMessages } from "./repeats.ts";

export const USER_ROW_TYPE = "user";

/** A row of the messages' stream. */
interface SourceRow {
  readonly id: string;
  readonly seq: bigint;
  readonly eventType: string;
  readonly payload: string;
  /** JSON text. */
  readonly sender: string | undefined;
  readonly createdAtMicros: bigint;
  readonly sentAtMicros: bigint | undefined;
  readonly idempotencyKey?: string | undefined;
}

export function messagesOfRow(row: SourceRow): RowMessages {
  const { seq, eventType, payload, idempotencyKey: key } = row;
  const value = objectIn(payload);
  if (eventType !== USER_ROW_TYPE) {
    return { seq, messages: agentRow(row, value), isFromUser: false, key: undefined, resume: [] };
  }
  const messages = userMessages(row, value);
  return {
    seq,
    messages,
    isFromUser: true,
    key,
    branch: branchIn(messages),
    resume: answersIn(value),
    answersGraph: Array.isArray(value?.["messages"]) && answersGraph(value),
    requestId: requestIdIn(value),
  };
}

function branchIn([first]: readonly JsonObject[]): Branch | undefined {
  const metadata = first?.["metadata"];
  const { regenerates, edits } = isObject(metadata) ? metadata : {};
  if (typeof edits === "string") return { leaves: "before", messageId: edits };
  return typeof regenerates === "string" ? { leaves: "behind", messageId: regenerates } : undefined;
}

/** The run id of a RunAgentInput, under which its client waits for the answer. */
function requestIdIn(value: JsonObject | undefined): string | undefined {
  const runId = Array.isArray(value?.["messages"]) ? value["runId"] : undefined;
  return typeof runId === "string" ? runId : undefined;
}

function answersIn(value: JsonObject | undefined): readonly JsonObject[] {
  const resume = value?.["resume"];
  return Array.isArray(resume) && Array.isArray(value?.["messages"]) ? resume.filter(isObject) : [];
}

function agentRow(row: SourceRow, value: JsonObject | undefined): readonly JsonObject[] {
  const { id, payload } = row;
  switch (row.eventType) {
    case "assistant":
      return assistantMessages(id, value, payload);
    case "system":
      return [{ id, role: "system", content: textIn(value, payload) }];
    case "error":
      return [{ id, role: "system", name: "error", content: errorText(value, payload) }];
    case "tool_use":
      return [{ id, role: "assistant", toolCalls: [callOf(id, value, payload)] }];
    case "tool_result":
      return [resultOf(id, value, payload)];
    default:
      return [];
  }
}

function userMessages(row: SourceRow, value: JsonObject | undefined): readonly JsonObject[] {
  const sender = senderFieldsOf(row);
  const listed = value?.["messages"];
  if (!Array.isArray(listed)) {
    return [{ id: row.id, role: "user", content: textIn(value, row.payload), ...sender }];
  }
  return withIds(row.id, newAtEnd(listed)).map((message) =>
    message["role"] === "tool"
      ? message
      : { ...sender, ...message, ...metadataOf(message, sender) },
  );
}

interface SenderFields {
  readonly name?: string;
  readonly metadata: JsonObject;
}

/** The sender and the times; `name` is the display name. */
function senderFieldsOf({ sender, createdAtMicros, sentAtMicros }: SourceRow): SenderFields {
  const senderValue = sender === undefined ? undefined : objectIn(sender);
  const name = senderName(senderValue);
  const session = {
    createdAt: isoOf(createdAtMicros),
    ...(sentAtMicros === undefined ? {} : { sentAt: isoOf(sentAtMicros) }),
    ...(senderValue === undefined ? {} : { sender: senderValue }),
  };
  return { ...(name !== undefined && { name }), metadata: { session } };
}

export function senderName(sender: JsonObject | undefined): string | undefined {
  return [sender?.["displayName"], sender?.["name"]].find((one) => typeof one === "string");
}

function metadataOf(
  { metadata }: JsonObject,
  sender: SenderFields,
): Pick<SenderFields, "metadata"> {
  return { metadata: isObject(metadata) ? { ...metadata, ...sender.metadata } : sender.metadata };
}

/** The assistant's text may be empty: existing runners push it also for a run without an answer. */
function assistantMessages(
  id: string,
  value: JsonObject | undefined,
  payload: string,
): readonly JsonObject[] {
  const listed = value?.["messages"];
  if (!Array.isArray(listed)) {
    const content = textIn(value, payload);
    return content.trim() === "" ? [] : [{ id, role: "assistant", content }];
  }
  const roles: readonly unknown[] = ["assistant", "tool"];
  return withIds(
    id,
    listed.filter(isObject).filter(({ role }) => roles.includes(role)),
  );
}

function callOf(id: string, value: JsonObject | undefined, payload: string): JsonObject {
  const { tool = "unknown", tool_call_id: callId = id, input } = value ?? {};
  const args = value === undefined ? payload : argumentsOf(input);
  return {
    id: stringOf(callId),
    type: "function",
    function: { name: stringOf(tool), arguments: args },
  };
}

/** Reverses the deriver: `raw` is text that is no JSON, `value` is JSON that is no object. */
function argumentsOf(input: unknown): string {
  if (input === undefined) return "";
  if (isObject(input) && Object.keys(input).length === 1) {
    if (typeof input["raw"] === "string") return input["raw"];
    if (Object.hasOwn(input, "value")) return JSON.stringify(input["value"]);
  }
  return JSON.stringify(input);
}

function resultOf(id: string, value: JsonObject | undefined, payload: string): JsonObject {
  const { tool_call_id: toolCallId = "", result } = value ?? {};
  const content = result === undefined ? payload : stringOf(result);
  return { id, role: "tool", toolCallId: stringOf(toolCallId), content };
}

function errorText(value: JsonObject | undefined, payload: string): string {
  const { error, code } = value ?? {};
  if (error === undefined) return textIn(value, payload);
  return code === undefined ? stringOf(error) : `${stringOf(error)} (${stringOf(code)})`;
}

function textIn(value: JsonObject | undefined, payload: string): string {
  const text = value?.["text"];
  return typeof text === "string" ? text : payload;
}

/** A text that is no object is not parsed, nor one that JSON.stringify has no stack for. */
function objectIn(text: string): JsonObject | undefined {
  if (!/^\s*\{/.test(text) || outline(text).depth > JSON_DEPTH_MAX) return undefined;
  try {
    return parseExactObject(text);
  } catch {
    return undefined; // The text only begins like JSON.
  }
}

function stringOf(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

const MICROS_PER_MS = 1_000n;

function isoOf(micros: bigint): string {
  const ms = micros / MICROS_PER_MS;
  const rest = String(((micros % MICROS_PER_MS) + MICROS_PER_MS) % MICROS_PER_MS).padStart(3, "0");
  return new Date(Number(ms)).toISOString().replace("Z", `${rest}Z`);
}
