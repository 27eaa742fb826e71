/**
 * Server-sent events as text (https://html.spec.whatwg.org/multipage/server-sent-events.html). A parser
 * ends a line at CR, LF and CR LF; we write LF only, because the clients of AG-UI (0.0.59 and 1.0.0) cut
 * frames at LF LF and lines at LF, and know no other. Both kinds join `data:` lines with LF. So the
 * format cannot carry a CR: a line break in `data`, of whichever kind, comes out as LF. Between the
 * tokens of a JSON text that is one and the same white space, and inside its strings there is none.
 */
export type SseFrame = SseEvent | SsePlace | SseComment;

export interface SseEvent {
  /** What the client says in Last-Event-ID when it comes back. Without one, the id before stands. */
  readonly id?: string;
  /** The name that listeners ask for; without one it is `message`. AG-UI clients do not look at it. */
  readonly event?: string;
  /** How long an EventSource is to wait before it connects again. */
  readonly retryMs?: number;
  /** As bytes it is one line in UTF-8, and is written as it is: many streams may be sent the same ones. */
  readonly data: string | Uint8Array;
}

/**
 * An id without an event: a parser keeps it and hands nothing on. It tells where a stream begins that
 * has sent nothing yet, so that a client which loses it then comes back to that place.
 */
export interface SsePlace {
  readonly id: string;
  readonly data?: undefined;
}

/** For proxies, people and tools; no client hands it on. */
export interface SseComment {
  readonly comment: string;
}

const LINE_BREAK = /\r\n|\r|\n/;
/** U+0000 too: with one in it, a parser ignores an id. */
const NOT_IN_A_FIELD = /[\r\n\0]/;

/** What is written for it, one after the other, with the empty line that ends it. */
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

/** What a stream begins with. */
export function openingText(retryMs: number): string {
  return `${retryLine(retryMs)}\n`;
}

/** The space is taken off by the parser, so a line that begins with one of its own keeps it. */
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
