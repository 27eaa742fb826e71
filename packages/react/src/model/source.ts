/** What a log asks of the HTTP API (docs/http.md), and the rows that it makes of the answers. */
import { utf8Bytes } from "@session-ledger/compressor/text";

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
  readonly nonconformant?: true;
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
  /** The newest first; `before` 0: of all rows. */
  readonly rowsBefore: (before: number, limit: number, signal: AbortSignal) => Promise<RowsPage>;
  readonly rowsAfter: (after: number, limit: number, signal: AbortSignal) => Promise<RowsPage>;
  readonly messagesAfter: (
    after: number,
    limit: number,
    signal: AbortSignal,
  ) => Promise<readonly MessageItem[]>;
  /** Returns lost connections by itself, and ends only with an error. */
  readonly followRows: (following: Following<EventItem>) => Promise<never>;
  readonly followMessages: (following: Following<MessageItem>) => Promise<never>;
}

export type Row = Readonly<Pick<LoggedRow, keyof LoggedRow>>;

/** The log itself may drop the payload of a row. */
export class LoggedRow {
  /** The number of its first event, and of its last. */
  readonly seq: number;
  readonly lastSeq: number;
  readonly type: string;
  readonly runId: string;
  /** When its first event happened, and its last; milliseconds with microseconds as fraction. */
  readonly atMs: number;
  readonly endMs: number;
  /** About when the service stored it. */
  readonly storedMs: number;
  /** By the clock of the database; undefined: the row came by a stream. */
  readonly recordedMs: number | undefined;
  readonly count: number;
  readonly bytes: number;
  /** The fragment index of a merged row, as `decodeFragments` of packages/compressor takes it. */
  readonly fragments: Uint8Array | undefined;
  /** JSON text. Undefined: dropped to save memory; `SessionLog.read` gets it again. */
  payload: string | undefined;
  /** False: no version of AG-UI has such an event, so clients get it as CUSTOM. */
  readonly isConformant: boolean;

  constructor(item: EventItem) {
    const { seq, payload, event_count: count, fragments, completed_at: completed } = item;
    const { recorded_at: recorded } = item;
    this.seq = seq;
    this.lastSeq = seq + count - 1;
    this.type = oneOf(item.event_type);
    this.runId = oneOf(item.run_id ?? "");
    this.atMs = millisOf(item.created_at);
    this.endMs = completed === undefined ? this.atMs : millisOf(completed);
    this.storedMs = storedMsOf(item.id, this.atMs);
    this.recordedMs = recorded === undefined ? undefined : millisOf(recorded);
    this.count = count;
    this.bytes = utf8Bytes(payload);
    this.payload = payload;
    this.isConformant = item.nonconformant !== true;
    this.fragments = fragments === undefined ? undefined : bytesOf(fragments);
  }
}

export interface ConversationMessage {
  readonly seq: number;
  readonly id: string;
  /** `user`, `assistant`, `system`, `error`, `tool_use`, `tool_result` or `lifecycle`. */
  readonly type: string;
  readonly payload: string;
  readonly atMs: number;
  readonly storedMs: number;
  readonly recordedMs: number | undefined;
  readonly sentMs: number | undefined;
  /** Who wrote it, in the spelling of ProtoJSON (`displayName`). */
  readonly sender: Readonly<Record<string, unknown>> | undefined;
}

/** When its sender sent it, by the sender's clock, or else when the service took it. */
export function sentAtMs({ sentMs, atMs }: Pick<ConversationMessage, "sentMs" | "atMs">): number {
  return Math.min(sentMs ?? atMs, atMs);
}

export function conversationMessageOf(item: MessageItem): ConversationMessage {
  const { id, seq, payload, sent_at: sentAt, sender, recorded_at: recordedAt } = item;
  const atMs = millisOf(item.created_at);
  return {
    seq,
    id,
    type: item.event_type,
    payload,
    atMs,
    storedMs: storedMsOf(id, atMs),
    recordedMs: recordedAt === undefined ? undefined : millisOf(recordedAt),
    sentMs: sentAt === undefined ? undefined : millisOf(sentAt),
    sender: sender && camelCased(sender),
  };
}

/** The rows of a log have few different types and runs: each text is held once. */
const TEXTS = new Map<string, string>();
const TEXTS_MAX = 10_000;

function oneOf(text: string): string {
  const known = TEXTS.get(text);
  if (known !== undefined) return known;
  if (TEXTS.size >= TEXTS_MAX) TEXTS.clear();
  TEXTS.set(text, text);
  return text;
}

/** Milliseconds of a time with microseconds, which are the fraction. */
function millisOf(time: string): number {
  const ms = Date.parse(`${time.slice(0, 23)}Z`);
  return ms + Number(time.slice(23, 26)) / 1_000;
}

/** The time in the id of a row, just before the row was stored. Imported ids may have no time. */
function storedMsOf(id: string, atMs: number): number {
  return id[14] === "7" ? Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16) : atMs;
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
