/** The redaction of each text before any other code sees it; pure except for counting. */
import { readPayload } from "../payload.ts";
import {
  applyEdits,
  type Edit,
  endOfString,
  memberSpans,
  readKey,
  type TextSpan,
} from "../spans.ts";
import { BUILT_IN, oneOf, type Pattern, type Secret, TAIL_CHARS } from "./patterns.ts";
import {
  charactersOf,
  kindsOf,
  maskPlain,
  maskSpelled,
  type OnFound,
  SecretSearch,
} from "./search.ts";
import { StreamingRedactor } from "./streaming-redactor.ts";

interface RedactorOptions {
  readonly secrets: readonly Secret[];
  /** Names of members of JSON objects. */
  readonly keys: readonly string[];
}

/** A payload, and whether the text of its `delta` was left unchanged. */
interface Besides {
  readonly payload: string;
  readonly leavesDelta: boolean;
}

export interface Redactor {
  /** Any text; JSON stays JSON. */
  readonly text: (text: string) => string;
  /** The payload of an event, which is JSON or will be refused. */
  readonly payload: (payload: string) => string;
  /** The same without a `delta` that is a string, which may be a piece of a longer text. */
  readonly besidesDelta: (payload: string) => Besides;
  /** For texts that arrive in pieces. */
  readonly streaming: () => StreamingRedactor;
  readonly search: SecretSearch;
}

export function createRedactor(
  { secrets, keys: names }: RedactorOptions,
  onFound: OnFound,
): Redactor {
  const search = new SecretSearch(secrets);
  const keys: SecretKeys | undefined = names.length > 0 ? keysOf(names) : undefined;
  const json = (text: string, besides?: TextSpan): string => {
    const masked = maskJson(text, { search, onFound, besides });
    return keys === undefined ? masked : withoutValues(masked, keys, () => onFound(KEY_KIND));
  };
  return {
    text(text) {
      if (isJson(text)) return json(text);
      const { secrets: found } = search.search(text);
      if (found.length === 0) return text;
      for (const kind of kindsOf(found)) onFound(kind);
      return maskPlain(text, found);
    },
    payload: (payload) => json(payload),
    besidesDelta(payload) {
      const delta = deltaOf(payload);
      return { payload: json(payload, delta), leavesDelta: delta !== undefined };
    },
    streaming: () => new StreamingRedactor(search, onFound),
    search,
  };
}

