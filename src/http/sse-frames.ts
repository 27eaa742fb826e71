/**
 * Server-sent events as text (https://html.spec.whatwg.org/multipage/server-sent-events.html). A
 * parser ends a line at CR, LF and CR LF. We write LF only, because the clients of AG-UI (0.0.59
 * and 1.0.0) cut frames at LF LF and lines at LF, and at nothing else. Both kinds of parsers join
 * `data:` lines with LF. So the format cannot carry a CR: every line break in `data` arrives as LF.
 * Between the tokens of a JSON text every line break is equal white space, and JSON strings contain
 * none.
 */
export type SseFrame = SseEvent | SsePlace | SseComment;

export interface SseEvent {
  /** A returning client sends this in Last-Event-ID. Without one, the previous id stays. */
  readonly id?: string;
  /** The name for listeners; without one it is `message`. AG-UI clients ignore it. */
  readonly event?: string;
  /** The time that an EventSource waits before it connects again. */
  readonly retryMs?: number;
  /**
   * Bytes are one line of UTF-8 and are written unchanged: many streams may share the same bytes.
   */
  readonly data: string | Uint8Array;
}

/**
 * An id without an event: a parser keeps the id and emits nothing. It marks the start of a stream
 * that has sent nothing yet, so that a client that loses the stream comes back to that place.
 */
export interface SsePlace {
  readonly id: string;
  readonly data?: undefined;
}

/** For proxies, people and tools; clients do not emit it. */
export interface SseComment {
  readonly comment: string;
}

const LINE_BREAK = /\r\n|\r|\n/;
/** U+0000 too: a parser ignores an id that contains it. */
const NOT_IN_A_FIELD = /[\r\n\0]/;

/** The parts to write, one after the other, with the empty line at the end. */
export function frameParts(frame: SseFrame): readonly (string | Uint8Array)[] {
  if ("comment" in frame) return [`${fieldLines("", frame.comment)}\n`];
  if (frame.data === undefined) return [`id: ${oneLine("id", frame.id)}\n\n`];
  const { id, event, retryMs, data } = frame;
  const name = event === undefined ? "" : `event: ${oneLine("event", event)}\n`;
  const number = id === undefined ? "" : `id: ${oneLine("id", id)}\n`;
  const retry = retryMs === undefined ? "" : retryLine(retryMs);
  const head = `${name}${number}${retry}`;
  if (typeof data === "string") return [`${head}${fieldLines("data", data)}\n`];
  return [`${head}data: `, data, "\n\n"];
}

/** The beginning of a stream. */
export function openingText(retryMs: number): string {
  return `${retryLine(retryMs)}\n`;
}

/** The parser removes one space, so a line that begins with its own space keeps it. */
function fieldLines(field: string, text: string): string {
  if (!LINE_BREAK.test(text)) return `${field}: ${text}\n`;
  return text
    .split(LINE_BREAK)
    .map((line) => `${field}: ${line}\n`)
    .join("");
}

function oneLine(field: string, text: string): string {
  if (NOT_IN_A_FIELD.test(text)) throw new TypeError(`an SSE ${field} is one line`);
  return text;
}

function retryLine(retryMs: number): string {
  return `retry: ${Math.round(retryMs)}\n`;
}
