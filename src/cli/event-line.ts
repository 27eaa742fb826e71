import { createHash } from "node:crypto";
import { isBlank, LINE_BYTES_MAX } from "../runner/json-lines.ts";
import { decodeLine, type Line } from "../runner/lines.ts";

export type EventLine =
  | { readonly kind: "event"; readonly eventType: string; readonly payload: string }
  | { readonly kind: "empty" }
  /** The line is not an event; the service never sees it. */
  | { readonly kind: "refused"; readonly reason: string; readonly message: string };

/**
 * Classifies a line of input. The payload is the exact bytes of the line: nothing is parsed and
 * printed again.
 */
export function eventLine(line: Line): EventLine {
  if (line.bytes === undefined) {
    return refused("LINE_TOO_LONG", `the line is longer than ${LINE_BYTES_MAX} bytes`);
  }
  const payload = decodeLine(line);
  if (payload === undefined) return refused("NOT_UTF8", "the line is not UTF-8");
  if (isBlank(payload)) return { kind: "empty" };
  const eventType = typeOf(payload);
  if (eventType === undefined) return refused("NOT_JSON", "the line is not a JSON object");
  if (eventType === "") return refused("NO_TYPE", "the event has no `type`");
  return { kind: "event", eventType, payload };
}

/**
 * One key per line, made from that line and all lines before it. So the same input sent again, or
 * the same input with additional lines, is recognised line by line up to its earlier end. Two
 * inputs that only share a line (every run may have the same STEP_FINISHED on its seventh line) do
 * not share its key, unless all lines before it are equal too.
 */
export class LineKeys {
  readonly #prefix: string | undefined;
  readonly #seen = createHash("sha256");

  /** With a prefix, a key is the prefix and the line's number, for any content. */
  constructor(prefix: string | undefined) {
    this.#prefix = prefix;
  }

  next({ number, bytes }: Line): string {
    if (this.#prefix !== undefined) return `${this.#prefix}:${number}`;
    this.#seen.update(bytes ?? "").update("\n");
    const digest = this.#seen.copy().digest("hex").slice(0, DIGEST_HEX);
    return `cli:${number}:${digest}`;
  }
}

/** 128 bits: enough that two inputs of one session never collide by chance. */
const DIGEST_HEX = 32;

/** Undefined when the text is not a JSON object, empty when the object has no type. */
function typeOf(payload: string): string | undefined {
  try {
    const parsed: unknown = JSON.parse(payload);
    if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) return undefined;
    return "type" in parsed && typeof parsed.type === "string" ? parsed.type : "";
  } catch {
    return undefined;
  }
}

function refused(reason: string, message: string): EventLine {
  return { kind: "refused", reason, message };
}
