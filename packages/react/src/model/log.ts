/**
 * The rows of one session, as a page of the inspector knows them.
 *
 *   rows   1 … 4,000   ·····  gap  ·····   99,001 … 100,000 │ 100,001 …
 *          └ from the beginning on ─►      └ the newest page │ the live tail ─►
 *
 * The newest page is read first, so that something shows after one request. The live tail continues
 * behind it, and the gap is filled from the beginning upwards, in the order in which a fold needs
 * the rows. Messages are read from their beginning, at the same time.
 *
 * Rows stay for as long as the log, their payloads only up to a budget: the payload of an old row is
 * dropped after the fold has had it, and `read` fetches it again.
 *
 *   loading ──► live ◄──► reconnecting         any ──► gone: deleted, unknown or not allowed
 *
 * A log that went back (a restored database) is read again from the beginning.
 */
import { backoffMs } from "@session-ledger/base/backoff";
import { type PayloadLimits, Payloads } from "./payloads.ts";
import {
  type EventItem,
  LoggedRow,
  type LogSource,
  type MessageItem,
  type Row,
  type ConversationMessage,
  conversationMessageOf,
} from "./source.ts";

export interface Problem {
  readonly reason: string;
  readonly message: string;
}

export interface LogOptions extends PayloadLimits {
  /** Calls back soon: a page uses its frames, so that many changes are drawn once. */
  readonly soon: (run: () => void) => void;
}

/** About 128 MiB where all of it is beyond Latin-1. */
const PAYLOAD_CHARS_MAX = 64 * 1024 * 1024;
/** The memory of a payload besides its characters. */
const PAYLOAD_ROWS_MAX = 50_000;
/** Dropped payloads that one request gets again: more than a table shows. */
const READ_ROWS = 100;
const FIRST_PAGE_ROWS = 300;
const PAGE_ROWS = 1_000;
const PAGE_MESSAGES = 1_000;
/** Rows that were read and not folded yet: the fold of them takes about a second. */
const AHEAD_ROWS_MAX = 20_000;
const RETRY = { minMs: 500, maxMs: 10_000 };

export class SessionLog {
  readonly #source: LogSource;
  readonly #soon: LogOptions["soon"];
  #payloads: Payloads;
  #stopping = new AbortController();
  readonly #listeners = new Set<() => void>();
  #rows: LoggedRow[] = [];
  #messages: ConversationMessage[] = [];
  /** Rows at the beginning of the list that have no gap before them. */
  #joined = 0;
  #isJoined = false;
  #hasNewest = false;
  #messagesLive = false;
  #isNotifying = false;
  #foldedSeq: number | undefined;
  #room: (() => void) | undefined;
  /** Reads of dropped payloads that are under way, by the numbers of their rows. */
  readonly #reads: { readonly from: number; readonly to: number; readonly done: Promise<void> }[] =
    [];

  head = 0;
  state: "loading" | "live" | "reconnecting" | "gone" = "loading";
  problem: Problem | undefined;
  /** Counts changes; `useSyncExternalStore` compares it. */
  version = 0;
  /** Counts the times that the log began again: what was folded before is void. */
  generation = 0;

  constructor(
    source: LogSource,
    {
      soon = later,
      payloadCharsMax = PAYLOAD_CHARS_MAX,
      payloadRowsMax = PAYLOAD_ROWS_MAX,
    }: Partial<LogOptions> = {},
  ) {
    this.#source = source;
    this.#soon = soon;
    this.#payloads = new Payloads({ payloadCharsMax, payloadRowsMax });
  }

  /** Also after a stop: the log continues where it was. */
  start(): void {
    this.#stopping = new AbortController();
    void this.#keepReading();
  }

  /** Ascending. The list stays the same one and grows; `version` counts its changes. */
  get rows(): readonly Row[] {
    return this.#rows;
  }

  get messages(): readonly ConversationMessage[] {
    return this.#messages;
  }

  /** The last rows of the list that have no gap behind them: the newest ones, or all. */
  get newestRows(): readonly Row[] {
    return this.#isJoined ? this.#rows : this.#rows.slice(this.#joined);
  }

  /** The first rows of the list that have no gap before them: all of them, when loading is over. */
  get joinedCount(): number {
    return this.#isJoined ? this.#rows.length : this.#joined;
  }

