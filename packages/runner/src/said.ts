/** The text of a message of a person, in any of the forms that a payload has. */
import { isObject, type JsonObject, parseJson } from "@session-ledger/agui/json";
import { newAtEnd, withIds } from "@session-ledger/agui/message-types";
import { textsOf } from "./parts.ts";

interface Message {
  readonly payload: string;
}

/** A message of a person, or a result of a tool of the client. */
export interface NewMessage extends JsonObject {
  readonly id: string;
  readonly role: string;
}

/**
 * The messages that a row of a person stands for, under their own ids: of a RunAgentInput those of
 * people and tools at its end. A message without an id has that of its row. Never throws.
 */
export function newMessagesOf(row: Message & { readonly id: string }): readonly NewMessage[] {
  const listed = objectIn(row.payload)?.["messages"];
  if (!Array.isArray(listed)) return [{ id: row.id, role: "user", content: textOf(row) }];
  return withIds(row.id, newAtEnd(listed)).map((message) => {
    const { id, role } = message;
    return { ...message, id: String(id), role: String(role) };
  });
}

/**
 * For people to read. A typed message of an AG-UI client is a RunAgentInput: its text is that of the
 * new messages, one a line, also of results of the client's tools, without files; `newMessagesOf` has all. `{"text": …}` is the text, and so is any other
 * payload. Never throws.
 */
export function textOf({ payload }: Message): string {
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
