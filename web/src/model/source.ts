/** What a log asks of the HTTP API (docs/http.md), and the rows that it makes of the answers. */
import { utf8Bytes } from "../../../src/compressor/text.ts";
import type { Row, Said } from "./log.ts";

/** Of /events/history and of the stream of rows, with `fragments=true`. */
export interface EventItem {
  readonly id: string;
  readonly seq: number;
  readonly event_type: string;
  readonly payload: string;
  readonly created_at: string;
  readonly completed_at?: string;
  readonly event_count: number;
  readonly run_id?: string;
  /** Base64 of ambient.v1.Fragments. */
  readonly fragments?: string;
  /** Left out when it is true. */
  readonly conformant?: boolean;
  readonly recorded_at?: string;
}

export interface MessageItem {
  readonly id: string;
  readonly seq: number;
  readonly event_type: string;
  readonly payload: string;
  readonly created_at: string;
  readonly sent_at?: string;
  readonly sender?: Readonly<Record<string, unknown>>;
  readonly recorded_at?: string;
}

export interface RowsPage {
  readonly items: readonly EventItem[];
  readonly total?: number;
  readonly next_after_seq: number;
  readonly has_more: boolean;
}

export interface Following<T> {
  readonly afterSeq: number;
  readonly signal: AbortSignal;
  readonly take: (item: T) => void;
  /** "live": everything that was stored before has come. */
  readonly state: (state: "live" | "reconnecting") => void;
}

/** The requests of a log. Each rejects with the error of the service, which has a `reason`. */
export interface LogSource {
  /** `before` 0: the newest rows. Ascending, also before a number. */
  readonly rowsBefore: (before: number, limit: number, signal: AbortSignal) => Promise<RowsPage>;
  readonly rowsAfter: (after: number, limit: number, signal: AbortSignal) => Promise<RowsPage>;
  readonly messagesAfter: (
    after: number,
    limit: number,
    signal: AbortSignal,
  ) => Promise<readonly MessageItem[]>;
  /** The answer of /transcript. */
  readonly transcript: (signal: AbortSignal) => Promise<Readonly<Record<string, unknown>>>;
  /** Returns lost connections by itself, and ends only with an error. */
  readonly followRows: (following: Following<EventItem>) => Promise<never>;
  readonly followMessages: (following: Following<MessageItem>) => Promise<never>;
}

export function rowOf(item: EventItem): Row {
  const { id, seq, payload, event_count: count, fragments } = item;
  const atMs = millisOf(item.created_at);
  return {
    seq,
    lastSeq: seq + count - 1,
    type: item.event_type,
    runId: item.run_id ?? "",
    atMs,
    endMs: item.completed_at === undefined ? atMs : millisOf(item.completed_at),
    storedMs: item.recorded_at === undefined ? idMillis(id) : millisOf(item.recorded_at),
    count,
    bytes: utf8Bytes(payload),
    payload,
    fragments: fragments === undefined ? undefined : bytesOf(fragments),
    isConformant: item.conformant !== false,
  };
}

export function saidOf(item: MessageItem): Said {
  const { id, seq, payload, sent_at: sentAt, sender } = item;
  return {
    seq,
    id,
    type: item.event_type,
    payload,
    atMs: millisOf(item.created_at),
    storedMs: item.recorded_at === undefined ? idMillis(id) : millisOf(item.recorded_at),
    sentMs: sentAt === undefined ? undefined : millisOf(sentAt),
    sender: sender && camelCased(sender),
  };
}

/** Milliseconds of a time with microseconds, which are the fraction. */
export function millisOf(time: string): number {
  const ms = Date.parse(`${time.slice(0, 23)}Z`);
  return ms + Number(time.slice(23, 26)) / 1_000;
}

/** The time in a UUIDv7. */
function idMillis(id: string): number {
  return Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16);
}

function bytesOf(base64: string): Uint8Array {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

function camelCased(fields: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const named = Object.entries(fields).map(([field, value]) => {
    const name = field.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
    return [name, value];
  });
  return Object.fromEntries(named);
}
