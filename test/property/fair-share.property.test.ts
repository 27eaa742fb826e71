/**
 * Callers share a limit in fair parts, in any order of charges, growth, releases and closed connections.
 * Method: draw steps, keep a list of the charges of each connection, and compare with the pool after
 * each step. A charge that must end is released at once or later, as drawn.
 */
import assert from "node:assert/strict";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type CallerId, type Lease, FairShare } from "../../src/base/fair-share.ts";
import { properties } from "../support/random.ts";

const MAX = 100;

interface Held {
  readonly caller: CallerId;
  readonly charge: Lease;
  isEnding: boolean;
}

const connections = Array.from({ length: 6 }, (_, at) => ({ at }));
/** Two connections of each name, and two callers without one. */
const callers: readonly CallerId[] = connections.map((connection, at) => ({
  name: ["a", "a", "b", "b", undefined, undefined][at],
  connection,
}));

const step = fc.oneof(
  fc.record({ kind: fc.constant("take"), at: fc.nat(5), amount: fc.integer({ min: 1, max: 60 }) }),
  fc.record({ kind: fc.constant("set"), at: fc.nat(30), amount: fc.integer({ min: 0, max: 80 }) }),
  fc.record({ kind: fc.constant("release"), at: fc.nat(30), amount: fc.constant(0) }),
  fc.record({ kind: fc.constant("busy"), at: fc.nat(30), amount: fc.constant(0) }),
  fc.record({ kind: fc.constant("releaseEnding"), at: fc.nat(30), amount: fc.constant(0) }),
  fc.record({ kind: fc.constant("tick"), at: fc.constant(0), amount: fc.constant(0) }),
);

function keyOf({ name, connection }: CallerId): string | object {
  return name ?? connection;
}

class Model {
  readonly pool = new FairShare({ max: MAX });
  readonly held: Held[] = [];
  readonly #releasesAtOnce: boolean;
  endedAmounts: number[] = [];

  constructor({ releasesAtOnce }: { readonly releasesAtOnce: boolean }) {
    this.#releasesAtOnce = releasesAtOnce;
  }

  take(caller: CallerId, amount: number): void {
    const holder = this.pool.connection(caller);
    const charge = holder.lease(() => {
      this.endedAmounts.push(charge.amount);
      one.isEnding = true;
      if (this.#releasesAtOnce) this.release(one);
    });
    holder.leave();
    const one: Held = { caller, charge, isEnding: false };
    this.held.push(one);
    if (!this.set(one, amount)) this.release(one);
  }

  /** False: refused; then it must have been fair, and no other caller lost a charge. */
  set(one: Held, amount: number): boolean {
    const before = one.charge.amount;
    const wasEnding = one.isEnding;
    this.endedAmounts = [];
    const overBefore = this.sum(({ isEnding }) => !isEnding) - before + amount - MAX;
    const fits = one.charge.set(amount);
    if (wasEnding || amount <= before) {
      assert.ok(fits);
      assert.deepEqual(this.endedAmounts, []);
      return true;
    }
    const [last = 0] = this.endedAmounts.slice(-1);
    const ended = this.endedAmounts.reduce((sum, each) => sum + each, 0);
    // Nothing ends that need not.
    if (overBefore <= 0) assert.deepEqual(this.endedAmounts, []);
    else if (ended > 0) assert.ok(ended - last < overBefore);
    if (fits) {
      assert.ok(this.sum(({ isEnding }) => !isEnding) <= MAX);
      return true;
    }
    this.#checkRefusal(one);
    one.charge.set(before);
    return false;
  }

  release(one: Held): void {
    one.charge.release();
    this.held.splice(this.held.indexOf(one), 1);
  }

  sum(which: (one: Held) => boolean): number {
    return this.held.filter(which).reduce((sum, { charge }) => sum + charge.amount, 0);
  }

  check(): void {
    assert.equal(
      this.pool.used,
      this.sum(() => true),
    );
    const keys = new Set(this.held.map(({ caller }) => keyOf(caller)));
    assert.equal(this.pool.callers, keys.size);
  }

  #live(key: unknown, of: (caller: CallerId) => unknown): number {
    return this.sum((one) => of(one.caller) === key && !one.isEnding);
  }

