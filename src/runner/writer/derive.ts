/**
 * Derives messages from events without delaying the agent. Deriving means parsing, which takes
 * microseconds for a token and milliseconds for a snapshot of a megabyte. So small events are
 * parsed at once. After a large event, all events wait for a later turn, in their order. The
 * waiting text is bounded: an agent that emits more without ever yielding its turn pays for the
 * parsing in that turn.
 */
import type { Book } from "./book.ts";
import type { MessageDeriver } from "../derive/derive.ts";

/**
 * Text that is parsed within a call of `event`, in UTF-16 units: about 25 µs (Node 24, a loaded
 * 2-core machine).
 */
const AT_ONCE_UNITS_MAX = 4_096;
/** Text that is parsed in one turn of the event loop; at least one event. */
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

  /** Derives from all waiting events now. */
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
