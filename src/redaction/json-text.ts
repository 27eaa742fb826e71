/**
 * Masks the strings of a JSON text, one after the other, with the keys. Each string is a text of
 * its own, except the part between a name and its value. Only characters of strings are changed. A
 * text that is not JSON may be garbled, and its JSON parser refuses it as before.
 */
import { applyEdits, type Edit } from "../agui/edits.ts";
import type { Span } from "../agui/spans.ts";
import { maskSpelled } from "./masking.ts";
import type { TextScan } from "./text-scan.ts";

/** `besides`: the body of a string that is left unchanged. */
export function maskJson(text: string, scan: TextScan, besides?: Span): string {
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