  get isJoined(): boolean {
    return this.#isJoined;
  }

  get hasNewest(): boolean {
    return this.#hasNewest;
  }

  get hasAllMessages(): boolean {
    return this.#messagesLive;
  }

  get isLive(): boolean {
    return this.state === "live";
  }

  /** Above 1, retention has erased the beginning. */
  get firstSeq(): number {
    return this.#rows[0]?.seq ?? 1;
  }

  subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  stop(): void {
    this.#stopping.abort();
  }

  /** The progress of the fold, 0 at first: rows above this number keep their payload. */
  folded(seq: number): void {
    this.#foldedSeq = seq;
    this.#payloads.drop(this.#foldedSeq);
    this.#room?.();
  }

  /** The index of the row that holds this event, or of the last one before it; -1: none. */
  indexOf(seq: number): number {
    let low = 0;
    let high = this.#rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#rows[middle]?.seq ?? 0) <= seq) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  /** The payload of a row, read again if it was dropped; undefined: it was erased meanwhile. */
  async read(row: Row): Promise<string | undefined> {
    if (row.payload !== undefined) return row.payload;
    const known = this.#reads.find(({ from, to }) => from <= row.seq && row.seq < to);
    const last = this.#rows[this.indexOf(row.seq) + READ_ROWS - 1];
    const read = known ?? { from: row.seq, to: last?.seq ?? Infinity, done: this.#readFrom(row) };
    if (known === undefined) this.#reads.push(read);
    await read.done.finally(() => {
      if (known === undefined) this.#reads.splice(this.#reads.indexOf(read), 1);
    });
    return row.payload;
  }

  async #readFrom(row: Row): Promise<void> {
    const page = await this.#source.rowsAfter(row.seq - 1, READ_ROWS, this.#stopping.signal);
    for (const item of page.items) {
      const known = this.#rows[this.indexOf(item.seq)];
      if (known === undefined || known.seq !== item.seq || known.payload !== undefined) continue;
      known.payload = item.payload;
      this.#payloads.retain(known);
    }
    this.#payloads.drop(this.#foldedSeq, row.seq);
    this.#changed();
  }

  async #keepReading(): Promise<void> {
    const { signal } = this.#stopping;
    for (let attempt = 0; !signal.aborted; attempt += 1) {
      const trying = new AbortController();
      const abort = (): void => trying.abort();
      signal.addEventListener("abort", abort, { once: true });
      const version = this.version;
      try {
        await this.#readAll(trying.signal);
      } catch (error) {
        if (signal.aborted) return;
        if (this.#isOver(error)) return;
      } finally {
        trying.abort();
        signal.removeEventListener("abort", abort);
      }
      if (this.version > version + 1) attempt = 0;
      await pause(backoffMs(RETRY, attempt, Math.random()), signal);
    }
  }

  /** Decides whether another attempt makes sense. */
  #isOver(error: unknown): boolean {
    const { reason, status, message } = refusalOf(error);
    this.problem = { reason, message };
    // 400: no session has such an id.
    const isRefused = [400, 401, 403, 404].includes(status);
    if (reason === "CURSOR_BEYOND_HEAD") this.#beginAgain();
    else this.state = isRefused || reason === "SESSION_DELETED" ? "gone" : "reconnecting";
    this.#changed();
    return this.state === "gone";
  }

