/**
 * Converts a session to entries of a history (entry.ts): one for each user message, and one for
 * each run, with LangChain4j's events. Pieces of one text are joined. An entry ends after
 * ENTRY_CHARS_MAX characters, and the run continues in the next: merging of rows does not move the
 * cut.
 */
import { contentText, isObject, type JsonObject, textOf } from "@session-ledger/agui/json";
import { BoundedMap } from "@session-ledger/base/bounded-map";
import { Canonical } from "@session-ledger/agui/canonical/canonical";
import { blockOf, errorIn, originalEntries, type EntryRole, valueOf } from "./entry.ts";
import { ToolCallBuffer } from "./tool-call-buffer.ts";

/** `history`: texts alone. `history/lc4j`: answers with events. `text`: role and text. */
export const HISTORY_FORMATS = ["history", "history/lc4j", "text"] as const;
export type HistoryFormat = (typeof HISTORY_FORMATS)[number];

/** A stored row, merged or not, or an event of one. */
export interface HistoryRow {
  readonly seq: bigint;
  readonly eventType: string;
  readonly payload: string;
  readonly createdAtMicros: bigint;
}

interface ExportOptions {
  readonly sessionId: string;
  /** Default: ENTRY_CHARS_MAX. */
  readonly entryCharsMax?: number;
}

export function* toHistory(
  rows: Iterable<HistoryRow>,
  format: HistoryFormat,
  options: ExportOptions,
): Generator<JsonObject, void, undefined> {
  const history = new HistoryExport(format, options);
  for (const row of rows) yield* history.take(row);
  yield* history.end();
}

/** Of one entry. */
const ENTRY_CHARS_MAX = 1_048_576;
/** Known message ids; an input that repeats the conversation adds nothing. */
const KNOWN_IDS_MAX = 100_000;
const CALLS_MAX = 10_000;

/** The entry of an open run. */
interface Draft {
  readonly id: string;
  readonly createdAtMicros: bigint;
  readonly original: JsonObject | undefined;
  /** The place of this entry in its run, from 1. */
  part: number;
  events: JsonObject[];
  /** The pieces of the last event, if that is a text. */
  open: { readonly type: PieceType; readonly pieces: string[] } | undefined;
  chars: number;
}

type PieceType = "PartialResponse" | "PartialThinking";

export class HistoryExport {
  readonly #format: HistoryFormat;
  readonly #sessionId: string;
  readonly #canonical: Canonical;
  readonly #seenIds = new BoundedMap<string, true>(KNOWN_IDS_MAX);
  readonly #names = new BoundedMap<string, string>(CALLS_MAX);
  readonly #charsMax: number;
  readonly #calls: ToolCallBuffer;
  /** Open texts of roles other than the assistant. */
  readonly #others = new Map<string, { readonly role: string; text: string }>();
  /** Ended steps; their events follow when the run continues. */
  #endedSteps = 0;
  #draft: Draft | undefined;
  #entries: JsonObject[] = [];

  constructor(
    format: HistoryFormat,
    { sessionId, entryCharsMax = ENTRY_CHARS_MAX }: ExportOptions,
  ) {
    this.#charsMax = entryCharsMax;
    this.#calls = new ToolCallBuffer(entryCharsMax);
    this.#format = format;
    this.#sessionId = sessionId;
    this.#canonical = new Canonical(sessionId);
  }

  /** The entries that the row completes. */
  take(row: HistoryRow): readonly JsonObject[] {
    const events = this.#canonical.next({ ...row, conformant: true });
    for (const { value } of events) this.#event(value, row);
    return this.#takeEntries();
  }

  /** Call after the last row. An open run becomes an entry with its events so far. */
  end(): readonly JsonObject[] {
    this.#close();
    return this.#takeEntries();
  }

