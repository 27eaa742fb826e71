/**
 * The objects that fair-share.ts counts: charges, grouped by connection (Holder) and by caller
 * (Group). A charge reports each change to the pool.
 */

/** The reason why a charge ends: others need the room, or its caller did not move for too long. */
export type EndReason = "room" | "still";

export type End = (reason: EndReason) => void;

/** The shared limit, as its charges see it. */
export interface Pool {
  readonly now: number;
  /** Called by a charge after a change. True: there is room without ending any charge. */
  changed(by: number): boolean;
  /** Called by a charge that was ending and is released. */
  gaveBack(amount: number): void;
  /** Makes room for the amount that the charge already holds. */
  makeRoom(charge: Charge): boolean;
  /**
   * The same for an amount that can no longer be refused: callers that hold an equal amount give
   * way too, and so do the oldest charges of its own connection.
   */
  makeRoomAnyway(charge: Charge): boolean;
  /** Ends the charge itself when there is no room for the amount that it took over. */
  endWithoutRoom(charge: Charge): void;
  wait(charge: Charge, go: () => void): void;
  /** The charge got its room, or does not need it any more. */
  stopWaiting(charge: Charge): void;
}

/** An amount held for a caller, which may change; fair-share.ts decides when it ends. */
export class Charge {
  readonly #end: End;
  #holder: Holder;
  #amount = 0;
  #movedAt: number;
  #isEnding = false;
  #isReleased = false;
  /** False: the charge cannot be taken back now, because a handler works on it. */
  canEnd = true;
  /** True: the charge waits its turn for room, so it never ends another waiting charge. */
  canWait = false;
  /** True: the caller must act: read on, or send the rest. */
  awaitsCaller = false;

  constructor(holder: Holder, end: End) {
    this.#holder = holder;
    this.#end = end;
    this.#movedAt = holder.all.now;
  }

  get holder(): Holder {
    return this.#holder;
  }

  get amount(): number {
    return this.#amount;
  }

  get movedAt(): number {
    return this.#movedAt;
  }

  /** Whether its amount has room; other charges give way where that is fair. */
  get hasRoom(): boolean {
    return this.#isEnding || this.#holder.all.makeRoom(this);
  }

  /**
   * Changes the amount, which counts as a move. False: there is no room, but the amount is held.
   */
  set(amount: number): boolean {
    return this.become(amount) || this.#holder.all.makeRoom(this);
  }

  /** The same for an amount that can no longer be refused, such as the answer to a stored push. */
  setAnyway(amount: number): boolean {
    return this.become(amount) || this.#holder.all.makeRoomAnyway(this);
  }

  /** The same for an amount that another charge held until now: no other charge ends for it. */
  takeOver(amount: number): void {
    if (!this.become(amount)) this.#holder.all.endWithoutRoom(this);
  }

  /** Changes the amount. The caller checks later whether there is room. */
  become(amount: number): boolean {
    const by = amount - this.#amount;
    if (this.#isReleased || by === 0) return true;
    const { all, group } = this.#holder;
    this.#amount = amount;
    if (this.#isEnding) {
      all.gaveBack(-by);
    } else {
      this.#holder.live += by;
      group.live += by;
      if (this.#movedAt !== all.now) this.move();
    }
    return all.changed(by) || by < 0 || this.#isEnding;
  }

  /** The work on the charge advanced, without a change of its amount. */
  move(): void {
    if (this.#isEnding || this.#isReleased) return;
    const { all, charges } = this.#holder;
    this.#movedAt = all.now;
    charges.delete(this);
    charges.add(this);
  }

  /** Called when the caller becomes known. */
  moveTo(holder: Holder): void {
    if (this.#isEnding || this.#isReleased || holder === this.#holder) return;
    const before = this.#holder;
    before.charges.delete(this);
    holder.charges.add(this);
    holder.enter();
    for (const part of [before, before.group]) part.live -= this.#amount;
    for (const part of [holder, holder.group]) part.live += this.#amount;
    this.#holder = holder;
    before.leave();
  }

  /** Calls `go` when there is room, perhaps at once. */
  wait(go: () => void): void {
    this.#holder.all.wait(this, go);
  }

  stopWaiting(): void {
    this.#holder.all.stopWaiting(this);
  }

  /** Frees the whole amount. */
  release(): void {
    if (this.#isReleased) return;
    this.set(0);
    this.#isReleased = true;
    this.stopWaiting();
    this.#holder.charges.delete(this);
    this.#holder.leave();
  }

  /** Called by the pool, which counts the amount as ending. */
  endBy(reason: EndReason): void {
    this.#isEnding = true;
    this.#holder.live -= this.#amount;
    this.#holder.group.live -= this.#amount;
    this.#holder.charges.delete(this);
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
export function victimAmong<P extends Part>(
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
export class Group implements Part {
  readonly holders = new Map<object, Holder>();
  readonly #gone: () => void;
  live = 0;

  constructor(gone: () => void) {
    this.#gone = gone;
  }

  holder(all: Pool, connection: object): Holder {
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
  readonly all: Pool;
  readonly group: Group;
  /** Without ending charges; the one that moved the longest ago comes first. */
  readonly charges = new Set<Charge>();
  readonly #gone: () => void;
  #users = 0;
  live = 0;

  constructor(all: Pool, group: Group, gone: () => void) {
    this.all = all;
    this.group = group;
    this.#gone = gone;
  }

  /**
   * A new charge of amount 0. `end` is called at most once, and must lead to a release of the
   * charge.
   */
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
