/**
 * A limit that all callers share: bytes held for them, watches, push streams, exports. Who needs a
 * part makes three calls:
 *
 *   reserve ── no room ──► refused, or a push stream waits and is not read
 *      │ room
 *   resize, for each change ── no room ──► the amount stays, and the call ends or waits
 *      │
 *   release
 *
 * Room is free for a caller that would hold at most half of what the others leave, so as much stays
 * free as it holds itself. One caller can have half of the limit, two can have a third each, and a small
 * caller always finds room beside large ones. Nothing is taken back from a caller.
 *
 * A caller is the authenticated principal, and without tokens the connection.
 */
import { type ErrorReason, ServiceError } from "@session-ledger/base/errors";

/** The name of a principal, or a connection. Undefined: the service itself, limited by the sum only. */
export type Caller = string | object | undefined;

export class Budget {
  readonly max: number;
  readonly #held = new Map<Caller, number>();
  /** Reservations that wait for a larger amount, in the order of their waiting. */
  readonly #waiting = new Map<Reservation, Wait>();
  /** The reservation that waited and may be above its room, so that the others make progress. */
  #overdrawn: Reservation | undefined;
  #isRetrying = false;
  /** The amount of all callers. */
  used = 0;
  /** Reservations that found no room, since the start. */
  refused = 0;

  constructor({ max }: { readonly max: number }) {
    this.max = max;
  }

  /** Callers that hold an amount. */
  get callers(): number {
    return this.#held.size;
  }

  /** Undefined: no room is free. */
  reserve(caller: Caller, amount: number): Reservation | undefined {
    if (!this.hasRoom(caller, amount)) return undefined;
    const reservation = new Reservation(this, caller, amount);
    this.change(reservation, amount);
    return reservation;
  }

  /** The same, or throws. */
  mustReserve(caller: Caller, refusal: () => ServiceError): Reservation {
    const reservation = this.reserve(caller, 1);
    if (reservation === undefined) throw refusal();
    return reservation;
  }

  /** Called by a reservation before it grows. */
  hasRoom(caller: Caller, by: number): boolean {
    const held = this.#held.get(caller) ?? 0;
    const leftByOthers = this.max - (this.used - held);
    const roomMax = caller === undefined ? leftByOthers : Math.ceil(leftByOthers / 2);
    if (held + by <= roomMax) return true;
    this.refused += 1;
    return false;
  }

