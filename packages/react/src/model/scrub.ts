/**
 * Any moment of a session, while its log grows.
 *
 *   log ─► rows and messages, in the order of their commits ─► history ─► moments
 *
 * The history is folded once, in slices, so that the page stays smooth: a moment at any number, also
 * inside a merged row, is then made without folding. Until the fold has reached the head for the first
 * time, the newest moment is made of the newest rows and the messages behind the first of them alone.
 */
import type { JsonObject } from "@session-ledger/agui/json";
import {
  type CommitTimes,
  isAfter,
  MonotonicTimes,
} from "@session-ledger/agui/canonical/commit-order";
import { decodeFragments } from "@session-ledger/compressor/fragments";
import { itemsAt, messagesAt } from "./conversation.ts";
import { History, type RunNow } from "./history.ts";
import type { Item } from "./items.ts";
import type { SessionLog } from "./log.ts";
import type { Row, ConversationMessage } from "./source.ts";
import type { At } from "./versions.ts";

/** The number of an event, or the newest one, also after newer ones arrive. */
export type Cursor = number | "live";

/** A session after one of its events. All parts are made on demand, once. */
export class Moment {
  readonly seq: number;
  /** False: the fold has not come so far, so this is an earlier moment, or lacks what came before. */
  readonly isExact: boolean;
  readonly #history: History;
  readonly #at: At;
  #items: readonly Item[] | undefined;
  #messages: readonly JsonObject[] | undefined;

  constructor(history: History, at: At, { isExact }: { readonly isExact: boolean }) {
    this.seq = at.seq;
    this.isExact = isExact;
    this.#history = history;
    this.#at = at;
  }

  /** In the order of the conversation. An item that did not change is the same object. */
  get items(): readonly Item[] {
    this.#items ??= itemsAt(this.#history, this.#at);
    return this.#items;
  }

  /** As the transcript has them at this number, with feedback. */
  get messages(): readonly JsonObject[] {
    this.#messages ??= messagesAt(this.#history, this.#at);
    return this.#messages;
  }

  /** Undefined: no state. Must not be changed. */
  get state(): unknown {
    return this.#history.state.at(this.seq);
  }

  /** The change that made this state; undefined: the state never changes. */
  get stateChange(): StateChange | undefined {
    const { state } = this.#history;
    const { last: seq, next } = state.around(this.seq);
    if (seq === undefined && next === undefined) return undefined;
    const before = seq === undefined ? undefined : state.at(seq - 1);
    const previous = seq === undefined ? undefined : state.around(seq - 1).last;
    return { seq, before, previous, next };
  }

  get interrupts(): readonly JsonObject[] {
    return this.#history.interrupts.at(this.seq) ?? [];
  }

  get run(): RunNow | undefined {
    return this.#history.run.at(this.seq);
  }
}

export interface StateChange {
  /** The number of its event; undefined: the first change is later. */
  readonly seq: number | undefined;
  readonly before: unknown;
  /** The numbers of the neighbouring changes. */
  readonly previous: number | undefined;
  readonly next: number | undefined;
}

interface ScrubOptions {
  readonly nowMs: () => number;
  readonly turn: () => Promise<void>;
}

const SLICE_MS = 8;
const MADE_MAX = 4;
/** While the log is loaded, views are told this often. */
const PROGRESS_MS = 200;

export class Scrub {
  readonly #sessionId: string;
  readonly #log: SessionLog;
  readonly #options: ScrubOptions;
  readonly #listeners = new Set<() => void>();
  #unsubscribe: (() => void) | undefined;
  #history: History;
  #order = new Order();
  #rowsTaken = 0;
  #messagesTaken = 0;
  #generation = 0;
  #preview: Preview | undefined;
  #isPreviewed = true;
  #made: Moment[] = [];
  #isFolding = false;
  #isStopped = false;
  #notifiedMs = 0;
  /** Counts changes of what a moment may show. */
  version = 0;

  constructor(
    sessionId: string,
    log: SessionLog,
    { nowMs = () => performance.now(), turn = pause }: Partial<ScrubOptions> = {},
  ) {
    this.#sessionId = sessionId;
    this.#log = log;
    this.#options = { nowMs, turn };
    this.#history = new History(sessionId);
    this.#generation = log.generation;
    log.folded(0);
  }

  start(): void {
    this.#unsubscribe = this.#log.subscribe(() => void this.#follow());
    this.#isStopped = false;
    void this.#follow();
  }

  get foldedSeq(): number {
    return this.#history.foldedSeq;
  }

  get isComplete(): boolean {
    const { rows, messages, isJoined, hasAllMessages } = this.#log;
    return (
      isJoined &&
      hasAllMessages &&
      this.#rowsTaken === rows.length &&
      this.#messagesTaken === messages.length
    );
  }

  /** The fold has been at the head: what it lacks now comes in no time. */
  get wasComplete(): boolean {
    return !this.#isPreviewed;
  }

