/** The redaction of each text before any other code sees it; pure except for counting. */
import { readPayload } from "../agui/payload.ts";
import { applyEdits, type Edit, memberSpans, type Span } from "../agui/spans.ts";
import { compile } from "./automaton.ts";
import { KEY_KIND, type Keys, keysOf, withoutValues } from "./keys.ts";
import { type LineOptions, RedactionLine, type Release, type Texts } from "./line.ts";
import type { Secret } from "./patterns.ts";
import { type Found, maskPlain, maskSpelled, TextScan } from "./text-scan.ts";

export type { RedactionLine, Texts };

export interface RedactionOptions {
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
  line<T>(release: Release<T>, options: LineOptions): RedactionLine<T>;
}

export function createRedactor({ secrets, keys: names }: RedactionOptions, found: Found): Redactor {
  const automaton = compile(secrets);
  const scan = new TextScan(automaton, found);
  const keys: Keys | undefined = names.length > 0 ? keysOf(names) : undefined;
  const json = (text: string, besides?: Span): string => {
    const masked = maskJson(text, scan, besides);
    return keys === undefined ? masked : withoutValues(masked, keys, () => found(KEY_KIND));
  };
  return {
    text(text) {
      if (isJson(text)) return json(text);
      scan.restart();
      scan.readPlain(text);
      scan.end();
      return scan.masked.length === 0 ? text : maskPlain(text, scan.masked);
    },
    payload: (payload) => json(payload),
    besidesDelta(payload) {
      const delta = deltaOf(payload);
      return { payload: json(payload, delta), leavesDelta: delta !== undefined };
    },
    line: (release, options) => new RedactionLine(automaton, found, { release, ...options }),
  };
}

/** True for an object or a list: other JSON values contain no further strings. */
function isJson(text: string): boolean {
  const first = /^\s*([{[])/.exec(text)?.[1];
  if (first === "{") return readPayload(text).ok;
  return first === "[" && readPayload(`{"list":${text}}`).ok;
}

/** The span between its quotes. */
function deltaOf(payload: string): Span | undefined {
  // A key spelled with escapes is masked in place.
  if (!payload.includes("delta")) return undefined;
  const span = memberSpans(payload).find(({ key }) => key === "delta")?.valueSpan;
  if (span === undefined || payload.charAt(span.start) !== '"') return undefined;
  return { start: span.start + 1, end: span.end - 1 };
}

/**
 * Masks the strings of a JSON text, one after the other, with the keys. Each string is a text of
 * its own, except the part between a name and its value. Only characters of strings are changed. A
 * text that is not JSON may be garbled, and its JSON parser refuses it as before.
 *
 * `besides`: the body of a string that is left unchanged.
 */
function maskJson(text: string, scan: TextScan, besides?: Span): string {
  scan.restart();
  const edits: Edit[] = [];
  let between = 0;
  for (let quote = text.indexOf('"'); quote !== -1; quote = text.indexOf('"', between + 1)) {
    const start = quote + 1;
    for (; scan.isLive && between < start; between += 1) scan.readBetween(text.charCodeAt(between));
    if (start === besides?.start) {
      scan.end();
      between = besides.end;
      continue;
    }
    const first = scan.position;
    const end = scan.readSpelled(text, start);
    scan.endString();
    if (scan.masked.length > 0) {
      const spelled = text.slice(start, end);
      edits.push({ start, end, text: maskSpelled(spelled, scan.masked, first) });
      scan.forget(scan.position);
    }
    between = end;
  }
  scan.end();
  return edits.length === 0 ? text : applyEdits(text, edits);
}
