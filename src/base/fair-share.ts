/**
 * One limit that all callers share in fair parts. A lease is an amount held for a caller (bytes of
 * an unread answer, a watch, an export). No caller has a fixed part: a single caller may use the
 * whole limit. When a lease does not fit, the caller that holds the most gives way:
 *
 *   it fits ─────────────────────────────────────────────────────► held
 *   another caller holds more ──► the lease of that caller which has not moved for the longest
 *                                 time ends, and the next, until room is free ───────► held
 *   the asking caller holds the most ──► its connections are compared in the same way
 *   the asking connection holds the most ────────────────────────► no room: refused, or it waits
 *
 * So a small caller is never refused because of a large one, and callers that hold equal amounts
 * keep them (max-min fairness; for packets it is called "longest queue drop"). A caller is the
 * authenticated principal. Its connections share its part in the same way, so that one runner
 * cannot take the part of other runners with the same token. For a caller without a name, each
 * connection counts as a caller.
 *
 * A lease that is ending holds its amount until its owner releases it, but counts as returned:
 * no other lease ends for the same bytes. A lease that cannot be revoked (a handler works
 * on it) is marked and skipped. Leases that can wait (push streams) do not end each other: they take
 * turns.
 */

/** The caller of a lease. */
export interface CallerId {
  /** Undefined: the caller has no name, and its connection counts as the caller. */
  readonly name: string | undefined;
  readonly connection: object;
}

interface FairShareOptions {
  readonly max: number;
  /** The ticks after which a lease that waits for its caller ends, if it does not move. */
  readonly stalledTicksMax?: number;
}

export class FairShare {
  readonly max: number;
  readonly #stalledTicksMax: number;
  readonly #callers = new Map<string | object, CallerShare>();
  /** The leases that wait for room, in the order of their waiting. */
  readonly #waiting = new Map<Lease, () => void>();
  /** The waiting lease that may continue although no room is free. */
  #overdrawn: Lease | undefined;
  #ending = 0;
  /** Ticks since the start. */
  now = 0;
  /** The amount of all callers, including ending leases. */
  used = 0;
  /** Leases that were ended, since the start. */
  ended = 0;
  /** Leases that found no room, since the start. */
  refused = 0;

  constructor({ max, stalledTicksMax = Number.POSITIVE_INFINITY }: FairShareOptions) {
    this.max = max;
    this.#stalledTicksMax = stalledTicksMax;
  }

  /** Callers that hold an amount. */
  get callers(): number {
    return this.#callers.size;
  }

  get isFull(): boolean {
    return this.used >= this.max;
  }

  /** One connection of a caller; keep it, and call its `leave` at the end of the connection. */
  connection({ name, connection }: CallerId): ConnectionShare {
    const key = name ?? connection;
    const caller = this.#callers.get(key) ?? new CallerShare();
    this.#callers.set(key, caller);
    let share = caller.connections.get(connection);
    if (share === undefined) {
      share = new ConnectionShare(this, caller, () => {
        caller.connections.delete(connection);
        if (caller.connections.size === 0) this.#callers.delete(key);
      });
      caller.connections.set(connection, share);
    }
    share.enter();
    return share;
  }

  /** A lease that must fit at once; undefined: refused. its share ends with it. */
  acquire(caller: CallerId, amount: number, end: OnEnd): Lease | undefined {
    const share = this.connection(caller);
    const lease = share.lease(end);
    const fits = lease.set(amount);
    share.leave();
    if (fits) return lease;
    lease.release();
    return undefined;
  }

  /** Ends leases that have not moved for too long. Call it at a regular interval. */
  tick(): void {
    this.now += 1;
    const since = this.now - this.#stalledTicksMax;
    if (since < 0) return;
    for (const caller of this.#callers.values()) {
      for (const share of caller.connections.values()) {
        for (const lease of share.leases) {
          if (lease.movedAt >= since) break;
          if (lease.awaitsCaller) this.#end(lease, "stalled");
        }
      }
    }
  }

