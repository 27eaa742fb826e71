/**
 * A claimed turn as the input of an agent: the history, then one message for each message of a person,
 * with its sender in front, never merged. Pure.
 *
 *   transcript ─► history ─┐
 *   claimed rows ─┬─ packed ┴─► messages
 *                 ├─ results of the client's tools: in the history, behind their calls
 *                 └─ answers to interrupts ─► resume; state, tools, context, forwardedProps: the newest
 */
import type { SessionMessage } from "../../gen/ambient/v1/messages_pb.ts";
import { isObject, type JsonObject } from "../agui/json.ts";
import { newMessagesOf, objectIn } from "../runner/said.ts";
import {
  arrivalsOf,
  type ContentBlock,
  packTurn,
  type PackOptions,
  senderContextOf,
  type TurnMetrics,
} from "../runner/turn-blocks.ts";
import type { AgentMessage, ResumeEntry, RunInput } from "./bridge.ts";
import { isNote } from "./notes.ts";

export interface ClaimedTurn {
  readonly sessionId: string;
  readonly runId: string;
  /** The messages of the answer of ClaimTurn. */
  readonly rows: readonly SessionMessage[];
}

export interface InputOptions extends PackOptions {
  /** The messages of GetTranscript; those of the turn may be among them. Default: none. */
  readonly transcript?: readonly AgentMessage[];
  /** Messages of people that wait for a later turn. Default: none. */
  readonly waiting?: readonly SessionMessage[];
  /** The state of GetTranscript. Default: an empty object. */
  readonly state?: unknown;
  /** True: the framework keeps its own history, and gets only what is new. */
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
  const { blocks, attribution, metrics } = packTurn(arrivals, packing);
  const said = arrivals.map((arrival, at): AgentMessage => {
    const { displayName, name } = arrival.sender;
    const own = blocks.filter((_, index) => attribution[index]?.arrival === at);
    const shown = displayName || name;
    return {
      id: arrival.messageId,
      role: "user",
      content: contentOf(own),
      ...(shown && { name: shown }),
      metadata: { sender_context: senderContextOf(arrival, packing.boundary) },
    };
  });
  const results = rows.flatMap(newMessagesOf).filter(isResult);
  const later = new Set([...said, ...waiting.flatMap(newMessagesOf)].map(({ id }) => id));
  const history = transcript.filter((one) => !later.has(one.id) && !isNote(one));
  const known = new Set(history.map(({ id }) => id));
  const messages = onlyNew
    ? [...results, ...said]
    : [...history, ...results.filter(({ id }) => !known.has(id)), ...said];
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
 * What people typed in the messages at the end of the input, behind the last one of the agent: the
 * texts without their senders. For agents that take texts; others find all in `messages`.
 */
export function promptsOf({ messages }: Pick<RunInput, "messages">): readonly string[] {
  const answered = messages.findLastIndex(({ role }) => role !== "user");
  return messages.slice(answered + 1).map(({ content, metadata }) => {
    const parts = Array.isArray(content) ? content.filter(isObject) : [{ text: content }];
    const texts = parts.flatMap(({ text }) => (typeof text === "string" ? [text] : []));
    const [first = "", ...rest] = texts;
    const isPacked = isObject(metadata) && metadata["sender_context"] !== undefined;
    const own = isPacked ? withoutDelimiter(first) : first;
    return (own === undefined ? rest : [own, ...rest]).join("\n");
  });
}

/** Undefined: the text is nothing else. */
function withoutDelimiter(text: string): string | undefined {
  return /^<sender_context>\n.*\n<\/sender_context>(?:\n\n([^]*))?$/.exec(text)?.[1];
}

/** One text is sent as a text, because not every framework knows lists of parts. */
function contentOf(blocks: readonly ContentBlock[]): unknown {
  const [first] = blocks;
  if (blocks.length === 1 && first?.type === "text") return first.text;
  return blocks.map(partOf);
}

/** Reverses what `arrivalsOf` makes of the parts of a message. */
function partOf(block: ContentBlock): JsonObject {
  switch (block.type) {
    case "text":
      return { type: "text", text: block.text };
    case "image":
    case "audio": {
      const { type, data, mimeType } = block;
      return { type, source: { type: "data", value: data, mimeType } };
    }
    case "resource_link": {
      const { uri, name, mimeType } = block;
      const source = { type: "url", value: uri, ...(mimeType !== undefined && { mimeType }) };
      return { type: LINKED.has(name) ? name : "document", source };
    }
  }
}

/** The parts of AG-UI that may have a URL. */
const LINKED: ReadonlySet<string> = new Set(["image", "audio", "video", "document"]);

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
