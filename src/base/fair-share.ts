/**
 * One limit that all callers share, in fair parts. What is held for a caller (bytes of an unread answer,
 * a watch, an export) is a charge. The limit has no fixed part for each caller: one alone may use all of
 * it. When a charge does not fit, the caller that holds the most gives way:
 *
 *   it fits ─────────────────────────────────────────────────────► held
 *   another caller holds more ──► the charge of that caller which has not moved for the longest
 *                                 time ends, and the next, until there is room ───────► held
 *   the asking caller holds the most ──► its connections are compared in the same way
 *   the asking connection holds the most ────────────────────────► no room: refused, or it waits
 *
 * So a small caller is never refused for a large one, and callers that all hold the same keep what they
 * hold (max-min fairness; with packets it is called "longest queue drop"). A caller is the authenticated
 * principal. Its connections share its part in the same way, so that one runner cannot take the part of
 * the others that use the same token. A caller without a name is its connection.
 *
 * A charge that was told to end still holds its amount until its owner releases it, but it counts as
 * given back: nothing else ends for the same bytes. A charge that cannot be taken back (a handler works
 * on it) says so and is passed over. Charges that can wait (push streams) do not end each other: they
 * take turns.
 */

import { Charge, type End, type EndReason } from "./charge.ts";

/** Who is charged. */
export interface CallerId {
  /** Undefined: the caller has no name, and is its connection. */
  readonly name: string | undefined;
  readonly connection: object;
}

export interface FairShareOptions {
  readonly max: number;
  /** Ticks after which a charge that waits for its caller, and does not move, ends. */
  readonly stillTicksMax?: number;
}

export class FairShare {
  readonly max: number;
  readonly #stillTicksMax: number;
  readonly #groups = new Map<string | object, Group>();
  /** The charges that wait for room, in the order in which they began to wait. */
  readonly #waiting = new Map<Charge, () => void>();
  /** The waiting charge that goes on although there is no room. */
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

  /** Of all callers, with what is ending. */
  get held(): number {
    return this.#held;
  }

  /** Callers that hold something. */
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
   * One connection of a caller. Keep it for as long as the connection lasts and call its `leave` then: the
   * look-up is too slow for every chunk.
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

  /** A charge of one unit or more that fits at once; undefined: refused. Its holder ends with it. */
  take(caller: CallerId, amount: number, end: End): Charge | undefined {
    const holder = this.holder(caller);
    const charge = holder.charge(end);
    const fits = charge.set(amount);
    holder.leave();
    if (fits) return charge;
    charge.release();
    return undefined;
  }

  /** Ends what has not moved for too long. To be called at an even pace. */
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

  /** By a charge that changed by so much. True: there is room without anything that has to end. */
  changed(by: number): boolean {
    this.#held += by;
    if (by < 0 && this.#waiting.size > 0) this.#letGo();
    return this.#held <= this.max;
  }

  /** By a charge that was ending and is gone. */
  gaveBack(amount: number): void {
    this.#ending -= amount;
  }

  /** Makes room for what the charge holds already. */
  makeRoom(charge: Charge): boolean {
    if (this.#held - this.#ending <= this.max || this.#turn === charge) return true;
    if (this.#endOthers(charge, { margin: 1 })) return true;
    this.#refused += 1;
    return false;
  }

  /**
   * The same for what cannot be refused any more: callers that hold as much give way too, and the oldest
   * charges of its own connection.
   */
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

  /** The charge has what it waited for, or does not want it any more. */
  stopWaiting(charge: Charge): void {
    this.#waiting.delete(charge);
    if (this.#turn !== charge) return;
    this.#turn = undefined;
    this.#letGo();
  }

  /**
   * Streams can have taken all the room with frames that are half there, none of which could then ever be
   * whole. So the first that waits goes on above the limit, one frame of one stream at a time.
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

  /** Ends the charge itself when there is no room for what it took over from another. */
  endWithoutRoom(charge: Charge): void {
    if (this.#held - this.#ending > this.max && charge.canEnd) this.#end(charge, "room");
  }

  /** With a margin of 1 callers that hold the same do not end each other, in turns, without end. */
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

/** What a group and a holder have in common. */
interface Part {
  /** Without what is ending. */
  readonly live: number;
  victim(asker: Charge): Charge | undefined;
}

/** The charge to end, of the part that holds the most, and no less than `liveMin`. */
function victimAmong<P extends Part>(
  parts: ReadonlyMap<unknown, P>,
  asker: Charge,
  liveMin: number,
  own?: Part,
): Charge | undefined {
  const passedOver = new Set<P>();
  for (;;) {
    let largest: P | undefined;
    for (const part of parts.values()) {
      if (part === own || part.live < liveMin || passedOver.has(part)) continue;
      if (largest === undefined || part.live > largest.live) largest = part;
    }
    if (largest === undefined) return undefined;
    const victim = largest.victim(asker);
    if (victim !== undefined) return victim;
    passedOver.add(largest); // Nothing of it can be taken back.
  }
}

/** One caller. */
class Group implements Part {
  readonly holders = new Map<object, Holder>();
  readonly #gone: () => void;
  live = 0;

  constructor(gone: () => void) {
    this.#gone = gone;
  }

  holder(all: FairShare, connection: object): Holder {
    let holder = this.holders.get(connection);
    if (holder === undefined) {
      holder = new Holder(all, this, () => {
        this.holders.delete(connection);
        if (this.holders.size === 0) this.#gone();
      });
      this.holders.set(connection, holder);
    }
    holder.enter();
    return holder;
  }

  victim(asker: Charge): Charge | undefined {
    return victimAmong(this.holders, asker, 0);
  }
}

/** One connection of a caller. */
export class Holder implements Part {
  readonly all: FairShare;
  readonly group: Group;
  /** Without those that are ending; the one that moved the longest ago first. */
  readonly charges = new Set<Charge>();
  readonly #gone: () => void;
  #users = 0;
  live = 0;

  constructor(all: FairShare, group: Group, gone: () => void) {
    this.all = all;
    this.group = group;
    this.#gone = gone;
  }

  /** Holds nothing yet. `end` is called at most once; what it ends then releases the charge. */
  charge(end: End): Charge {
    this.#users += 1;
    const charge = new Charge(this, end);
    this.charges.add(charge);
    return charge;
  }

  enter(): void {
    this.#users += 1;
  }

  leave(): void {
    this.#users -= 1;
    if (this.#users === 0) this.#gone();
  }

  victim(asker: Charge): Charge | undefined {
    for (const charge of this.charges) {
      if (charge.canEnd && charge.amount > 0 && !(charge.canWait && asker.canWait)) return charge;
    }
    return undefined;
  }
}
