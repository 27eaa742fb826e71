import { memberSpans, outline } from "../agui/spans.ts";

/** Of members whose keys are looked at one by one; a body of ours has two, and each costs objects. */
const NAMED_MEMBERS_MAX = 64;

/**
 * The first key that is twice in an object as JSON.parse has read it from this text; empty when there
 * are too many to name it. JSON.parse takes the last of them; a proxy that looks at the first has then
 * let another value pass than came.
 */
export function repeatedKey(text: string, object: object): string | undefined {
  const { commas } = outline(text);
  if (commas === 0 || Object.keys(object).length > commas) return undefined;
  if (commas >= NAMED_MEMBERS_MAX) return "";
  const seen = new Set<string>();
  return memberSpans(text).find(({ key }) => seen.size === seen.add(key).size)?.key;
}
