/**
 * Converts a claimed turn to the input of an agent: the history, then one message for each user message,
 * with its sender in front, never merged. Pure.
 *
 *   transcript ─► history ─┐
 *   claimed rows ─┬─ packed ┴─► messages
 *                 ├─ results of the client's tools: in the history, behind their calls
 *                 └─ answers to interrupts ─► resume; state, tools, context, forwardedProps: the newest
 */
import type { SessionMessage } from "@session-ledger/proto/ambient/v1/messages_pb";
import { isObject } from "@session-ledger/agui/json";
import { textsOf } from "../parts.ts";
import { newMessagesOf, objectIn } from "../user-messages.ts";
import {
  arrivalsOf,
  delimiterOf,
  type Layout,
  packTurn,
  type PackOptions,
  senderContextOf,
  type TurnMetrics,
} from "../turn-blocks.ts";
import type { AgentMessage, ResumeEntry, RunInput } from "./bridge.ts";
import { isDeveloperLine } from "./developer-events.ts";

export interface ClaimedTurn {
  readonly sessionId: string;
  readonly runId: string;
  /** The messages of the answer of ClaimTurn. */
  readonly rows: readonly SessionMessage[];
}

export interface InputOptions extends PackOptions {
  /** The messages of GetTranscript; those of the turn may be among them. Default: none. */
  readonly transcript?: readonly AgentMessage[];
  /** User messages that wait for a later turn. Default: none. */
  readonly waiting?: readonly SessionMessage[];
  /** The state of GetTranscript. Default: an empty object. */
  readonly state?: unknown;
  /** True: the framework keeps its own history, and gets only new messages. */
  readonly onlyNew?: boolean;
}

export interface TurnInput {
  readonly input: RunInput;
  readonly metrics: TurnMetrics;
  /** The conversation has messages from before the turn. */
  readonly hasHistory: boolean;
}

/** The RunAgentInput of a turn. Never throws for a payload of a message. */
export function toRunAgentInput(
  { sessionId, runId, rows }: ClaimedTurn,
  { transcript = [], waiting = [], state = {}, onlyNew = false, ...packing }: InputOptions,
): TurnInput {
  const arrivals = arrivalsOf(rows);
  const { metrics } = packTurn(arrivals, packing);
  const typedMessages = rows.flatMap(newMessagesOf);
  const ofPeople = typedMessages.filter(({ role }) => role === "user");
  const turnMessages = arrivals.map((arrival, at): AgentMessage => {
    const { displayName, name } = arrival.sender;
    const shown = displayName || name;
    const original = ofPeople[at];
    const metadata = original?.["metadata"];
    const delimiter = delimiterOf(arrival, packing.boundary);
    const content = withDelimiter(delimiter, original?.["content"], packing.layout);
    return {
      id: arrival.messageId,
      role: "user",
      content,
      ...(shown && { name: shown }),
      metadata: {
        ...(isObject(metadata) && metadata),
        sender_context: senderContextOf(arrival, packing.boundary),
      },
    };
  });
  const results = typedMessages.filter(isResult);
  const later = new Set([...turnMessages, ...waiting.flatMap(newMessagesOf)].map(({ id }) => id));
  const history = transcript.filter((one) => !later.has(one.id) && !isDeveloperLine(one));
  const storedIds = new Set(history.map(({ id }) => id));
  const messages = onlyNew
    ? [...results, ...turnMessages]
    : [...history, ...results.filter(({ id }) => !storedIds.has(id)), ...turnMessages];
  const typed = rows
    .map(({ payload }) => objectIn(payload))
    .filter((payload) => Array.isArray(payload?.["messages"]));
  const newest = (member: string): unknown =>
    typed.findLast((one) => one?.[member] !== undefined)?.[member];
  const resume = typed.flatMap((one) => listOf(one?.["resume"]).filter(isAnswer));
  const input = {
    threadId: sessionId,
    runId,
    state: newest("state") ?? state,
    messages,
    tools: listOf(newest("tools")),
    context: listOf(newest("context")),
    forwardedProps: newest("forwardedProps") ?? {},
    ...(resume.length > 0 && { resume }),
  };
  return { input, metrics, hasHistory: history.length > 0 };
}

/**
 * The user texts at the end of the input, after the last message of the agent: the
 * texts without their senders, one for each part, and an empty one for a message without a text. For
 * agents that take texts; others find all in `messages`.
 */
export function promptsOf({ messages }: Pick<RunInput, "messages">): readonly string[] {
  const answered = messages.findLastIndex(({ role }) => role !== "user");
  return messages.slice(answered + 1).flatMap(({ content, metadata }) => {
    const [first = "", ...rest] = textsOf(content);
    const isPacked = isObject(metadata) && metadata["sender_context"] !== undefined;
    const own = isPacked ? withoutDelimiter(first) : first;
    return own === undefined && rest.length > 0 ? rest : [own ?? "", ...rest];
  });
}

/** Undefined: the text is nothing else. */
function withoutDelimiter(text: string): string | undefined {
  return /^<sender_context>\n.*\n<\/sender_context>(?:\n\n([^]*))?$/.exec(text)?.[1];
}

/** The delimiter, then the content. One text stays a text: not every framework knows parts. */
function withDelimiter(delimiter: string, content: unknown, layout: Layout = "split"): unknown {
  const text = typeof content === "string" ? content : "";
  const parts = Array.isArray(content) ? content : text === "" ? [] : [{ type: "text", text }];
  if (parts.length === 0) return delimiter;
  if (layout === "combined" && text !== "") return `${delimiter}\n\n${text}`;
  return [{ type: "text", text: delimiter }, ...parts];
}

function isResult({ role }: AgentMessage): boolean {
  return role === "tool";
}

function isAnswer(entry: unknown): entry is ResumeEntry {
  if (!isObject(entry)) return false;
  const { interruptId, status } = entry;
  return typeof interruptId === "string" && (status === "resolved" || status === "cancelled");
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
