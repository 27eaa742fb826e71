/**
 * What fair-share.ts counts: charges, by the connection that holds them, by the caller whose connection
 * it is. A charge tells the pool of each change.
 */

/** Why a charge ends: others need the room, or its caller did not move for too long. */
export type EndReason = "room" | "still";

export type End = (reason: EndReason) => void;

/** The limit that charges share, as they see it. */
export interface Pool {
  readonly now: number;
  /** By a charge that changed by so much. True: there is room without anything that has to end. */
  changed(by: number): boolean;
  /** By a charge that was ending and is gone. */
  gaveBack(amount: number): void;
  /** Makes room for what the charge holds already. */
  makeRoom(charge: Charge): boolean;
  /**
   * The same for what cannot be refused any more: callers that hold as much give way too, and the oldest
   * charges of its own connection.
   */
  makeRoomAnyway(charge: Charge): boolean;
  /** Ends the charge itself when there is no room for what it took over from another. */
  endWithoutRoom(charge: Charge): void;
  wait(charge: Charge, go: () => void): void;
  /** The charge has what it waited for, or does not want it any more. */
  stopWaiting(charge: Charge): void;
}

/** Something that is held for a caller, of an amount that changes; fair-share.ts says when it ends. */
export class Charge {
  readonly #end: End;
  #holder: Holder;
  #amount = 0;
  #movedAt: number;
  #isEnding = false;
  #isReleased = false;
  /** False: it cannot be taken back now, because a handler works on it. */
  canEnd = true;
  /** It waits for room, for its turn; so it does not end another that waits in the same way. */
  canWait = false;
  /** Its caller has to act: to read on, or to send the rest. */
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

  /** Whether what it holds has its room; others give way for it where that is fair. */
  get hasRoom(): boolean {
    return this.#isEnding || this.#holder.all.makeRoom(this);
  }

  /** Changes the amount, which counts as a move. False: there is no room, but the amount is held. */
  set(amount: number): boolean {
    return this.become(amount) || this.#holder.all.makeRoom(this);
  }

  /** The same for an amount that cannot be refused any more: the answer to a push that is stored. */
  setAnyway(amount: number): boolean {
    return this.become(amount) || this.#holder.all.makeRoomAnyway(this);
  }

  /** The same for an amount that another charge held until now: no other charge ends for it. */
  takeOver(amount: number): void {
    if (!this.become(amount)) this.#holder.all.endWithoutRoom(this);
  }

  /** Changes the amount. The caller asks later whether there is room. */
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

  /** Something of it went on, with no change of its amount. */
  move(): void {
    if (this.#isEnding || this.#isReleased) return;
    const { all, charges } = this.#holder;
    this.#movedAt = all.now;
    charges.delete(this);
    charges.add(this);
  }

  /** Now it is known who the caller is. */
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

  /** Calls `go` when there is room, which may be at once. */
  wait(go: () => void): void {
    this.#holder.all.wait(this, go);
  }

  stopWaiting(): void {
    this.#holder.all.stopWaiting(this);
  }

  /** Nothing is held any more. */
  release(): void {
    if (this.#isReleased) return;
    this.set(0);
    this.#isReleased = true;
    this.stopWaiting();
    this.#holder.charges.delete(this);
    this.#holder.leave();
  }

  /** By the pool, which counts the amount as ending. */
  endBy(reason: EndReason): void {
    this.#isEnding = true;
    this.#holder.live -= this.#amount;
    this.#holder.group.live -= this.#amount;
    this.#holder.charges.delete(this);
    this.#end(reason);
  }
}

/** What a group and a holder have in common. */
interface Part {
  /** Without what is ending. */
  readonly live: number;
  victim(asker: Charge): Charge | undefined;
}

/** The charge to end, of the part that holds the most, and no less than `liveMin`. */
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
    passedOver.add(largest); // Nothing of it can be taken back.
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
  /** Without those that are ending; the one that moved the longest ago first. */
  readonly charges = new Set<Charge>();
  readonly #gone: () => void;
  #users = 0;
  live = 0;

  constructor(all: Pool, group: Group, gone: () => void) {
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
