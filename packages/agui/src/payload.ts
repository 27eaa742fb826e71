import type { Violation } from "@session-ledger/base/errors";
import { isObject, type JsonObject, pathName } from "./json.ts";
import { memberSpans, outline } from "./spans.ts";

/** The nesting limit of objects and arrays; deeper nesting is a mistake or an attack. */
export const JSON_DEPTH_MAX = 64;

/** As above, for JSON that is printed again: JSON.stringify has no stack for some thousands. */
export const VALUE_DEPTH_MAX = 512;

/**
 * The largest payload by default. A gRPC client takes 4 MiB; all but one payload has
 * MESSAGE_ROOM_BYTES: six texts of 1,024 bytes, ids, and the start of the run in the answer to a
 * claim.
 */
export const PAYLOAD_BYTES_MAX = 4_170_000;
export const MESSAGE_ROOM_BYTES = 4_194_304 - PAYLOAD_BYTES_MAX;

export interface Payload {
  readonly text: string;
  readonly value: JsonObject;
}

type ReadPayload =
  | { readonly ok: true; readonly payload: Payload }
  | { readonly ok: false; readonly violation: Violation };

/** A repeated key at the top level is refused: two readers could see two different events. */
export function readPayload(text: string, field = "payload"): ReadPayload {
  // Checked first: JSON.parse needs 50 ms for a megabyte of brackets, and this walk 5 ms.
  const { depth, commas } = outline(text);
  if (depth > JSON_DEPTH_MAX)
    return refused(field, `${field} must be at most ${JSON_DEPTH_MAX} levels deep`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // The parser's message quotes the payload, and payloads stay out of messages and logs.
    return refused(field, `${field} must be a JSON object, but is not JSON`);
  }
  if (!isObject(value)) return refused(field, `${field} must be a JSON object`);
  const keys = Object.keys(value).length;
  // JSON.parse keeps one of two equal keys, so more members than keys means a repeated key.
  if (keys > 0 && commas + 1 !== keys) {
    const path = pathName([field, repeatedKey(text)]);
    return refused(path, `${path} must occur once, but occurs twice`);
  }
  return { ok: true, payload: { text, value } };
}

function refused(field: string, description: string): ReadPayload {
  return { ok: false, violation: { field, description } };
}

function repeatedKey(text: string): string {
  const seen = new Set<string>();
  for (const { key } of memberSpans(text)) {
    if (seen.has(key)) return key;
    seen.add(key);
  }
  return "";
}
