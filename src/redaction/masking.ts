/** Puts a `*` in the place of each unit of the ranges, which are in order. */
import { readEscape } from "./json-units.ts";
import type { Range } from "./text-scan.ts";

const BACKSLASH = 0x5c;

export function maskPlain(text: string, ranges: readonly Range[]): string {
  let result = "";
  let copied = 0;
  for (const { from, to } of ranges) {
    result += text.slice(copied, from) + "*".repeat(to - from);
    copied = to;
  }
  return result + text.slice(copied);
}

/** For the body of a JSON string, in its spelling; its first unit has the number `first`. */
export function maskSpelled(spelled: string, ranges: readonly Range[], first: number): string {
  let result = "";
  let copied = 0;
  let unit = first;
  let range = 0;
  for (let at = 0; at < spelled.length; unit += 1) {
    const isEscape = spelled.charCodeAt(at) === BACKSLASH;
    const end = at + (isEscape ? readEscape(spelled, at).length : 1);
    while ((ranges[range]?.to ?? Number.POSITIVE_INFINITY) <= unit) range += 1;
    if ((ranges[range]?.from ?? Number.POSITIVE_INFINITY) <= unit) {
      result += `${spelled.slice(copied, at)}*`;
      copied = end;
    }
    at = end;
  }
  return result + spelled.slice(copied);
}
