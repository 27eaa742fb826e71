import { memberSpans, outline } from "../agui/spans.ts";

/**
 * The limit of members whose keys are checked one by one. Our bodies have two members, and each
 * check costs objects.
 */
const NAMED_MEMBERS_MAX = 64;

/**
 * Returns the first key that occurs twice in an object that JSON.parse has read from this text;
 * empty when there are too many members to find its name. JSON.parse takes the last value of a
 * repeated key. A proxy that checks the first value would let the last one pass unchecked.
 */
export function repeatedKey(text: string, object: object): string | undefined {
  const { commas } = outline(text);
  if (commas === 0 || Object.keys(object).length > commas) return undefined;
  if (commas >= NAMED_MEMBERS_MAX) return "";
  const seen = new Set<string>();
  return memberSpans(text).find(({ key }) => seen.size === seen.add(key).size)?.key;
}
