/** The query string, parsed strictly: a mistyped parameter must not silently become another one. */
import { invalidArgument, type ServiceError } from "../../base/errors.ts";

/** A repeated parameter is an array. */
export type Query = Record<string, string | string[]>;

/** Parameters of one request; no route has a tenth of them, but `event_type` may repeat. */
const PARAMETERS_MAX = 256;

export function parseQuery(text: string): Query {
  const query: Query = {};
  // A parameter named like a property of every object must not find that property.
  Object.setPrototypeOf(query, null);
  for (const [name, value] of pairsOf(text)) {
    const known = query[name];
    if (known === undefined) query[name] = value;
    else if (Array.isArray(known)) known.push(value);
    else query[name] = [known, value];
  }
  return query;
}

/** The parser cannot refuse, so a badly encoded query is refused before the route. */
export function checkQuery(url: string): ServiceError | undefined {
  const start = url.indexOf("?");
  if (start < 0) return undefined;
  const parts = url.slice(start + 1).split("&");
  if (parts.length > PARAMETERS_MAX) {
    const description = `the query must have at most ${PARAMETERS_MAX} parameters`;
    return invalidArgument([{ field: "", description }]);
  }
  const broken = parts.find((part) => decoded(part) === undefined);
  if (broken === undefined) return undefined;
  const field = broken.split("=", 1)[0] ?? "";
  return invalidArgument([{ field, description: `${field} is not URL-encoded UTF-8` }]);
}

function pairsOf(text: string): readonly (readonly [string, string])[] {
  return text
    .split("&", PARAMETERS_MAX)
    .filter((part) => part !== "")
    .map((part) => {
      const at = part.indexOf("=");
      const [name, value] = at < 0 ? [part, ""] : [part.slice(0, at), part.slice(at + 1)];
      return [decoded(name) ?? name, decoded(value) ?? value];
    });
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    return undefined;
  }
}
