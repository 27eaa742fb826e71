/** The text of a user message, in any of the forms of a payload. */
import { isObject, type JsonObject, parseJson } from "@session-ledger/agui/json";
import { newAtEnd, withIds } from "@session-ledger/agui/message-types";
import { textsOf } from "./parts.ts";

interface PayloadRow {
  readonly payload: string;
}

/** A user message, or a result of a client's tool. */
export interface NewMessage extends JsonObject {
  readonly id: string;
  readonly role: string;
}

/**
 * The messages of a user row, under their own ids: of a RunAgentInput the user and tool messages at
 * its end. A message without an id has that of its row. Never throws.
 */
export function newMessagesOf(row: PayloadRow & { readonly id: string }): readonly NewMessage[] {
  const listed = objectIn(row.payload)?.["messages"];
  if (!Array.isArray(listed)) return [{ id: row.id, role: "user", content: textOf(row) }];
  return withIds(row.id, newAtEnd(listed)).map((message) => {
    const { id, role } = message;
    return { ...message, id: String(id), role: String(role) };
  });
}

/**
 * The text for display. A typed message of an AG-UI client is a RunAgentInput: its text is that of the
 * new messages, one a line, also of results of the client's tools, without files; `newMessagesOf` has all. `{"text": …}` is the text, and so is any other
 * payload. Never throws.
 */
export function textOf({ payload }: PayloadRow): string {
  const value = objectIn(payload);
  if (Array.isArray(value?.["messages"])) {
    const contents = value["messages"].filter(isObject).map(({ content }) => content);
    return contents.flatMap(textsOf).join("\n");
  }
  return typeof value?.["text"] === "string" ? value["text"] : payload;
}

/** Undefined: the payload is no JSON object. */
export function objectIn(text: string): JsonObject | undefined {
  if (!/^\s*\{/.test(text)) return undefined; // Most payloads are text.
  const value = parseJson(text);
  return isObject(value) ? value : undefined;
}