  #beginAgain(): void {
    this.#rows = [];
    this.#messages = [];
    this.#joined = 0;
    this.#isJoined = false;
    this.#hasNewest = false;
    this.#messagesLive = false;
    this.#payloads = this.#payloads.emptied();
    this.head = 0;
    this.state = "loading";
    this.generation += 1;
  }

  async #readAll(signal: AbortSignal): Promise<void> {
    await Promise.all([this.#readRows(signal), this.#readMessages(signal)]);
  }

  async #readRows(signal: AbortSignal): Promise<void> {
    if (!this.#hasNewest) await this.#readNewest(signal);
    await Promise.all([
      this.#fillGap(signal),
      this.#source.followRows({
        // A page may be older than the head that it came with.
        afterSeq: this.#rows.at(-1)?.lastSeq ?? 0,
        signal,
        take: (item) => this.#append(item),
        state: (state) => this.#isNow(state),
      }),
    ]);
  }

  async #readNewest(signal: AbortSignal): Promise<void> {
    const page = await this.#source.rowsBefore(0, FIRST_PAGE_ROWS, signal);
    for (const item of page.items.toReversed()) this.#add(item, this.#rows.length);
    this.#hasNewest = true;
    this.#isJoined = !page.has_more;
    this.head = Math.max(page.total ?? 0, this.#rows.at(-1)?.lastSeq ?? 0);
    this.#changed();
  }

  async #fillGap(signal: AbortSignal): Promise<void> {
    while (!this.#isJoined) {
      const after = this.#rows[this.#joined - 1]?.lastSeq ?? 0;
      const page = await this.#source.rowsAfter(after, PAGE_ROWS, signal);
      const upper = this.#rows[this.#joined];
      const rows: LoggedRow[] = [];
      for (const item of page.items) {
        if (upper !== undefined && item.seq >= upper.seq) break;
        rows.push(this.#payloads.retain(new LoggedRow(item)));
      }
      this.#rows.splice(this.#joined, 0, ...rows);
      this.#joined += rows.length;
      this.#isJoined = rows.length < page.items.length || !page.has_more;
      this.#changed();
      await this.#roomAhead(signal);
    }
  }

  /** Waits while the fold is far behind. */
  async #roomAhead(signal: AbortSignal): Promise<void> {
    const isFar = (): boolean => {
      if (this.#foldedSeq === undefined || signal.aborted) return false;
      return this.#joined - this.indexOf(this.#foldedSeq) > AHEAD_ROWS_MAX;
    };
    while (isFar()) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#room = resolve;
      signal.addEventListener("abort", () => resolve(), { once: true });
      await promise;
    }
  }

  async #readMessages(signal: AbortSignal): Promise<never> {
    for (;;) {
      const after = this.#messages.at(-1)?.seq ?? 0;
      const items = await this.#source.messagesAfter(after, PAGE_MESSAGES, signal);
      for (const item of items) this.#addMessage(item);
      this.#changed();
      if (items.length === 0) break;
    }
    this.#messagesLive = true;
    this.#changed();
    return this.#source.followMessages({
      afterSeq: this.#messages.at(-1)?.seq ?? 0,
      signal,
      take: (item) => {
        this.#addMessage(item);
        this.#changed();
      },
      state: () => undefined, // The state of the events' stream is shown.
    });
  }

  #addMessage(item: MessageItem): void {
    if (item.seq > (this.#messages.at(-1)?.seq ?? 0))
      this.#messages.push(conversationMessageOf(item));
  }

  #isNow(state: "live" | "reconnecting"): void {
    if (this.state === state) return;
    this.state = state;
    if (state === "live") this.problem = undefined;
    this.#changed();
  }

  /** A row of the live tail; one that came before is skipped. */
  #append(item: EventItem): void {
    if (item.seq <= (this.#rows.at(-1)?.lastSeq ?? 0)) return;
    this.#add(item, this.#rows.length);
    this.head = Math.max(this.head, item.seq + item.event_count - 1);
    this.#payloads.drop(this.#foldedSeq);
    this.#changed();
  }

  #add(item: EventItem, at: number): void {
    this.#rows.splice(at, 0, this.#payloads.retain(new LoggedRow(item)));
  }

  #changed(): void {
    this.version += 1;
    if (this.#isNotifying) return;
    this.#isNotifying = true;
    this.#soon(() => {
      this.#isNotifying = false;
      for (const listener of this.#listeners) listener();
    });
  }
}

interface Refusal {
  readonly reason: string;
  readonly status: number;
  readonly message: string;
}

function refusalOf(error: unknown): Refusal {
  const details = typeof error === "object" && error !== null ? error : {};
  const reason = "reason" in details && typeof details.reason === "string" ? details.reason : "";
  const status = "status" in details && typeof details.status === "number" ? details.status : 0;
  const message = error instanceof Error ? error.message : "the service cannot be reached";
  return { reason, status, message };
}

function later(run: () => void): void {
  setTimeout(run, 0);
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(() => resolve(), ms);
  signal.addEventListener("abort", () => resolve(), { once: true });
  await promise;
  clearTimeout(timer);
}
