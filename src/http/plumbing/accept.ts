const EVENT_STREAM = "text/event-stream";
const JSON_TYPES = ["application/json", "application/*", "*/*"];

/**
 * Whether a resource with a JSON form is answered as a stream of events: when the header names the
 * stream and does not name JSON with a higher weight. A `*` is no request for an answer without an
 * end, and at the same weight a name wins over it.
 */
export function wantsEventStream(accept: string | undefined): boolean {
  if (accept === undefined) return false;
  const weights = weightsOf(accept);
  const stream = weights.get(EVENT_STREAM) ?? 0;
  if (stream === 0) return false;
  const named = JSON_TYPES.find((type) => weights.has(type));
  if (named === undefined) return true;
  const json = weights.get(named) ?? 0;
  return named === "application/json" ? stream > json : stream >= json;
}

/**
 * RFC 9110, section 12.5.1: media ranges with weights from 0 to 1. A part that cannot be parsed
 * weighs nothing.
 */
function weightsOf(accept: string): ReadonlyMap<string, number> {
  const weights = new Map<string, number>();
  for (const range of accept.split(",")) {
    const [type = "", ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
    const q = parameters.find((parameter) => parameter.startsWith("q="));
    const weight = q === undefined ? 1 : weightOf(q.slice(2));
    weights.set(type, Math.max(weights.get(type) ?? 0, weight));
  }
  return weights;
}

function weightOf(text: string): number {
  return /^(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)$/.test(text) ? Number(text) : 0;
}
