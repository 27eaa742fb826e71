/**
 * Removes the values of members of JSON objects with certain names, at any depth. Each value
 * becomes `"***"`, whatever its kind, because its length and kind may be secret too. The member
 * stays, because a state without it cannot take the next patch of it. A null stays, because it
 * contains no secret.
 *
 * A patch has the name in its path: the value of `{"op":"add","path":"/user/password","value":…}`
 * is removed as well. Numbers keep their spelling, and keys their order: values are cut out of the
 * text in one pass, which holds one entry per open object.
 */
import { applyEdits, type Edit, endOfString, readKey, type Span } from "../agui/spans.ts";

export const KEY_KIND = "key";
const IN_ITS_PLACE = '"***"';

/** Names that were normalised before, so that no name is normalised twice in a row. */
const MET_MAX = 1_024;

export interface Keys {
  has(name: string): boolean;
}

/** `apiKey`, `api_key` and `API-Key` are one name. */
export function plainName(name: string): string {
  return name.toLowerCase().replaceAll(/[_-]/g, "");
}

export function keysOf(names: readonly string[]): Keys {
  const wanted = new Set(names.map(plainName));
  const met = new Map<string, boolean>();
  return {
    has(name) {
      const known = met.get(name);
      if (known !== undefined) return known;
      if (met.size === MET_MAX) met.clear();
      const isWanted = wanted.has(plainName(name));
      met.set(name, isWanted);
      return isWanted;
    },
  };
}

/** An object or a list that the walk is in. */
interface Open {
  readonly isObject: boolean;
  expectsKey: boolean;
  /** The key of the current member. */
  key: string;
  valueStart: number;
  /** True for an operation of a patch. */
  isOperation: boolean;
  /** True when the path of the operation has one of the names. */
  isAtName: boolean;
  value: Span | undefined;
}

/** Text that is not JSON may lose any part. */
export function withoutValues(text: string, keys: Keys, found: () => void): string {
  const edits: Edit[] = [];
  const open: Open[] = [];
  const cut = ({ start, end }: Span): void => {
    if (text.slice(start, end) === "null") return;
    while ((edits.at(-1)?.start ?? -1) >= start) edits.pop();
    edits.push({ start, end, text: IN_ITS_PLACE });
  };
  const valueBegins = (at: number): void => {
    const top = open.at(-1);
    if (top !== undefined) top.valueStart = at;
  };
  const valueEnds = (end: number): void => {
    const top = open.at(-1);
    if (top?.isObject !== true) return;
    const span = { start: top.valueStart, end };
    if (top.key === "op") top.isOperation = true;
    else if (top.key === "value") top.value = span;
    if (keys.has(top.key)) cut(span);
  };
  for (let at = 0; at < text.length; ) {
    const top = open.at(-1);
    const character = text.charAt(at);
    if (character === "{" || character === "[") {
      valueBegins(at);
      open.push(opened(character === "{"));
      at += 1;
    } else if (character === "}" || character === "]") {
      open.pop();
      at += 1;
      if (top?.isOperation === true && top.isAtName && top.value !== undefined) cut(top.value);
      valueEnds(at);
    } else if (character === '"') {
      const span = { start: at, end: endOfString(text, at) };
      at = span.end;
      if (top?.expectsKey === true) {
        top.key = keyAt(text, span);
        top.expectsKey = false;
        continue;
      }
      valueBegins(span.start);
      if (top?.key === "path") top.isAtName ||= isNamedIn(keyAt(text, span), keys);
      valueEnds(at);
    } else if (character === "," || character === ":" || character <= " ") {
      if (character === "," && top !== undefined) top.expectsKey = top.isObject;
      at += 1;
    } else {
      valueBegins(at);
      do at += 1;
      while (at < text.length && !/[\s,:{}[\]"]/.test(text.charAt(at)));
      valueEnds(at);
    }
  }
  for (const _ of edits) found();
  return edits.length === 0 ? text : applyEdits(text, edits);
}

function opened(isObject: boolean): Open {
  const start = { key: "", valueStart: 0, isOperation: false, isAtName: false, value: undefined };
  return { isObject, expectsKey: isObject, ...start };
}

/** Whether one of the names in a JSON Pointer is one of the keys. */
function isNamedIn(pointer: string, keys: Keys): boolean {
  return pointer
    .split("/")
    .some((part) => keys.has(part.replaceAll("~1", "/").replaceAll("~0", "~")));
}

function keyAt(text: string, span: Span): string {
  try {
    return readKey(text, span);
  } catch {
    return ""; // The text is not JSON: no code will parse it.
  }
}
