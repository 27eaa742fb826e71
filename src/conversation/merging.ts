/**
 * The rows of both streams of a session in one order, the order of their commits:
 *
 *   events    1 2 3 . . 4 5 6 . 7   pages ─┐
 *   messages  . . . 1 2 . . . 3 .   pages ─┴─► 1 2 3 [1 2] 4 5 6 [3] 7
 *
 * A cut is a moment of the session: the numbers of both streams in one answer of the database. Both
 * streams are written under the lock of the session, so the rows up to a cut are a beginning of the
 * order, and the rows of a later cut come after all of them. A fold that stands at a cut therefore
 * never has to go back, and every fold of a session has the same order.
 *
 * The rows of an import have the time of the import, and the order of their own times. When the
 * clock of the database steps back, the later row of a stream counts as old as the one before it.
 */
import type { TranscriptRow } from "../store/pages.ts";
import type { SessionHead } from "../store/rows.ts";
import type { RowTimes, TranscriptMessageRow } from "../store/transcript-messages.ts";
import { isAfter, MonotonicTimes } from "@session-ledger/agui/canonical/commit-order";
import type { Slice } from "./folding.ts";

/** How many numbers each stream has. */
export interface Cut {
  readonly events: bigint;
  readonly messages: bigint;
}

export const NOTHING: Cut = { events: 0n, messages: 0n };

export function cutOf({ eventSeq: events, messageSeq: messages }: SessionHead): Cut {
  return { events, messages };
}

export function isEarlier(one: Cut, other: Cut): boolean {
  return one.events < other.events || one.messages < other.messages;
}

/** Of two cuts of a session, the later one. */
export function later(one: Cut, other: Cut): Cut {
  return isEarlier(one, other) ? other : one;
}

type OrderedRow = TranscriptRow | TranscriptMessageRow;

interface OrderedSlice {
  readonly rows: readonly OrderedRow[];
  /** No other events exist up to this number. */
  readonly events: bigint;
}

interface Streams {
  readonly events: AsyncIterable<Slice<TranscriptRow>>;
  readonly messages: AsyncGenerator<Slice<TranscriptMessageRow>, void, undefined>;
  /** Rows above it are left out; a page may have some. */
  readonly upTo: Cut;
}

export async function* inOrder({
  events,
  messages,
  upTo,
}: Streams): AsyncGenerator<OrderedSlice, void, undefined> {
  const lookahead = new MessageLookahead(messages, upTo.messages);
  const times = new MonotonicTimes();
  let seq = 0n;
  try {
    for await (const slice of events) {
      const rows: OrderedRow[] = [];
      for (const row of slice.rows) {
        if (row.seq > upTo.events) break;
        const time = times.of(row);
        for (;;) {
          if (lookahead.isEmpty && !lookahead.hasEnded) await lookahead.fill();
          const next = lookahead.takeUpTo(time);
          if (next === undefined) break;
          rows.push(next);
        }
        rows.push(row);
      }
      seq = slice.seq < upTo.events ? slice.seq : upTo.events;
      yield { rows, events: seq };
    }
    for (;;) {
      if (lookahead.isEmpty && !lookahead.hasEnded) await lookahead.fill();
      const rows = lookahead.takeAll();
      if (rows.length === 0) return;
      yield { rows, events: seq };
    }
  } finally {
    await messages.return();
  }
}

/** The message rows that were read and not taken yet. */
class MessageLookahead {
  readonly #slices: AsyncGenerator<Slice<TranscriptMessageRow>, void, undefined>;
  readonly #upToSeq: bigint;
  readonly #times = new MonotonicTimes();
  #rows: readonly TranscriptMessageRow[] = [];
  #at = 0;
  #time: RowTimes | undefined;
  hasEnded = false;

  constructor(
    slices: AsyncGenerator<Slice<TranscriptMessageRow>, void, undefined>,
    upToSeq: bigint,
  ) {
    this.#slices = slices;
    this.#upToSeq = upToSeq;
  }

  get isEmpty(): boolean {
    return this.#at === this.#rows.length;
  }

  /** Reads until it has a row, or the stream has ended. */
  async fill(): Promise<void> {
    while (this.isEmpty && !this.hasEnded) {
      const next = await this.#slices.next();
      this.hasEnded = next.done === true;
      const rows = next.done === true ? [] : next.value.rows;
      this.#rows = rows.filter(({ seq }) => seq <= this.#upToSeq);
      this.#at = 0;
    }
  }

  /** The next row, if it is not after that time. */
  takeUpTo(time: RowTimes): TranscriptMessageRow | undefined {
    const row = this.#rows[this.#at];
    if (row === undefined) return undefined;
    this.#time ??= this.#times.of(row);
    if (isAfter(this.#time, time)) return undefined;
    this.#time = undefined;
    this.#at += 1;
    return row;
  }

  takeAll(): readonly TranscriptMessageRow[] {
    const rows = this.#rows.slice(this.#at);
    this.#at = this.#rows.length;
    return rows;
  }
}
