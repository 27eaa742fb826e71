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

/** The caller of a charge. */
export interface CallerId {
  /** Undefined: the caller has no name, and its connection counts as the caller. */
  readonly name: string | undefined;
  readonly connection: object;
}

interface FairShareOptions {
  readonly max: number;
  /** The ticks after which a charge that waits for its caller ends, if it does not move. */
  readonly stillTicksMax?: number;
}

export class FairShare {
  readonly max: number;
  readonly #stillTicksMax: number;
  readonly #groups = new Map<string | object, Group>();
  /** The charges that wait for room, in the order of their waiting. */
  readonly #waiting = new Map<Charge, () => void>();
  /** The waiting charge that may continue although there is no room. */
  #turn: Charge | undefined;
  #ending = 0;
  /** Ticks since the start. */
  now = 0;
  /** The amount of all callers, including ending charges. */
  held = 0;
  /** Charges that were told to end, since the start. */
  ended = 0;
  /** Charges that found no room, since the start. */
  refused = 0;

  constructor({ max, stillTicksMax = Number.POSITIVE_INFINITY }: FairShareOptions) {
    this.max = max;
    this.#stillTicksMax = stillTicksMax;
  }

  /** Callers that hold an amount. */
  get callers(): number {
    return this.#groups.size;
  }

  get isFull(): boolean {
    return this.held >= this.max;
  }

  /**
   * One connection of a caller. Keep the holder as long as the connection lasts, and call its
   * `leave` then: a look-up for every chunk would be too slow.
   */
  holder({ name, connection }: CallerId): Holder {
    const key = name ?? connection;
    const group = this.#groups.get(key) ?? new Group();
    this.#groups.set(key, group);
    let holder = group.holders.get(connection);
    if (holder === undefined) {
      holder = new Holder(this, group, () => {
        group.holders.delete(connection);
        if (group.holders.size === 0) this.#groups.delete(key);
      });
      group.holders.set(connection, holder);
    }
    holder.enter();
    return holder;
  }

  /** A charge that must fit at once; undefined: refused. Its holder ends with it. */
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
    this.now += 1;
    const since = this.now - this.#stillTicksMax;
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

