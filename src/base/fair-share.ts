/**
 * One limit that all callers share in fair parts. A charge is an amount held for a caller (bytes of
 * an unread answer, a watch, an export). No caller has a fixed part: a single caller may use the
 * whole limit. When a charge does not fit, the caller that holds the most gives way:
 *
 *   it fits ─────────────────────────────────────────────────────► held
 *   another caller holds more ──► the charge of that caller which has not moved for the longest
 *                                 time ends, and the next, until there is room ───────► held
 *   the asking caller holds the most ──► its connections are compared in the same way
 *   the asking connection holds the most ────────────────────────► no room: refused, or it waits
 *
 * So a small caller is never refused because of a large one, and callers that hold equal amounts
 * keep them (max-min fairness; for packets it is called "longest queue drop"). A caller is the
 * authenticated principal. Its connections share its part in the same way, so that one runner
 * cannot take the part of other runners with the same token. For a caller without a name, each
 * connection counts as a caller.
 *
 * A charge that was told to end holds its amount until its owner releases it, but counts as given
 * back: no other charge ends for the same bytes. A charge that cannot be taken back (a handler
 * works on it) is marked and skipped. Charges that can wait (push streams) do not end each other:
 * they take turns.
 */

import {
  type Charge,
  type End,
  type EndReason,
  Group,
  type Holder,
  type Pool,
  victimAmong,
} from "./charge.ts";

/** The caller of a charge. */
export interface CallerId {
  /** Undefined: the caller has no name, and its connection counts as the caller. */
  readonly name: string | undefined;
  readonly connection: object;
}

export interface FairShareOptions {
  readonly max: number;
  /** The ticks after which a charge that waits for its caller ends, if it does not move. */
  readonly stillTicksMax?: number;
}

export class FairShare implements Pool {
  readonly max: number;
  readonly #stillTicksMax: number;
  readonly #groups = new Map<string | object, Group>();
  /** The charges that wait for room, in the order of their waiting. */
  readonly #waiting = new Map<Charge, () => void>();
  /** The waiting charge that may continue although there is no room. */
  #turn: Charge | undefined;
  #tick = 0;
  #held = 0;
  #ending = 0;
  #ended = 0;
  #refused = 0;

  constructor({ max, stillTicksMax = Number.POSITIVE_INFINITY }: FairShareOptions) {
    this.max = max;
    this.#stillTicksMax = stillTicksMax;
  }

  /** The amount of all callers, including ending charges. */
  get held(): number {
    return this.#held;
  }

  /** Callers that hold an amount. */
  get callers(): number {
    return this.#groups.size;
  }

  /** Charges that were told to end, since the start. */
  get ended(): number {
    return this.#ended;
  }

  /** Charges that found no room, since the start. */
  get refused(): number {
    return this.#refused;
  }

  get isFull(): boolean {
    return this.#held >= this.max;
  }

  get now(): number {
    return this.#tick;
  }

  /**
   * One connection of a caller. Keep the holder as long as the connection lasts, and call its
   * `leave` then: a look-up for every chunk would be too slow.
   */
  holder({ name, connection }: CallerId): Holder {
    const key = name ?? connection;
    let group = this.#groups.get(key);
    if (group === undefined) {
      group = new Group(() => this.#groups.delete(key));
      this.#groups.set(key, group);
    }
    return group.holder(this, connection);
  }

  /**
   * A charge of one unit or more that must fit at once; undefined: refused. Its holder ends with
   * it.
   */
  take(caller: CallerId, amount: number, end: End): Charge | undefined {
    const holder = this.holder(caller);
    const charge = holder.charge(end);
    const fits = charge.set(amount);
    holder.leave();
    if (fits) return charge;
    charge.release();
    return undefined;
  }

  /** Ends charges that have not moved for too long. Call it at a regular interval. */
  tick(): void {
    this.#tick += 1;
    const since = this.#tick - this.#stillTicksMax;
    if (since < 0) return;
    for (const group of this.#groups.values()) {
      for (const holder of group.holders.values()) {
        for (const charge of holder.charges) {
          if (charge.movedAt >= since) break;
          if (charge.awaitsCaller) this.#end(charge, "still");
        }
      }
    }
  }

  changed(by: number): boolean {
    this.#held += by;
    if (by < 0 && this.#waiting.size > 0) this.#letGo();
    return this.#held <= this.max;
  }

  gaveBack(amount: number): void {
    this.#ending -= amount;
  }

  makeRoom(charge: Charge): boolean {
    if (this.#held - this.#ending <= this.max || this.#turn === charge) return true;
    if (this.#endOthers(charge, { margin: 1 })) return true;
    this.#refused += 1;
    return false;
  }

  makeRoomAnyway(charge: Charge): boolean {
    if (this.#endOthers(charge, { margin: 0 })) return true;
    for (const own of charge.holder.charges) {
      if (own !== charge && own.canEnd && own.amount > 0) this.#end(own, "room");
      if (this.#held - this.#ending <= this.max) return true;
    }
    this.#refused += 1;
    return false;
  }

  wait(charge: Charge, go: () => void): void {
    this.#waiting.set(charge, go);
    this.#letGo();
  }

  stopWaiting(charge: Charge): void {
    this.#waiting.delete(charge);
    if (this.#turn !== charge) return;
    this.#turn = undefined;
    this.#letGo();
  }

  /**
   * Streams can fill all the room with incomplete frames, and then no frame could ever be
   * completed. So the first waiting charge continues above the limit: one frame of one stream at a
   * time.
   */
  #letGo(): void {
    for (const [charge, go] of this.#waiting) {
      if (this.#held > this.max) {
        if (this.#turn !== undefined) return;
        this.#turn = charge;
      }
      this.#waiting.delete(charge);
      go();
    }
  }

  endWithoutRoom(charge: Charge): void {
    if (this.#held - this.#ending > this.max && charge.canEnd) this.#end(charge, "room");
  }

  /**
   * A margin of 1 prevents callers with equal amounts from ending each other in turns without end.
   */
  #endOthers(asker: Charge, { margin }: { readonly margin: 0 | 1 }): boolean {
    const { holder } = asker;
    const { group } = holder;
    while (this.#held - this.#ending > this.max) {
      const victim =
        victimAmong(this.#groups, asker, group.live + margin, group) ??
        victimAmong(group.holders, asker, holder.live + margin, holder);
      if (victim === undefined) return false;
      this.#end(victim, "room");
    }
    return true;
  }

  #end(charge: Charge, reason: EndReason): void {
    this.#ended += 1;
    this.#ending += charge.amount;
    charge.endBy(reason);
  }
}