/** True for an object or a list: other JSON values contain no further strings. */
function isJson(text: string): boolean {
  const first = /^\s*([{[])/.exec(text)?.[1];
  if (first === "{") return readPayload(text).ok;
  return first === "[" && readPayload(`{"list":${text}}`).ok;
}

/** The span between its quotes. */
function deltaOf(payload: string): TextSpan | undefined {
  // A key spelled with escapes is masked in place.
  if (!payload.includes("delta")) return undefined;
  const span = memberSpans(payload).find(({ key }) => key === "delta")?.valueSpan;
  if (span === undefined || payload.charAt(span.start) !== '"') return undefined;
  return { start: span.start + 1, end: span.end - 1 };
}

/**
 * Masks the strings of a JSON text with the keys; a name may mark its value as secret. A text that
 * is not JSON may be garbled. `besides`: the body of a string that is left unchanged.
 */
function maskJson(
  text: string,
  {
    search,
    onFound,
    besides,
  }: {
    readonly search: SecretSearch;
    readonly onFound: OnFound;
    readonly besides?: TextSpan | undefined;
  },
): string {
  if (!search.mayFind(charactersOf(text))) return text;
  const edits: Edit[] = [];
  let before = { end: 0, text: "" };
  for (let quote = text.indexOf('"'); quote !== -1; quote = text.indexOf('"', before.end)) {
    const start = quote + 1;
    const end = endOfString(text, quote);
    const body = { start, end: text.charAt(end - 1) === '"' ? Math.max(start, end - 1) : end };
    if (start === besides?.start) {
      before = { end, text: "" };
      continue;
    }
    const spelled = text.slice(body.start, body.end);
    const characters = charactersOf(spelled);
    const between = text.slice(before.end - 1, start);
    const name = between.length > BETWEEN_CHARS_MAX ? "" : before.text + between;
    const found = search.search(name + characters, name.length).secrets.map((one) => ({
      ...one,
      from: one.from - name.length,
      to: one.to - name.length,
    }));
    if (found.length > 0) {
      for (const kind of kindsOf(found)) onFound(kind);
      edits.push({ ...body, text: maskSpelled(spelled, found) });
    }
    before = { end, text: characters.slice(-TAIL_CHARS) };
  }
  return edits.length === 0 ? text : applyEdits(text, edits);
}

/** Between a name and its value: quotes, a colon, white space. */
const BETWEEN_CHARS_MAX = 16;

const PATTERNS_MAX = 100;
const PREFIX_UNITS = { min: 2, max: 64 };
const LEAST = { min: 4, max: 1_024 };
const KEYS_MAX = 100;

interface RedactionSettings {
  readonly redaction: "off" | "on";
  readonly redactionPatterns: string | undefined;
  readonly redactionKeys: string | undefined;
}

/** Parses REDACTION_PATTERNS and REDACTION_KEYS. Undefined: nothing is redacted. */
export function redactionOptions(settings: RedactionSettings): RedactorOptions | undefined {
  if (settings.redaction === "off") return undefined;
  const own = (settings.redactionPatterns ?? "").split(/\s+/).filter((text) => text !== "");
  const secrets = own.map(readPattern).filter((read) => typeof read !== "string");
  return { secrets: [...BUILT_IN, ...secrets], keys: namesIn(settings.redactionKeys) };
}

/** Empty: the settings are valid. `protocolNames`: passed in, so a runner loads no schemas. */
export function redactionProblems(
  settings: RedactionSettings,
  protocolNames: () => ReadonlySet<string>,
): readonly string[] {
  const { redaction, redactionPatterns, redactionKeys } = settings;
  const isAsked = redactionPatterns !== undefined || redactionKeys !== undefined;
  // An operator who lists secrets and sees no error would believe that they are masked.
  const alone = redaction === "off" && isAsked;
  return [
    ...(alone ? ["REDACTION: expected on, because what to redact is set; got off"] : []),
    ...patternProblems(redactionPatterns),
    ...keyProblems(redactionKeys, protocolNames),
  ];
}

function patternProblems(text = ""): readonly string[] {
  const parts = text.split(/\s+/).filter((part) => part !== "");
  if (parts.length > PATTERNS_MAX)
    return [`REDACTION_PATTERNS: expected at most ${PATTERNS_MAX} patterns; got ${parts.length}`];
  return parts.flatMap((part) => {
    const read = readPattern(part);
    return typeof read === "string"
      ? [`REDACTION_PATTERNS: expected ${read}; got ${JSON.stringify(part)}`]
      : [];
  });
}

/** `kind=prefix[characters]{least}`; for another form the result is the expected form. */
function readPattern(text: string): Pattern | string {
  const equals = text.indexOf("=");
  const kind = text.slice(0, Math.max(0, equals));
  if (!/^[a-z][a-z0-9_]{0,31}$/.test(kind))
    return "kind=prefix[characters]{least}, with a kind of small letters, digits and _";
  const form = /^(.*?)\[((?:\\.|[^\]\\])+)\]\{(\d{1,6})\}$/s.exec(text.slice(equals + 1));
  const [, prefix = "", characters = "", number = ""] = form ?? [];
  if (form === null)
    return "kind=prefix[characters]{least}, with [characters] and {least} at the end";
  if (
    prefix.length < PREFIX_UNITS.min ||
    prefix.length > PREFIX_UNITS.max ||
    !/^[!-~]+$/.test(prefix)
  )
    return `a prefix of ${PREFIX_UNITS.min} to ${PREFIX_UNITS.max} printable ASCII characters`;
  if (/["\\]/.test(prefix)) return 'a prefix without " and \\, which JSON spells in its own way';
  const has = classOf(characters);
  if (has === undefined) return "ASCII characters and ranges like A-Z between the brackets";
  if (FORBIDDEN.some((character) => has.test(character)))
    return 'a class without white space, ", \\ and *: it would go on into what is no secret';
  const least = Number(number);
  if (least < LEAST.min || least > LEAST.max)
    return `a least length from ${LEAST.min} to ${LEAST.max}`;
  return { kind, begin: oneOf(prefix), characters: classText(characters), least };
}

/** White space, and characters that JSON or a mask spells in its own way. */
const FORBIDDEN = ['"', "\\", "*", " "];

/** Undefined when it is no class of ASCII characters. */
function classOf(characters: string): RegExp | undefined {
  if (!/^[!-~]+$/.test(characters) || /\\[A-Za-z0-9]/.test(characters)) return undefined;
  try {
    return new RegExp(`[${classText(characters)}]`);
  } catch {
    return undefined; // Such as [z-a].
  }
}

/** A `^` has no separate meaning in a pattern. */
function classText(characters: string): string {
  return characters.replace(/^\^/, "\\^");
}

function keyProblems(
  text: string | undefined,
  protocolNames: () => ReadonlySet<string>,
): readonly string[] {
  const names = namesIn(text);
  if (names.length > KEYS_MAX)
    return [`REDACTION_KEYS: expected at most ${KEYS_MAX} names; got ${names.length}`];
  if (names.length === 0) return [];
  const own = new Set([...protocolNames(), ...PATCH_NAMES].map(plainName));
  return names
    .filter((name) => own.has(plainName(name)) || plainName(name) === "")
    .map(
      (name) =>
        "REDACTION_KEYS: expected no name of AG-UI's own fields, " +
        `because events must stay events; got ${JSON.stringify(name)}`,
    );
}

/** The names of JSON Patch, and of the grouped form. */
const PATCH_NAMES = ["op", "path", "from", "value", "accumulated_content", "fragment_count"].concat(
  "end_event",
);

function namesIn(text = ""): readonly string[] {
  return text
    .split(",")
    .map((name) => name.trim())
    .filter((name) => name !== "");
}

/**
 * Removes the values of members with certain names, at any depth. Each becomes `"***"`, because its
 * length and kind may be secret too. The member stays, because a state without it cannot take its
 * next patch. A null stays.
 *
 * A patch has the name in its path: the value of `{"op":"add","path":"/user/password","value":…}`
 * is removed too. Values are cut out of the text in one pass, so numbers keep their spelling and
 * keys their order.
 */

const KEY_KIND = "key";
const IN_ITS_PLACE = '"***"';

/** Names that were normalised before, so that no name is normalised twice in a row. */
const MET_MAX = 1_024;

interface SecretKeys {
  has(name: string): boolean;
}

/** `apiKey`, `api_key` and `API-Key` are one name. */
function plainName(name: string): string {
  return name.toLowerCase().replaceAll(/[_-]/g, "");
}

function keysOf(names: readonly string[]): SecretKeys {
  const wanted = new Set(names.map(plainName));
  const met = new Map<string, boolean>();
  return {
    has(name) {
      const included = met.get(name);
      if (included !== undefined) return included;
      if (met.size === MET_MAX) met.clear();
      const isWanted = wanted.has(plainName(name));
      met.set(name, isWanted);
      return isWanted;
    },
  };
}

/** An object or a list that the walk is in. */
interface JsonContainer {
  readonly isObject: boolean;
  expectsKey: boolean;
  /** The key of the current member. */
  key: string;
  valueStart: number;
  /** True for an operation of a patch. */
  isOperation: boolean;
  /** True when the path of the operation has one of the names. */
  isAtName: boolean;
  value: TextSpan | undefined;
}

/** Text that is not JSON may lose any part. */
function withoutValues(text: string, keys: SecretKeys, found: () => void): string {
  const edits: Edit[] = [];
  const open: JsonContainer[] = [];
  const cut = ({ start, end }: TextSpan): void => {
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

function opened(isObject: boolean): JsonContainer {
  const start = { key: "", valueStart: 0, isOperation: false, isAtName: false, value: undefined };
  return { isObject, expectsKey: isObject, ...start };
}

/** Whether one of the names in a JSON Pointer is one of the keys. */
function isNamedIn(pointer: string, keys: SecretKeys): boolean {
  return pointer
    .split("/")
    .some((part) => keys.has(part.replaceAll("~1", "/").replaceAll("~0", "~")));
}

function keyAt(text: string, span: TextSpan): string {
  try {
    return readKey(text, span);
  } catch {
    return ""; // The text is not JSON: no code will parse it.
  }
}