  #takeEntries(): readonly JsonObject[] {
    const entries = this.#entries;
    this.#entries = [];
    return entries;
  }

  #event(value: JsonObject, row: HistoryRow): void {
    const { type } = value;
    if (type === "RUN_STARTED") return this.#startRun(value, row);
    if (type === "MESSAGES_SNAPSHOT") return this.#addMessages(value["messages"], row);
    // LangChain4j knows no agents inside of agents.
    if (typeof value["subagentRunId"] === "string") return;
    switch (type) {
      case "TEXT_MESSAGE_START":
        return this.#startText(value);
      case "TEXT_MESSAGE_CONTENT":
        return this.#text(value, row);
      case "TEXT_MESSAGE_END":
        return this.#endText(value, row);
      case "REASONING_MESSAGE_CONTENT":
        return this.#piece("PartialThinking", textOf(value["delta"]) ?? "", row);
      case "TOOL_CALL_START":
        this.#names.set(String(value["toolCallId"]), textOf(value["toolCallName"]) ?? "unknown");
        return this.#calls.start(value);
      case "TOOL_CALL_ARGS":
        return this.#calls.args(value, (event) => this.#emit(event, row));
      case "TOOL_CALL_END":
        return this.#calls.end(value, (event) => this.#emit(event, row));
      case "TOOL_CALL_RESULT":
        return this.#result(value, row);
      case "ACTIVITY_SNAPSHOT":
        return this.#activity(value, row);
      case "CUSTOM":
        return this.#custom(value, row);
      case "STEP_FINISHED":
        this.#endedSteps += 1;
        return;
      case "RUN_FINISHED":
      case "RUN_ERROR":
        return this.#endRun(value, row);
    }
  }

  #startRun(started: JsonObject, row: HistoryRow): void {
    this.#close();
    const original = originalEntries(started);
    const { input } = started;
    const questions = original.filter((entry) => blockOf(entry)["role"] === "USER");
    if (isObject(input)) this.#addMessages(input["messages"], row, questions);
    const answer = original.find((entry) => blockOf(entry)["role"] === "AI");
    // A run with user entries only has no answer.
    if (original.length === 0 || answer !== undefined)
      this.#open(textOf(started["runId"]) ?? "", row, answer);
  }

  /** Messages that the session did not have before. */
  #addMessages(messages: unknown, row: HistoryRow, original: readonly JsonObject[] = []): void {
    if (!Array.isArray(messages)) return;
    for (const [at, { id, role, content }] of messages.filter(isObject).entries()) {
      if (typeof id !== "string") continue;
      const isSeen = this.#seenIds.has(id);
      this.#seenIds.set(id, true);
      if (!isSeen && role === "user")
        this.#addUserMessage(id, contentText(content), row, original[at]);
    }
  }

  #addUserMessage(id: string, text: string, row: HistoryRow, original?: JsonObject): void {
    this.#add("USER", { id, createdAtMicros: row.createdAtMicros, original }, { text });
  }

  #open(id: string, { createdAtMicros }: HistoryRow, original?: JsonObject): Draft {
    this.#endedSteps = 0;
    const events: JsonObject[] = [];
    this.#draft = { id, createdAtMicros, original, part: 1, events, open: undefined, chars: 0 };
    return this.#draft;
  }

  /** Events may lie outside of all runs. */
  #drafted(row: HistoryRow): Draft {
    return this.#draft ?? this.#open(`${this.#sessionId}:${row.seq}`, row);
  }

  #startText({ messageId, role }: JsonObject): void {
    if (typeof messageId !== "string") return;
    const isSeen = this.#seenIds.has(messageId);
    this.#seenIds.set(messageId, true);
    if (role === "assistant" || typeof role !== "string") return;
    this.#others.set(messageId, { role: isSeen ? "" : role, text: "" });
  }

  #text({ messageId, delta }: JsonObject, row: HistoryRow): void {
    const other = this.#others.get(String(messageId));
    const text = textOf(delta) ?? "";
    if (other === undefined) return this.#piece("PartialResponse", text, row);
    other.text += text.slice(0, Math.max(0, this.#charsMax - other.text.length));
  }

  #endText({ messageId }: JsonObject, row: HistoryRow): void {
    const id = String(messageId);
    const other = this.#others.get(id);
    this.#others.delete(id);
    if (other?.role === "user") this.#addUserMessage(id, other.text, row);
  }

  #piece(type: PieceType, text: string, row: HistoryRow): void {
    if (text === "") return;
    this.#emitEndedSteps(row);
    const draft = this.#drafted(row);
    for (let rest = text; rest !== ""; ) {
      const room = this.#room(draft, 1);
      const piece = rest.slice(0, room);
      rest = rest.slice(room);
      if (draft.open?.type !== type) {
        endPiece(draft);
        draft.open = { type, pieces: [] };
      }
      draft.open.pieces.push(piece);
      draft.chars += piece.length;
    }
  }

  #emit(event: JsonObject, row: HistoryRow): void {
    this.#emitEndedSteps(row);
    const draft = this.#drafted(row);
    const chars = JSON.stringify(event).length;
    this.#room(draft, chars);
    endPiece(draft);
    draft.events.push(event);
    draft.chars += chars;
  }

  /** Ends the entry if it has no room for these characters; returns its room. */
  #room(draft: Draft, chars: number): number {
    if (draft.chars > 0 && draft.chars + chars > this.#charsMax) {
      this.#complete(draft);
      draft.part += 1;
      draft.events = [];
      draft.open = undefined;
      draft.chars = 0;
    }
    return this.#charsMax - draft.chars;
  }

  #result({ toolCallId, content, rawEvent }: JsonObject, row: HistoryRow): void {
    const id = String(toolCallId);
    const toolName = this.#names.get(id);
    const named = toolName === undefined ? {} : { toolName };
    const text = typeof content === "string" ? content : contentText(content);
    const output = valueOf(text, rawEvent) ?? text;
    this.#emit({ eventType: "ToolExecuted", id, ...named, output }, row);
  }

  #activity({ activityType, content }: JsonObject, row: HistoryRow): void {
    if (activityType !== "lc4j.content_fetched" || !isObject(content)) return;
    this.#emit({ eventType: "ContentFetched", ...content }, row);
  }

  /** Events that the import did not know are exported unchanged. */
  #custom({ name, value }: JsonObject, row: HistoryRow): void {
    if (typeof name === "string" && name.startsWith("lc4j.") && isObject(value))
      this.#emit(value, row);
  }

  #emitEndedSteps(row: HistoryRow): void {
    const ended = this.#endedSteps;
    this.#endedSteps = 0;
    for (let nth = 0; nth < ended; nth += 1) this.#emit({ eventType: "IntermediateResponse" }, row);
  }

  #endRun(end: JsonObject, row: HistoryRow): void {
    this.#endedSteps = 0; // The end of the run implies the end of its last step.
    const event = endEventOf(end, this.#draft?.original !== undefined);
    const draft = this.#draft;
    const isEmpty = draft === undefined || (draft.chars === 0 && draft.original === undefined);
    if (event !== undefined && !isEmpty) this.#emit(event, row);
    this.#close();
  }

  #close(): void {
    const draft = this.#draft;
    this.#draft = undefined;
    this.#calls.clear();
    this.#others.clear();
    this.#endedSteps = 0;
    if (draft !== undefined) this.#complete(draft);
  }

  #complete(draft: Draft): void {
    endPiece(draft);
    const { part, events, original: first, createdAtMicros } = draft;
    const original = part === 1 ? first : undefined;
    if (events.length === 0 && original === undefined) return;
    const chunks = events.filter(({ eventType }) => eventType === "PartialResponse");
    const text = chunks.map(({ chunk }) => textOf(chunk) ?? "").join("");
    const id = part === 1 ? draft.id : `${draft.id}.${part}`;
    this.#add("AI", { id, createdAtMicros, original }, { text, events });
  }

  #add(
    role: EntryRole,
    { id, createdAtMicros, original }: Pick<Draft, "id" | "createdAtMicros" | "original">,
    { text, events }: { readonly text: string; readonly events?: readonly JsonObject[] },
  ): void {
    const isRich = this.#format === "history/lc4j";
    const block = original && blockOf(original);
    const hasNoText = text === "" && (block?.["text"] ?? "") === "";
    if (!isRich && hasNoText && block?.["attachments"] === undefined) return;
    if (this.#format === "text") {
      this.#entries.push({ role, text: text === "" ? (textOf(block?.["text"]) ?? "") : text });
      return;
    }
    const isWithEvents =
      isRich && events !== undefined && (block === undefined || "events" in block);
    const content = isWithEvents
      ? { role, ...(text !== "" && block === undefined && { text }), ...block, events }
      : {
          role,
          ...without(block, "events"),
          ...((block === undefined || text !== "") && { text }),
        };
    const contentType = isWithEvents ? "history/lc4j" : "history";
    this.#entries.push({
      ...(original ?? {
        id,
        conversationId: this.#sessionId,
        channel: "history",
        contentType,
        createdAt: new Date(Number(createdAtMicros / 1_000n)).toISOString(),
      }),
      ...(isRich ? {} : { contentType }),
      content: [content],
    });
  }
}

