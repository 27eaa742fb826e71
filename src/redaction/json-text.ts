/**
 * The strings of a JSON text, one after the other, its keys too: each is a text of its own, but for
 * what is between a name and its value. Nothing but the characters of strings is touched. Text that
 * is no JSON comes through with no harm but to itself; who reads it as JSON refuses it as before.
 */
import { applyEdits, type Edit } from "../agui/edits.ts";
import type { Span } from "../agui/spans.ts";
import { maskSpelled } from "./masking.ts";
import type { TextScan } from "./text-scan.ts";

/** `besides`: the body of a string that is left as it is. */
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