  /** Called by a reservation with its change. */
  change(reservation: Reservation, by: number): void {
    const { caller } = reservation;
    const held = (this.#held.get(caller) ?? 0) + by;
    if (held === 0) this.#held.delete(caller);
    else this.#held.set(caller, held);
    this.used += by;
    if (this.#waiting.size > 0) this.#waiting.delete(reservation);
    if (by >= 0) return;
    if (this.#overdrawn === reservation) this.#overdrawn = undefined;
    if (this.#waiting.size > 0) this.#retry();
  }

  wait(reservation: Reservation, wait: Wait): void {
    this.#waiting.set(reservation, wait);
    this.#retry();
  }

  #retry(): void {
    if (this.#isRetrying) return;
    this.#isRetrying = true;
    setImmediate(() => {
      this.#isRetrying = false;
      for (const [reservation, { amount, go }] of this.#waiting) {
        if (!reservation.resize(amount)) {
          this.#overdrawn ??= reservation;
          if (this.#overdrawn !== reservation) continue;
          reservation.takeOver(amount);
        }
        go();
      }
    });
  }
}

interface Wait {
  readonly amount: number;
  readonly go: () => void;
}

export class Reservation {
  readonly #budget: Budget;
  readonly caller: Caller;
  #isReleased = false;
  amount: number;

  constructor(budget: Budget, caller: Caller, amount: number) {
    this.#budget = budget;
    this.caller = caller;
    this.amount = amount;
  }

  /** False: no room is free for the growth, and the amount stays. */
  resize(amount: number): boolean {
    const by = amount - this.amount;
    if (by > 0 && !this.#isReleased && !this.#budget.hasRoom(this.caller, by)) return false;
    this.takeOver(amount);
    return true;
  }

  /** The same for an amount that another reservation has just released, and which cannot be refused. */
  takeOver(amount: number): void {
    const by = amount - this.amount;
    if (by === 0 || this.#isReleased) return;
    this.amount = amount;
    this.#budget.change(this, by);
  }

  /** Resizes when room is free, and then calls `go`. Another change of the amount ends the wait. */
  wait(amount: number, go: () => void): void {
    if (!this.#isReleased) this.#budget.wait(this, { amount, go });
  }

  release(): void {
    this.takeOver(0);
    this.#isReleased = true;
  }
}

/** The objects of Node, the libraries and ours that an open call has besides its bytes: an estimate … */
export const CALL_BYTES = 16 * 1024;
/** … of which small messages take their part, so that a small push reserves once. */
export const SMALL_BYTES = 8 * 1024;

type Part = "request" | "answer" | "rows";

/** The memory held for one call: its request, bytes that the caller has not taken, rows read for it. */
export class CallMemory {
  readonly #reservation: Reservation;
  readonly #fixedBytes: number;
  readonly #includedBytes: number;
  readonly #bytes: Record<Part, number> = { request: 0, answer: 0, rows: 0 };
  /** Ends the call, whose memory did not fit. */
  readonly end: (error: ServiceError) => void;

  /** Throws when no room is free for one more call. `includedBytes` of its messages are fixed. */
  constructor(
    budget: Budget,
    caller: Caller,
    {
      end,
      fixedBytes = CALL_BYTES,
      includedBytes = SMALL_BYTES,
    }: {
      readonly end: (error: ServiceError) => void;
      readonly fixedBytes?: number;
      readonly includedBytes?: number;
    },
  ) {
    const reservation = budget.reserve(caller, fixedBytes);
    if (reservation === undefined) throw serverBusy();
    this.#reservation = reservation;
    this.#fixedBytes = fixedBytes;
    this.#includedBytes = includedBytes;
    this.end = end;
  }

  get caller(): Caller {
    return this.#reservation.caller;
  }

  /** Resizes one part. False: no room is free for its growth, and it stays. */
  resize(part: Part, bytes: number): boolean {
    const before = this.#bytes[part];
    if (bytes === before) return true;
    this.#bytes[part] = bytes;
    if (this.#reservation.resize(this.#sum)) return true;
    this.#bytes[part] = before;
    return false;
  }

  /** Resizes a part later, when room is free, and then calls `go`. */
  wait(part: Part, bytes: number, go: () => void): void {
    const amount = this.#sum + bytes - this.#bytes[part];
    this.#reservation.wait(amount, () => {
      this.#bytes[part] = bytes;
      go();
    });
  }

  /** The same for bytes that another call has just released, or which cannot be refused. */
  takeOver(part: Part, bytes: number): void {
    this.#bytes[part] = bytes;
    this.#reservation.takeOver(this.#sum);
  }

  release(): void {
    this.#reservation.release();
  }

  get #sum(): number {
    const { request, answer, rows } = this.#bytes;
    return this.#fixedBytes + Math.max(0, request + answer + rows - this.#includedBytes);
  }
}

/**
 * An answer ends when none of its bytes leaves for this time. HTTP uses Node's socket timeout, which
 * counts written bytes, so a slow client that reads is not cut.
 */
export const UNREAD_LIMIT_MS = 60_000;

export function serverBusy(): ServiceError {
  const message = "the service holds as much for its callers as it may, or half of it for this one";
  return overloaded("SERVER_BUSY", message);
}

/** The refusal of a call that may be sent again in a second. */
export function overloaded(reason: ErrorReason, message: string): ServiceError {
  return new ServiceError("overloaded", reason, message, { retryAfterMs: 1_000 });
}