function endPiece(draft: Draft): void {
  const { open } = draft;
  if (open === undefined) return;
  draft.events.push({ eventType: open.type, chunk: open.pieces.join("") });
  draft.open = undefined;
}

/** `isEntry`: the run was imported from an entry, which may lack an event for its end. */
function endEventOf(end: JsonObject, isEntry: boolean): JsonObject | undefined {
  const { type, code, message, outcome, result, usage } = end;
  if (type === "RUN_ERROR") {
    if (code === "CANCELLED") return { eventType: "StreamAborted" };
    if (code === "TRUNCATED") return undefined;
    const error = errorIn(end) ?? message;
    return { eventType: "StreamError", error, ...(code !== undefined && { code }) };
  }
  if (isObject(outcome) && outcome["type"] === "cancelled") return { eventType: "StreamAborted" };
  const metadata = { ...(isObject(result) && metadataIn(result)), ...usageIn(usage) };
  const isEmpty = Object.keys(metadata).length === 0;
  if (isEmpty && isEntry) return undefined;
  return { eventType: "ChatCompleted", ...(!isEmpty && { metadata }) };
}

function metadataIn({ id, modelName, finishReason }: JsonObject): JsonObject {
  const fields = Object.entries({ id, modelName, finishReason });
  return Object.fromEntries(fields.filter(([, value]) => typeof value === "string"));
}

function usageIn(usage: unknown): JsonObject {
  const first: unknown = Array.isArray(usage) ? usage[0] : undefined;
  if (!isObject(first)) return {};
  const { inputTokens, outputTokens, totalTokens } = first;
  const counts = Object.entries({
    inputTokenCount: inputTokens,
    outputTokenCount: outputTokens,
    totalTokenCount: totalTokens,
  }).filter(([, count]) => typeof count === "number");
  return counts.length === 0 ? {} : { tokenUsage: Object.fromEntries(counts) };
}

function without(block: JsonObject | undefined, member: string): JsonObject {
  return Object.fromEntries(Object.entries(block ?? {}).filter(([name]) => name !== member));
}
