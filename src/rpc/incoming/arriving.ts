import { UNREAD_LIMIT_MS } from "../../auth/caller-memory.ts";

/**
 * Lateness is counted in ticks of one second: the limits are 5 to 60 seconds, and reading the clock
 * for every chunk would cost more.
 */
export const TICK_MS = 1_000;

/** A caller must take some bytes of an answer within this number of ticks, or the call ends. */
export const STILL_TICKS = UNREAD_LIMIT_MS / TICK_MS;

/** The ticks in which a request, or a message of a stream, must be complete. */
const WHOLE_TICKS_MAX = 60;
/**
 * When other callers need the memory: the ticks for a request, and for a message that stands still.
 */
const PRESSED_TICKS_MAX = 5;

/** A request or message that is incomplete. */
export interface Arrival {
  late(): void;
}

/** Incomplete requests and messages, ordered by their start. */
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
      if (this.#tick - began <= ticksMax) return; // All later entries began later.
      this.#began.delete(arrival);
      arrival.late();
    }
  }
}

/** The incomplete requests and messages of all calls. */
export class Arriving {
  readonly requests = new Waiting();
  readonly #messages = new Waiting();
  readonly #still = new Waiting();

  /** A part of a message arrived, and the message is incomplete. */
  grew(message: Arrival): void {
    this.#messages.begin(message);
    this.#still.end(message);
    this.#still.begin(message);
  }

  /** The message is complete, or the server itself delays it. */
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