  /** Called by a charge after a change. True: there is room without ending any charge. */
  changed(by: number): boolean {
    this.held += by;
    if (by < 0 && this.#waiting.size > 0) this.#letGo();
    return this.held <= this.max;
  }

  /** Called by a charge that was ending and is released. */
  gaveBack(amount: number): void {
    this.#ending -= amount;
  }

  /** Makes room for the amount that the charge already holds. */
  makeRoom(charge: Charge): boolean {
    if (this.held - this.#ending <= this.max || this.#turn === charge) return true;
    if (this.#endOthers(charge, { margin: 1 })) return true;
    this.refused += 1;
    return false;
  }

  /**
   * The same for an amount that can no longer be refused: callers that hold an equal amount give
   * way too, and so do the oldest charges of its own connection.
   */
  makeRoomAnyway(charge: Charge): boolean {
    if (this.#endOthers(charge, { margin: 0 })) return true;
    for (const own of charge.holder.charges) {
      if (own !== charge && own.canEnd && own.amount > 0) this.#end(own, "room");
      if (this.held - this.#ending <= this.max) return true;
    }
    this.refused += 1;
    return false;
  }

  wait(charge: Charge, go: () => void): void {
    this.#waiting.set(charge, go);
    this.#letGo();
  }

  /** The charge got its room, or does not need it any more. */
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
      if (this.held > this.max) {
        if (this.#turn !== undefined) return;
        this.#turn = charge;
      }
      this.#waiting.delete(charge);
      go();
    }
  }

  /** Ends the charge itself when there is no room for the amount that it took over. */
  endWithoutRoom(charge: Charge): void {
    if (this.held - this.#ending > this.max && charge.canEnd) this.#end(charge, "room");
  }

  /** A margin of 1 prevents callers with equal amounts from ending each other in turns. */
  #endOthers(asker: Charge, { margin }: { readonly margin: 0 | 1 }): boolean {
    const { holder } = asker;
    const { group } = holder;
    while (this.held - this.#ending > this.max) {
      const victim =
        victimAmong(this.#groups, asker, group.live + margin, group) ??
        victimAmong(group.holders, asker, holder.live + margin, holder);
      if (victim === undefined) return false;
      this.#end(victim, "room");
    }
    return true;
  }

  #end(charge: Charge, reason: EndReason): void {
    this.ended += 1;
    this.#ending += charge.amount;
    charge.endBy(reason);
  }
}

/** The reason why a charge ends: others need the room, or its caller did not move for too long. */
export type EndReason = "room" | "still";

type End = (reason: EndReason) => void;

/** An amount held for a caller, which may change; the shared limit decides when it ends. */
export class Charge {
  readonly #end: End;
  #isEnding = false;
  #isReleased = false;
  holder: Holder;
  amount = 0;
  movedAt: number;
  /** False: the charge cannot be taken back now, because a handler works on it. */
  canEnd = true;
  /** True: the charge waits its turn for room, so it never ends another waiting charge. */
  canWait = false;
  /** True: the caller must act: read on, or send the rest. */
  awaitsCaller = false;

  constructor(holder: Holder, end: End) {
    this.holder = holder;
    this.#end = end;
    this.movedAt = holder.all.now;
  }

  /** Whether its amount has room; other charges give way where that is fair. */
  get hasRoom(): boolean {
    return this.#isEnding || this.holder.all.makeRoom(this);
  }

  /** Changes the amount, which counts as a move. False: no room, but the amount is held. */
  set(amount: number): boolean {
    return this.become(amount) || this.holder.all.makeRoom(this);
  }

  /** For an amount that can no longer be refused, such as the answer to a stored push. */
  setAnyway(amount: number): boolean {
    return this.become(amount) || this.holder.all.makeRoomAnyway(this);
  }

  /** The same for an amount that another charge held until now: no other charge ends for it. */
  takeOver(amount: number): void {
    if (!this.become(amount)) this.holder.all.endWithoutRoom(this);
  }

  /** Changes the amount. The caller checks later whether there is room. */
  become(amount: number): boolean {
    const by = amount - this.amount;
    if (this.#isReleased || by === 0) return true;
    const { all, group } = this.holder;
    this.amount = amount;
    if (this.#isEnding) {
      all.gaveBack(-by);
    } else {
      this.holder.live += by;
      group.live += by;
      if (this.movedAt !== all.now) this.move();
    }
    return all.changed(by) || by < 0 || this.#isEnding;
  }

  /** The work on the charge advanced, without a change of its amount. */
  move(): void {
    if (this.#isEnding || this.#isReleased) return;
    const { all, charges } = this.holder;
    this.movedAt = all.now;
    charges.delete(this);
    charges.add(this);
  }

  /** Called when the caller becomes known. */
  moveTo(holder: Holder): void {
    if (this.#isEnding || this.#isReleased || holder === this.holder) return;
    const before = this.holder;
    before.charges.delete(this);
    holder.charges.add(this);
    holder.enter();
    for (const part of [before, before.group]) part.live -= this.amount;
    for (const part of [holder, holder.group]) part.live += this.amount;
    this.holder = holder;
    before.leave();
  }

  /** Calls `go` when there is room, perhaps at once. */
  wait(go: () => void): void {
    this.holder.all.wait(this, go);
  }

  stopWaiting(): void {
    this.holder.all.stopWaiting(this);
  }

  /** Frees the whole amount. */
  release(): void {
    if (this.#isReleased) return;
    this.set(0);
    this.#isReleased = true;
    this.stopWaiting();
    this.holder.charges.delete(this);
    this.holder.leave();
  }

  /** Called by the pool, which counts the amount as ending. */
  endBy(reason: EndReason): void {
    this.#isEnding = true;
    this.holder.live -= this.amount;
    this.holder.group.live -= this.amount;
    this.holder.charges.delete(this);
    this.#end(reason);
  }
}

/** The common fields of a group and a holder. */
interface Part {
  /** The amount without ending charges. */
  readonly live: number;
  victim(asker: Charge): Charge | undefined;
}

/** The charge to end, from the part that holds the most, and at least `liveMin`. */
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
    passedOver.add(largest); // None of its charges can be taken back.
  }
}

/** One caller. */
class Group implements Part {
  readonly holders = new Map<object, Holder>();
  live = 0;

  victim(asker: Charge): Charge | undefined {
    return victimAmong(this.holders, asker, 0);
  }
}

/** One connection of a caller. */
export class Holder implements Part {
  readonly all: FairShare;
  readonly group: Group;
  /** Without ending charges; the one that moved the longest ago comes first. */
  readonly charges = new Set<Charge>();
  readonly #gone: () => void;
  #users = 0;
  live = 0;

  constructor(all: FairShare, group: Group, gone: () => void) {
    this.all = all;
    this.group = group;
    this.#gone = gone;
  }

  /** A new charge of amount 0. `end` is called at most once, and must lead to a release. */
  charge(end: End): Charge {
    this.enter();
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