  /** No caller that holds more than the refused one has a charge that could end. */
  #checkRefusal({ caller, charge }: Held): void {
    const others = this.held.filter(
      (one) =>
        one.charge !== charge && !one.isEnding && one.charge.canRevoke && one.charge.amount > 0,
    );
    for (const other of others) {
      const isSameCaller = keyOf(other.caller) === keyOf(caller);
      if (!isSameCaller) {
        const theirs = this.#live(keyOf(other.caller), keyOf);
        assert.ok(theirs <= this.#live(keyOf(caller), keyOf));
      } else if (other.caller.connection !== caller.connection) {
        const theirs = this.#live(other.caller.connection, (one) => one.connection);
        assert.ok(theirs <= this.#live(caller.connection, (one) => one.connection));
      }
    }
  }
}

describe("a limit shared by callers", () => {
  test("refuses no caller while another that holds more has a charge that can end", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 120 }), fc.boolean(), (steps, releasesAtOnce) => {
        const model = new Model({ releasesAtOnce });
        for (const { kind, at, amount } of steps) {
          const one = model.held[at % Math.max(1, model.held.length)];
          const caller = callers[at];
          if (kind === "take" && caller !== undefined) model.take(caller, amount);
          else if (kind === "tick") model.pool.tick();
          else if (one === undefined) continue;
          else if (kind === "set") model.set(one, amount);
          else if (kind === "busy") one.charge.canRevoke = !one.charge.canRevoke;
          else if (kind === "release" || one.isEnding) model.release(one);
          model.check();
        }
        for (const one of model.held.splice(0)) one.charge.release();
        expect(model.pool.used).toBe(0);
        expect(model.pool.callers).toBe(0);
      }),
      properties({ runs: 500 }),
    );
  });

  const end = (): void => undefined;
  const [first, second, other, , nameless] = callers;
  if (!first || !second || !other || !nameless) throw new Error("there are six callers");

  test("gives one caller alone all of it, and refuses more", () => {
    const pool = new FairShare({ max: MAX });
    expect(pool.acquire(first, MAX, end)).toBeDefined();
    expect(pool.acquire(first, 1, end)).toBeUndefined();
    expect(pool.refused).toBe(1);
  });

  test("ends the charge that has not moved for the longest time first", () => {
    const pool = new FairShare({ max: 3 });
    const ended: number[] = [];
    const charges = [0, 1, 2].map((at) =>
      pool.acquire(first, 1, () => {
        ended.push(at);
      }),
    );
    charges[0]?.move();
    expect(pool.acquire(other, 1, end)).toBeDefined();
    expect(ended).toEqual([1]);
    expect(pool.acquire(nameless, 1, end)).toBeDefined();
    expect(ended).toEqual([1, 2]);
  });

  test("does not refuse a small connection for a large one of the same caller", () => {
    const pool = new FairShare({ max: MAX });
    const ended: string[] = [];
    pool.acquire(first, MAX, () => {
      ended.push("large");
    });
    expect(pool.acquire(second, 10, end)).toBeDefined();
    expect(ended).toEqual(["large"]);
  });

  test("skips a charge that a handler works on, however large it is", () => {
    const pool = new FairShare({ max: MAX });
    const large = pool.acquire(first, 90, end);
    if (large === undefined) throw new Error("it fits");
    large.canRevoke = false;
    expect(pool.acquire(other, 20, end)).toBeUndefined();
    large.canRevoke = true;
    expect(pool.acquire(other, 20, end)).toBeDefined();
  });

  test("ends the oldest charge of a connection for one that cannot be refused", () => {
    const pool = new FairShare({ max: MAX });
    const ended: string[] = [];
    pool.acquire(first, 60, () => {
      ended.push("old");
    });
    pool.acquire(first, 20, () => {
      ended.push("newer");
    });
    const holder = pool.connection(first);
    holder.lease(end).setAnyway(50);
    expect(ended).toEqual(["old"]);
  });

  test("ends a charge that waits for its caller too long, but not an idle one", () => {
    const pool = new FairShare({ max: MAX, stalledTicksMax: 3 });
    const ended: string[] = [];
    const still = pool.acquire(first, 10, (reason) => {
      ended.push(reason);
    });
    const idle = pool.acquire(second, 10, () => {
      ended.push("idle");
    });
    if (still === undefined || idle === undefined) throw new Error("both fit");
    still.awaitsCaller = true;
    for (const _ of [1, 2]) pool.tick();
    still.set(11);
    for (const _ of [1, 2, 3]) pool.tick();
    expect(ended).toEqual([]);
    pool.tick();
    expect(ended).toEqual(["stalled"]);
  });

  test("moves a charge to its caller with all its bytes when the caller is known", () => {
    const pool = new FairShare({ max: MAX });
    const unknown = pool.connection(nameless);
    const charge = unknown.lease(end);
    charge.set(70);
    charge.moveTo(pool.connection(first));
    expect(pool.acquire(first, 40, end)).toBeUndefined();
    charge.release();
    expect(pool.acquire(first, 40, end)).toBeDefined();
  });

  test("without room lets the first waiting charge continue alone until it is done", () => {
    const pool = new FairShare({ max: MAX });
    const holder = pool.connection(first);
    const charges = [1, 2, 3].map(() => holder.lease(end));
    for (const charge of charges) charge.set(MAX);
    const went: number[] = [];
    for (const [at, charge] of charges.entries()) charge.wait(() => went.push(at));
    expect(went).toEqual([0]);
    expect(charges.map(({ hasRoom }) => hasRoom)).toEqual([true, false, false]);
    charges[0]?.release();
    expect(went).toEqual([0, 1]);
    charges[2]?.release(); // It no longer waits, and its release leaves no room for others.
    charges[1]?.set(10);
    expect(charges[1]?.hasRoom).toBe(true);
  });
});