  /** The same object until something changes. */
  at(cursor: Cursor): Moment {
    const isPreviewed = cursor === "live" && this.#isPreviewed && !this.isComplete;
    const preview = isPreviewed ? this.#previewNow() : undefined;
    if (preview !== undefined) return preview;
    const { foldedSeq } = this.#history;
    const seq = cursor === "live" ? foldedSeq : Math.max(0, Math.min(cursor, foldedSeq));
    const isExact = cursor === "live" ? this.isComplete : cursor <= foldedSeq || this.isComplete;
    const known = this.#made.find((made) => made.seq === seq && made.isExact === isExact);
    if (known !== undefined) return known;
    const moment = new Moment(this.#history, whereIn(this.#log.rows[this.#log.indexOf(seq)], seq), {
      isExact,
    });
    this.#made = [moment, ...this.#made.slice(0, MADE_MAX - 1)];
    return moment;
  }

  subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  stop(): void {
    this.#isStopped = true;
    this.#unsubscribe?.();
  }

  #previewNow(): Moment | undefined {
    const { newestRows: rows, messages, hasAllMessages } = this.#log;
    if (rows.length === 0) return undefined;
    if (this.#preview?.hasMessages !== hasAllMessages) {
      const moment = newestOf(this.#sessionId, rows, hasAllMessages ? messages : []);
      this.#preview = { hasMessages: hasAllMessages, moment };
    }
    return this.#preview.moment;
  }

  async #follow(): Promise<void> {
    if (this.#isFolding) return;
    this.#isFolding = true;
    while (!this.#isStopped && this.#foldSlice()) await this.#options.turn();
    this.#isFolding = false;
    this.#notify();
  }

  #foldSlice(): boolean {
    const { nowMs } = this.#options;
    const untilMs = nowMs() + SLICE_MS;
    this.#beginAgain();
    let hasMore = true;
    while (hasMore && nowMs() < untilMs) hasMore = this.#foldNext();
    this.#log.folded(this.#history.foldedSeq);
    this.#made = [];
    if (nowMs() - this.#notifiedMs > PROGRESS_MS) this.#notify();
    return hasMore;
  }

  /** A log that went back is folded again. */
  #beginAgain(): void {
    if (this.#generation === this.#log.generation) return;
    this.#generation = this.#log.generation;
    this.#history = new History(this.#sessionId);
    this.#order = new Order();
    this.#rowsTaken = 0;
    this.#messagesTaken = 0;
    this.#preview = undefined;
    this.#isPreviewed = true;
    this.#log.folded(0);
  }

  #foldNext(): boolean {
    const { rows, joinedCount, messages, isJoined, hasAllMessages } = this.#log;
    const row = this.#rowsTaken < joinedCount ? rows[this.#rowsTaken] : undefined;
    const message = messages[this.#messagesTaken];
    if (message === undefined && (row === undefined || !hasAllMessages)) return false;
    if (message !== undefined && this.#order.isNext(message, row)) {
      if (row === undefined && !isJoined) return false;
      this.#history.onMessage(message);
      this.#messagesTaken += 1;
      return true;
    }
    if (row === undefined) return false;
    this.#history.take(row);
    this.#rowsTaken += 1;
    return true;
  }

  #notify(): void {
    this.#notifiedMs = this.#options.nowMs();
    if (this.isComplete) {
      this.#isPreviewed = false;
      this.#preview = undefined;
    }
    this.version += 1;
    for (const listener of this.#listeners) listener();
  }
}

/** The order of the commits of both streams, as src/conversation/merging.ts makes it. */
class Order {
  /** Of rows that came in pages, as the service has it; and of the others, by their ids. */
  readonly #recorded = { rows: new MonotonicTimes(), message: new MonotonicTimes() };
  readonly #stored = { rows: new MonotonicTimes(), message: new MonotonicTimes() };

  /** Of the next message and the next row, the message is the first. */
  isNext(message: ConversationMessage, row: Row | undefined): boolean {
    if (row === undefined) return true;
    const isRecorded = message.recordedMs !== undefined && row.recordedMs !== undefined;
    const times = isRecorded ? this.#recorded : this.#stored;
    const rowTimes = times.rows.of(timesOf(row, isRecorded));
    return !isAfter(times.message.of(timesOf(message, isRecorded)), rowTimes);
  }
}

function timesOf(
  { recordedMs, storedMs, atMs }: Row | ConversationMessage,
  isRecorded: boolean,
): CommitTimes {
  const ms = isRecorded ? (recordedMs ?? storedMs) : storedMs;
  return { recordedMicros: ms * 1_000, createdMicros: atMs * 1_000 };
}

/** Inside a merged row, the text of the later events is missing. */
export function whereIn(row: Row | undefined, seq: number): At {
  if (row?.fragments === undefined || row.lastSeq <= seq) return { seq, cutSeq: -1, missing: 0 };
  const index = decodeFragments(row.fragments);
  const { lengths } = index.rawEvents ?? index;
  let missing = 0;
  for (const length of lengths.slice(seq - row.seq + 1)) missing += Math.max(0, length - 1);
  return { seq, cutSeq: row.seq, missing };
}

interface Preview {
  readonly hasMessages: boolean;
  readonly moment: Moment;
}

/** More of them would not be seen before the fold is over, and take long. */
const PREVIEW_ROWS_MAX = 300;

/** The moment after the newest rows, and the messages that came with them. */
function newestOf(
  sessionId: string,
  rows: readonly Row[],
  messages: readonly ConversationMessage[],
): Moment {
  const history = new History(sessionId);
  const order = new Order();
  const newest = rows.slice(-PREVIEW_ROWS_MAX);
  const sinceMs = newest[0]?.storedMs ?? 0;
  const behind = messages.findIndex(({ storedMs }) => storedMs >= sinceMs);
  let at = behind < 0 ? messages.length : behind;
  for (const row of [...newest, undefined]) {
    for (let message = messages[at]; message !== undefined; message = messages[at]) {
      if (!order.isNext(message, row)) break;
      history.onMessage(message);
      at += 1;
    }
    if (row !== undefined) history.take(row);
  }
  return new Moment(
    history,
    { seq: history.foldedSeq, cutSeq: -1, missing: 0 },
    { isExact: false },
  );
}

async function pause(): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  setTimeout(() => resolve(), 0);
  await promise;
}