  /** Called by a lease after a change. True: room is free without ending any lease. */
  onChange(by: number): boolean {
    this.used += by;
    if (by < 0 && this.#waiting.size > 0) this.#resumeWaiting();
    return this.used <= this.max;
  }

  /** Called by a lease that was ending and is released. */
  onReturn(amount: number): void {
    this.#ending -= amount;
  }

  /** Makes room for the amount that the lease already holds. */
  makeRoom(lease: Lease): boolean {
    if (this.used - this.#ending <= this.max || this.#overdrawn === lease) return true;
    if (this.#endOthers(lease, { margin: 1 })) return true;
    this.refused += 1;
    return false;
  }

  /**
   * The same for an amount that can no longer be refused: callers that hold an equal amount give
   * way too, and so do the oldest leases of the same connection.
   */
  makeRoomAnyway(lease: Lease): boolean {
    if (this.#endOthers(lease, { margin: 0 })) return true;
    for (const own of lease.share.leases) {
      if (own !== lease && own.canRevoke && own.amount > 0) this.#end(own, "room");
      if (this.used - this.#ending <= this.max) return true;
    }
    this.refused += 1;
    return false;
  }

  wait(lease: Lease, go: () => void): void {
    this.#waiting.set(lease, go);
    this.#resumeWaiting();
  }

  /** The lease got its room, or does not need it any more. */
  stopWaiting(lease: Lease): void {
    this.#waiting.delete(lease);
    if (this.#overdrawn !== lease) return;
    this.#overdrawn = undefined;
    this.#resumeWaiting();
  }

  /**
   * Incomplete frames of streams can fill all the room. So the first waiting lease continues above
   * the limit: one frame of one stream at a time.
   */
  #resumeWaiting(): void {
    for (const [lease, go] of this.#waiting) {
      if (this.used > this.max) {
        if (this.#overdrawn !== undefined) return;
        this.#overdrawn = lease;
      }
      this.#waiting.delete(lease);
      go();
    }
  }

  /** Ends the lease itself when no room is free for the amount that it took over. */
  endWithoutRoom(lease: Lease): void {
    if (this.used - this.#ending > this.max && lease.canRevoke) this.#end(lease, "room");
  }

  /** A margin of 1 prevents callers with equal amounts from ending each other in turns. */
  #endOthers(asker: Lease, { margin: excessMin }: { readonly margin: 0 | 1 }): boolean {
    const { share } = asker;
    const { caller } = share;
    while (this.used - this.#ending > this.max) {
      const victim =
        victimAmong(this.#callers, asker, caller.live + excessMin, caller) ??
        victimAmong(caller.connections, asker, share.live + excessMin, share);
      if (victim === undefined) return false;
      this.#end(victim, "room");
    }
    return true;
  }

  #end(lease: Lease, reason: EndReason): void {
    this.ended += 1;
    this.#ending += lease.amount;
    lease.revoke(reason);
  }
}

/** The reason why a lease ends: others need the room, or its caller did not move for too long. */
export type EndReason = "room" | "stalled";

type OnEnd = (reason: EndReason) => void;

/** An amount held for a caller, which may change; the shared limit decides when it ends. */
export class Lease {
  readonly #end: OnEnd;
  #isEnding = false;
  #isReleased = false;
  share: ConnectionShare;
  amount = 0;
  movedAt: number;
  /** False: the lease cannot be taken back now, because a handler works on it. */
  canRevoke = true;
  /** True: the lease waits its turn for room, so it never ends another waiting lease. */
  canWait = false;
  /** True: the caller must act: read on, or send the rest. */
  awaitsCaller = false;

  constructor(share: ConnectionShare, end: OnEnd) {
    this.share = share;
    this.#end = end;
    this.movedAt = share.all.now;
  }

  /** Whether its amount has room; other leases give way where that is fair. */
  get hasRoom(): boolean {
    return this.#isEnding || this.share.all.makeRoom(this);
  }

  /** Changes the amount, which counts as a move. False: no room, but the amount is held. */
  set(amount: number): boolean {
    return this.resize(amount) || this.share.all.makeRoom(this);
  }

  /** For an amount that can no longer be refused, such as the answer to a stored push. */
  setAnyway(amount: number): boolean {
    return this.resize(amount) || this.share.all.makeRoomAnyway(this);
  }

  /** The same for an amount that another lease held until now: no other lease ends for it. */
  takeOver(amount: number): void {
    if (!this.resize(amount)) this.share.all.endWithoutRoom(this);
  }

  /** Changes the amount. The caller checks later whether room is free. */
  resize(amount: number): boolean {
    const by = amount - this.amount;
    if (this.#isReleased || by === 0) return true;
    const { all, caller } = this.share;
    this.amount = amount;
    if (this.#isEnding) {
      all.onReturn(-by);
    } else {
      this.share.live += by;
      caller.live += by;
      if (this.movedAt !== all.now) this.move();
    }
    return all.onChange(by) || by < 0 || this.#isEnding;
  }

  /** The work on the lease advanced, without a change of its amount. */
  move(): void {
    if (this.#isEnding || this.#isReleased) return;
    const { all, leases } = this.share;
    this.movedAt = all.now;
    leases.delete(this);
    leases.add(this);
  }

  /** Called when the caller becomes known. */
  moveTo(share: ConnectionShare): void {
    if (this.#isEnding || this.#isReleased || share === this.share) return;
    const before = this.share;
    before.leases.delete(this);
    share.leases.add(this);
    share.enter();
    for (const part of [before, before.caller]) part.live -= this.amount;
    for (const part of [share, share.caller]) part.live += this.amount;
    this.share = share;
    before.leave();
  }

  /** Calls `go` when room is free, perhaps at once. */
  wait(go: () => void): void {
    this.share.all.wait(this, go);
  }

  stopWaiting(): void {
    this.share.all.stopWaiting(this);
  }

  release(): void {
    if (this.#isReleased) return;
    this.set(0);
    this.#isReleased = true;
    this.stopWaiting();
    this.share.leases.delete(this);
    this.share.leave();
  }

  /** Called by the pool, which counts the amount as ending. */
  revoke(reason: EndReason): void {
    this.#isEnding = true;
    this.share.live -= this.amount;
    this.share.caller.live -= this.amount;
    this.share.leases.delete(this);
    this.#end(reason);
  }
}

/** The common fields of a caller and a connection. */
interface ShareHolder {
  /** The amount without ending leases. */
  readonly live: number;
  victim(asker: Lease): Lease | undefined;
}

/** The lease to end, from the part that holds the most, and at least `liveMin`. */
function victimAmong<P extends ShareHolder>(
  parts: ReadonlyMap<unknown, P>,
  asker: Lease,
  liveMin: number,
  own?: ShareHolder,
): Lease | undefined {
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
    passedOver.add(largest); // None of its leases can be taken back.
  }
}

class CallerShare implements ShareHolder {
  readonly connections = new Map<object, ConnectionShare>();
  live = 0;

  victim(asker: Lease): Lease | undefined {
    return victimAmong(this.connections, asker, 0);
  }
}

export class ConnectionShare implements ShareHolder {
  readonly all: FairShare;
  readonly caller: CallerShare;
  /** Without ending leases; the one that moved the longest ago comes first. */
  readonly leases = new Set<Lease>();
  readonly #onLeave: () => void;
  #users = 0;
  live = 0;

  constructor(all: FairShare, caller: CallerShare, onLeave: () => void) {
    this.all = all;
    this.caller = caller;
    this.#onLeave = onLeave;
  }

  /** A new lease of amount 0. `end` is called at most once, and must lead to a release. */
  lease(end: OnEnd): Lease {
    this.enter();
    const lease = new Lease(this, end);
    this.leases.add(lease);
    return lease;
  }

  enter(): void {
    this.#users += 1;
  }

  leave(): void {
    this.#users -= 1;
    if (this.#users === 0) this.#onLeave();
  }

  victim(asker: Lease): Lease | undefined {
    for (const lease of this.leases) {
      if (lease.canRevoke && lease.amount > 0 && !(lease.canWait && asker.canWait)) return lease;
    }
    return undefined;
  }
}
