/**
 * Entries of a history in the format of chirino/memory-service: one block of one role, with a text, with
 * the events of the answer, or with attachments.
 *
 *   {"id": …, "conversationId": …, "channel": "history", "contentType": "history/lc4j",
 *    "content": [{"role": "AI", "text": …, "events": […]}], "createdAt": …}
 *
 * An entry becomes AG-UI events. AG-UI has no fields for its other members (user, time, attachments), so
 * RUN_STARTED carries them in `rawEvent`: an entry with empty texts, which an export fills.
 */
import { parseExact } from "@session-ledger/agui/exact-json";
import { isObject, type JsonObject, objectsIn } from "@session-ledger/agui/json";
import { ID_BYTES_MAX } from "@session-ledger/base/ids";

export type EntryRole = "USER" | "AI";

/** An entry with one block. */
export interface HistoryEntry {
  readonly id: string;
  readonly role: EntryRole;
  readonly text: string;
  /** Undefined: the entry has a text only. */
  readonly events: readonly JsonObject[] | undefined;
  readonly createdAtMs: number | undefined;
  /** The entry without the parts above. */
  readonly original: JsonObject;
}

/** A value that is not an entry of a history. */
export class NotAnEntry extends Error {
  override readonly name = "NotAnEntry";
}

/** The entries of a line: one, those of a page, or one for each block. `id` names entries without one. */
export function entriesIn(value: JsonObject, id: () => string): readonly HistoryEntry[] {
  const { data } = value;
  const given = Array.isArray(data) ? data : [value];
  return given.flatMap((entry: unknown) => {
    if (!isObject(entry)) throw new NotAnEntry("data: expected a list of entries");
    return blocksOf(entry, id);
  });
}

function blocksOf(entry: JsonObject, newId: () => string): readonly HistoryEntry[] {
  const { id = newId(), channel = "history", contentType = "history", content } = entry;
  if (typeof id !== "string" || id === "") throw new NotAnEntry("id: expected a text");
  if (id.length * 4 > ID_BYTES_MAX && new TextEncoder().encode(id).length > ID_BYTES_MAX - 8)
    throw new NotAnEntry(`id: expected at most ${ID_BYTES_MAX - 8} bytes`);
  if (channel !== "history") throw new NotAnEntry(`channel: expected history`);
  if (typeof contentType !== "string" || !/^history(\/|$)/.test(contentType))
    throw new NotAnEntry("contentType: expected history, or a format of it");
  if (!Array.isArray(content) || content.length === 0)
    throw new NotAnEntry("content: expected a list with a block");
  return content.map((block: unknown, at) =>
    entryOf(entry, block, { id: at === 0 ? id : `${id}:${at}`, path: `content[${at}]` }),
  );
}

function entryOf(
  entry: JsonObject,
  block: unknown,
  { id, path }: { readonly id: string; readonly path: string },
): HistoryEntry {
  if (!isObject(block)) throw new NotAnEntry(`${path}: expected an object`);
  const { role, text, events, attachments } = block;
  if (role !== "USER" && role !== "AI") throw new NotAnEntry(`${path}.role: expected USER or AI`);
  if (text !== undefined && text !== null && typeof text !== "string")
    throw new NotAnEntry(`${path}.text: expected a text`);
  if (events !== undefined && !(Array.isArray(events) && events.every(isObject)))
    throw new NotAnEntry(`${path}.events: expected a list of objects`);
  if (text === undefined && events === undefined && attachments === undefined)
    throw new NotAnEntry(`${path}: expected text, events or attachments`);
  const createdAtMs = Date.parse(String(entry["createdAt"]));
  // The text is stored once: in the events, or as the text.
  const emptied =
    events === undefined ? (typeof text === "string" ? { text: "" } : {}) : { events: [] };
  return {
    id,
    role,
    text: text ?? "",
    events: role === "AI" && Array.isArray(events) ? events : undefined,
    createdAtMs: Number.isFinite(createdAtMs) && createdAtMs >= 0 ? createdAtMs : undefined,
    original: { ...entry, ...("id" in entry && { id }), content: [{ ...block, ...emptied }] },
  };
}

/** The entries in a RUN_STARTED; empty for a run that was not imported. */
export function originalEntries(started: JsonObject): readonly JsonObject[] {
  const raw = started["rawEvent"];
  const entries = isObject(raw) ? raw[ENTRIES_MEMBER] : undefined;
  return objectsIn(entries);
}

/** The member of `rawEvent` with the entries. */
export const ENTRIES_MEMBER = "historyEntries";

/**
 * Members of `rawEvent` for values that AG-UI stores as text only, so that an export restores them: a
 * result's content is the JSON of a value; a run's error was this object.
 */
export const IS_JSON = { historyOutput: "json" };
const ERROR = "historyError";

export function rawErrorEvent(error: JsonObject): JsonObject {
  return { rawEvent: { [ERROR]: error } };
}

/** The value of a text that is marked as JSON; undefined: it was a text. */
export function valueOf(text: string, rawEvent: unknown): unknown {
  const isJson = isObject(rawEvent) && rawEvent["historyOutput"] === IS_JSON.historyOutput;
  return isJson ? exactJson(text) : undefined;
}

export function errorIn({ rawEvent }: JsonObject): JsonObject | undefined {
  const error = isObject(rawEvent) ? rawEvent[ERROR] : undefined;
  return isObject(error) ? error : undefined;
}

/** Undefined when the text is not JSON; numbers keep their spelling. */
export function exactJson(text: string): unknown {
  try {
    return parseExact(text);
  } catch {
    return undefined;
  }
}

/** The only block of an original entry. */
export function blockOf({ content }: JsonObject): JsonObject {
  const block: unknown = Array.isArray(content) ? content[0] : undefined;
  return isObject(block) ? block : {};
}
