/**
 * Derives messages from events without holding up whoever emits them. To derive is to parse, which is
 * microseconds for a token and milliseconds for a snapshot of a megabyte: small events are derived
 * from at once, and from a large one on, all wait for a later turn, in their order. What waits is
 * bounded: an agent that emits so much without ever letting go of its turn pays for it in that turn.
 */
import type { Book } from "./book.ts";
import type { MessageDeriver } from "../derive/derive.ts";

/** Of what is parsed within a call of `event`, in UTF-16 units: about 25 µs (Node 24, a loaded 2-core machine). */
const AT_ONCE_UNITS_MAX = 4_096;
/** Parsed in one turn of the event loop, at least one event. */
const SLICE_UNITS = 32_768;
const WAITING_UNITS_MAX = 8 * 1024 * 1024;

interface Waiting {
  readonly payload: string;
  readonly atMicros: bigint;
}

export class BackgroundDeriver {
  readonly #deriver: MessageDeriver;
  readonly #book: Book;
  #waiting: Waiting[] = [];
  #waitingUnits = 0;
  #isScheduled = false;

  constructor(deriver: MessageDeriver, book: Book) {
    this.#deriver = deriver;
    this.#book = book;
  }

  next(payload: string, atMicros: bigint): void {
    if (this.#waiting.length === 0 && payload.length <= AT_ONCE_UNITS_MAX) {
      this.#derive({ payload, atMicros });
      return;
    }
    this.#waiting.push({ payload, atMicros });
    this.#waitingUnits += payload.length;
    if (this.#waitingUnits > WAITING_UNITS_MAX) this.settle();
    else this.#schedule();
  }

  /** Derives from all that waits, now. */
  settle(): void {
    this.#slice(Number.POSITIVE_INFINITY);
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#slice(SLICE_UNITS);
      if (this.#waiting.length > 0) this.#schedule();
    });
  }

  #slice(unitsMax: number): void {
    let units = 0;
    let count = 0;
    for (const event of this.#waiting) {
      if (count > 0 && units + event.payload.length > unitsMax) break;
      units += event.payload.length;
      count += 1;
      this.#derive(event);
    }
    this.#waiting = this.#waiting.slice(count);
    this.#waitingUnits -= units;
  }

  #derive({ payload, atMicros }: Waiting): void {
    for (const { eventType, payload: text, key } of this.#deriver.next(payload)) {
      const message = { eventType, payload: text.toWellFormed(), key };
      this.#book.message({ ...message, sentAtMicros: undefined, sender: undefined }, atMicros);
    }
  }
}
