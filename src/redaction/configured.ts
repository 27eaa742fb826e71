/** Parses REDACTION_PATTERNS and REDACTION_KEYS, and reports their errors, part by part. */
import { protocolNames } from "../agui/fields.ts";
import { charClassOf, isIn } from "./automaton.ts";
import { plainName } from "./keys.ts";
import { BUILT_IN, type Secret } from "./patterns.ts";
import type { RedactionOptions } from "./redactor.ts";

const PATTERNS_MAX = 100;
const PREFIX_UNITS = { min: 2, max: 64 };
const LEAST = { min: 4, max: 1_024 };
const KEYS_MAX = 100;

interface RedactionSettings {
  readonly redaction: "off" | "on";
  readonly redactionPatterns: string | undefined;
  readonly redactionKeys: string | undefined;
}

/** Undefined: nothing is redacted. */
export function redactionOptions(settings: RedactionSettings): RedactionOptions | undefined {
  if (settings.redaction === "off") return undefined;
  const own = (settings.redactionPatterns ?? "").split(/\s+/).filter((text) => text !== "");
  const secrets = own.map(readPattern).filter((read) => typeof read !== "string");
  return { secrets: [...BUILT_IN, ...secrets], keys: namesIn(settings.redactionKeys) };
}

/** Empty when the settings are valid. */
export function redactionProblems(settings: RedactionSettings): readonly string[] {
  const { redaction, redactionPatterns, redactionKeys } = settings;
  const isAsked = redactionPatterns !== undefined || redactionKeys !== undefined;
  // An operator who lists secrets and sees no error would believe that they are masked.
  const alone = redaction === "off" && isAsked;
  return [
    ...(alone ? ["REDACTION: expected on, because what to redact is set; got off"] : []),
    ...patternProblems(redactionPatterns),
    ...keyProblems(redactionKeys),
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
function readPattern(text: string): Secret | string {
  const equals = text.indexOf("=");
  const kind = text.slice(0, Math.max(0, equals));
  if (!/^[a-z][a-z0-9_]{0,31}$/.test(kind))
    return "kind=prefix[characters]{least}, with a kind of small letters, digits and _";
  const form = /^(.*?)\[((?:\\.|[^\]\\])+)\]\{(\d{1,6})\}$/s.exec(text.slice(equals + 1));
  const [, prefix = "", characters = "", number = ""] = form ?? [];
  if (form === null)
    return "kind=prefix[characters]{least}, with [characters] and {least} at the end";
  if (prefix.length < PREFIX_UNITS.min || prefix.length > PREFIX_UNITS.max || !isAscii(prefix))
    return `a prefix of ${PREFIX_UNITS.min} to ${PREFIX_UNITS.max} printable ASCII characters`;
  if (/["\\]/.test(prefix)) return 'a prefix without " and \\, which JSON spells in its own way';
  const has = charClassOf(characters);
  if (has === undefined) return "ASCII characters and ranges like A-Z between the brackets";
  if (
    `"\\* `.split("").some((character) => isIn(has, character.charCodeAt(0))) ||
    has.indexOf(1) < 0x20
  )
    return 'a class without white space, ", \\ and *: it would go on into what is no secret';
  const least = Number(number);
  if (least < LEAST.min || least > LEAST.max)
    return `a least length from ${LEAST.min} to ${LEAST.max}`;
  return { kind, prefixes: [prefix], parts: [{ characters, least }] };
}

function isAscii(text: string): boolean {
  return /^[!-~]+$/.test(text);
}

function keyProblems(text: string | undefined): readonly string[] {
  const names = namesIn(text);
  if (names.length > KEYS_MAX)
    return [`REDACTION_KEYS: expected at most ${KEYS_MAX} names; got ${names.length}`];
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
