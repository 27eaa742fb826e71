import { UNREAD_LIMIT_MS } from "../../auth/caller-memory.ts";

/** Ticks of the server's clock: the limits are long, and a chunk is too often to look at a real one. */
export const TICK_MS = 1_000;

/** Ticks in which a caller takes something of an answer, or the call is ended. */
export const STILL_TICKS = UNREAD_LIMIT_MS / TICK_MS;

/** A request may take so many to be whole, and a message of a stream. */
const WHOLE_TICKS_MAX = 60;
/** When the memory is needed by others, a request has so many, and a message may stand still so long. */
const PRESSED_TICKS_MAX = 5;

/** Something that is not whole. */
export interface Arrival {
  late(): void;
}

/** What is not whole, by the time since it began. */
class Waiting {
  readonly #began = new Map<Arrival, number>();
  #tick = 0;

  begin(arrival: Arrival): void {
    if (!this.#began.has(arrival)) this.#began.set(arrival, this.#tick);
  }

  end(arrival: Arrival): void {
    this.#began.delete(arrival);
  }

  tick(ticksMax: number): void {
    this.#tick += 1;
    for (const [arrival, began] of this.#began) {
      if (this.#tick - began <= ticksMax) return; // Those behind it began later.
      this.#began.delete(arrival);
      arrival.late();
    }
  }
}

/** Requests and messages that are not whole, of all calls. */
export class Arriving {
  readonly requests = new Waiting();
  readonly #messages = new Waiting();
  readonly #still = new Waiting();

  /** Something of a message came, and it is not whole. */
  grew(message: Arrival): void {
    this.#messages.begin(message);
    this.#still.end(message);
    this.#still.begin(message);
  }

  /** It is whole, or it is we who keep it waiting. */
  ended(message: Arrival): void {
    this.#messages.end(message);
    this.#still.end(message);
  }

  tick({ isPressed }: { readonly isPressed: boolean }): void {
    this.requests.tick(isPressed ? PRESSED_TICKS_MAX : WHOLE_TICKS_MAX);
    this.#messages.tick(WHOLE_TICKS_MAX);
    this.#still.tick(isPressed ? PRESSED_TICKS_MAX : WHOLE_TICKS_MAX);
  }
}
