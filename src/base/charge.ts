import type { Holder } from "./fair-share.ts";

/** Why a charge ends: others need the room, or its caller did not move for too long. */
export type EndReason = "room" | "still";

export type End = (reason: EndReason) => void;

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
