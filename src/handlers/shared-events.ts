/**
 * Raw events of rows that go to many watchers: made once per row, so that they are also encoded
 * once. An expanded row of tokens takes more than a hundred times its memory, so only the most
 * recently expanded rows stay, within a bound for the process.
 *
 *   asked ──► cached? ── yes ──► the same messages
 *               └ no ──► expands to more than the bound of a row?
 *                          ├ no ──► made, cached; the oldest ones go, down to the bound of all
 *                          └ yes ─► walked, event by event; the row is remembered as large
 *
 * Nothing here keeps a row in memory: when a window drops a row, its events are freed too.
 */
import assert from "node:assert/strict";
import type { SessionEvent } from "@session-ledger/proto/ambient/v1/events_pb";
import type { EventRow } from "../store/rows.ts";
import { toRawEvents } from "../contract/rows-to-wire.ts";

/**
 * A row of 10 KiB of text takes 1.1 MB when its tokens have four characters; watchers at the head
 * get the same few rows within milliseconds.
 */
export const SHARED_EVENTS_LIMITS = {
  /** The limit for one row's events; a larger row is not shared. */
  rowBytesMax: 2_097_152,
  /** Of all cached events, including freed ones that were not noticed yet. */
  bytesMax: 16_777_216,
};
assert(SHARED_EVENTS_LIMITS.rowBytesMax <= SHARED_EVENTS_LIMITS.bytesMax);

interface Expansion {
  /** Undefined: too large, or displaced. */
  events: readonly SessionEvent[] | undefined;
  readonly bytes: number;
}

export class SharedEvents {
  readonly #toWhole: (row: EventRow) => SessionEvent;
  readonly #limits: Readonly<typeof SHARED_EVENTS_LIMITS>;
  readonly #expansions = new WeakMap<EventRow, Expansion>();
  /** Cached expansions in the order of creation; weak, because they belong to their rows. */
  readonly #shared = new Set<{ readonly expansion: WeakRef<Expansion>; readonly bytes: number }>();
  bytes = 0;

  /** `toWhole` makes the one message of a row without an index. */
  constructor(
    toWhole: (row: EventRow) => SessionEvent,
    limits: Readonly<typeof SHARED_EVENTS_LIMITS>,
  ) {
    this.#toWhole = toWhole;
    this.#limits = limits;
  }

  /** The row's events with a number above `afterSeq`, in order. */
  of(row: EventRow, afterSeq: bigint): Iterable<SessionEvent> {
    if (row.fragments === undefined) return row.seq > afterSeq ? [this.#toWhole(row)] : [];
    const existing = this.#expansions.get(row);
    const isTooLarge = existing !== undefined && existing.bytes > this.#limits.rowBytesMax;
    const expansion = existing?.events === undefined && !isTooLarge ? this.#make(row) : existing;
    return expansion?.events === undefined
      ? toRawEvents(row, afterSeq)
      : eventsOf(row, expansion, afterSeq);
  }

  #make(row: EventRow): Expansion {
    const events: SessionEvent[] = [];
    let bytes = 0;
    for (const event of toRawEvents(row, row.seq - 1n)) {
      bytes += EVENT_BYTES + event.payload.length + event.runId.length;
      if (bytes > this.#limits.rowBytesMax)
        return this.#remember(row, { events: undefined, bytes });
      events.push(event);
    }
    const expansion = this.#remember(row, { events, bytes });
    this.#shared.add({ expansion: new WeakRef(expansion), bytes });
    this.bytes += bytes;
    this.#displace();
    return expansion;
  }

  #remember(row: EventRow, expansion: Expansion): Expansion {
    this.#expansions.set(row, expansion);
    return expansion;
  }

  #displace(): void {
    for (const oldest of this.#shared) {
      if (this.bytes <= this.#limits.bytesMax) return;
      this.#shared.delete(oldest);
      this.bytes -= oldest.bytes;
      const expansion = oldest.expansion.deref();
      if (expansion !== undefined) expansion.events = undefined;
    }
  }
}

/** A reader that stands still holds no displaced events: it continues with other events. */
function* eventsOf(
  row: EventRow,
  expansion: Expansion,
  afterSeq: bigint,
): Generator<SessionEvent, void, undefined> {
  let seen = afterSeq > row.seq - 1n ? afterSeq : row.seq - 1n;
  for (let at = Number(seen - row.seq + 1n); ; at += 1) {
    const { events } = expansion;
    if (events === undefined) return yield* toRawEvents(row, seen);
    const event = events[at];
    if (event === undefined) return;
    seen = event.seq;
    yield event;
  }
}

// Per event without its payload: 0.17 to 0.32 KB (100,000 events, after a collection, Node 24.21).
const EVENT_BYTES = 320;
