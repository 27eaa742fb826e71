/**
 * The input of a run that repeats the conversation under new ids. Some producers know no ids, and make
 * new ones for each run. A message of such an input is the message of the log with the same text, if the
 * input begins with what the log ends with:
 *
 *   log     u1 "hi"  a1 "hello"  u2 "ok"
 *   input   x1 "hi"  x2 "hello"  x3 "ok"  x4 "and?"     x1 to x3 are u1, a1 and u2; x4 is new
 *
 * Texts and calls are compared, and not messages: one message may have a text and a call, and in the log
 * they may be two. A user's text alone proves nothing, because users write "yes" more than once.
 */
import { isObject, type JsonObject, objectsIn, parseJson } from "../json.ts";

interface ConversationPiece {
  /** Undefined: the message has no id. */
  readonly id: string | undefined;
  readonly isFromAgent: boolean;
  readonly text: string;
}

/**
 * The ids of messages of the log by the new ids. `mayFollow`: a message that no run has taken, and
 * which the log may have behind the conversation that the input repeats.
 */
export function sameConversation(
  listed: readonly unknown[],
  log: readonly JsonObject[],
  mayFollow: (id: string) => boolean,
): ReadonlyMap<string, string> {
  const input = listed.filter(isObject);
  const inputPieces = input.flatMap(piecesOf);
  const logged = log.flatMap(piecesOf);
  const same = new Map<string, string>();
  const { count, end } = overlap(inputPieces, logged, mayFollow);
  if (inputPieces.slice(0, count).some(({ isFromAgent }) => isFromAgent)) {
    for (const [at, { id }] of inputPieces.slice(0, count).entries()) {
      const own = logged[end - count + at]?.id;
      if (id !== undefined && own !== undefined && !same.has(id)) same.set(id, own);
    }
  }
  const others = new Map(log.flatMap(otherOf));
  for (const [text, id] of input.flatMap(otherOf)) {
    const own = others.get(text);
    if (own !== undefined) same.set(id, own);
  }
  return same;
}

/** The longest run of pieces that ends the log and begins the input (Knuth, Morris, Pratt). */
function overlap(
  inputPieces: readonly ConversationPiece[],
  logged: readonly ConversationPiece[],
  mayFollow: (id: string) => boolean,
): { readonly count: number; readonly end: number } {
  const borders: number[] = [];
  const next = (state: number, text: string): number => {
    let at = state === inputPieces.length ? (borders[state - 1] ?? 0) : state;
    while (at > 0 && inputPieces[at]?.text !== text) at = borders[at - 1] ?? 0;
    return inputPieces[at]?.text === text ? at + 1 : 0;
  };
  for (const [at, { text }] of inputPieces.entries())
    borders.push(at === 0 ? 0 : next(borders[at - 1] ?? 0, text));
  const last = logged.findLastIndex(({ id }) => id === undefined || !mayFollow(id));
  let best = { count: 0, end: 0 };
  let state = 0;
  for (const [at, { text }] of logged.entries()) {
    state = next(state, text);
    if (at >= last && state > best.count) best = { count: state, end: at + 1 };
  }
  return best;
}

function piecesOf(message: JsonObject): readonly ConversationPiece[] {
  const { id: own, role, content, toolCalls } = message;
  const id = typeof own === "string" ? own : undefined;
  const text = contentText(content);
  if (role === "user") return [{ id, isFromAgent: false, text: `user ${text}` }];
  if (role === "tool") return [{ id, isFromAgent: true, text: `tool ${text}` }];
  if (role !== "assistant") return [];
  const textPieces = text === "" ? [] : [{ id, isFromAgent: true, text: `assistant ${text}` }];
  const calls = objectsIn(toolCalls);
  return [...textPieces, ...calls.map((call) => ({ id, isFromAgent: true, text: callText(call) }))];
}

function callText({ function: called }: JsonObject): string {
  const { name, arguments: args } = isObject(called) ? called : {};
  const parsed = typeof args === "string" ? (parseJson(args) ?? args) : args;
  return `call ${String(name)} ${JSON.stringify(parsed)}`;
}

/** Messages that producers put where they like, such as a system prompt; activities are not repeated. */
function otherOf({ id, role, content }: JsonObject): readonly (readonly [string, string])[] {
  const isOther = role === "system" || role === "developer" || role === "reasoning";
  if (!isOther || typeof id !== "string") return [];
  return [[`${role} ${contentText(content)}`, id]];
}

/** A text, also as the only part of a list. */
function contentText(content: unknown): string {
  if (typeof content === "string") return content;
  if (content === undefined || content === null) return "";
  const [part, other] = Array.isArray(content) ? (content as readonly unknown[]) : [];
  const isText = other === undefined && isObject(part) && typeof part["text"] === "string";
  return isText ? String(part["text"]) : JSON.stringify(content);
}
