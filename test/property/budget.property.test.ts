/**
 * Callers share a limit, in any order of reservations, changes and releases.
 * Method: draw steps, keep the amounts of each caller in a list, and compare with the limit after each
 * step. A change that the rule allows is accepted, and every other one is refused and changes nothing.
 */
import assert from "node:assert/strict";
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Budget, type Caller, type Reservation } from "../../src/base/budget.ts";
import { properties } from "../support/random.ts";

const MAX = 100;
const connection = {};
const callers: readonly Caller[] = ["a", "b", "c", connection];

const step = fc.oneof(
  fc.record({
    kind: fc.constant("reserve"),
    at: fc.nat(3),
    amount: fc.integer({ min: 1, max: 60 }),
  }),
  fc.record({
    kind: fc.constant("resize"),
    at: fc.nat(30),
    amount: fc.integer({ min: 0, max: 80 }),
  }),
  fc.record({ kind: fc.constant("release"), at: fc.nat(30), amount: fc.constant(0) }),
);

interface Held {
  readonly caller: Caller;
  readonly reservation: Reservation;
  amount: number;
}

class Model {
  readonly budget = new Budget({ max: MAX });
  readonly held: Held[] = [];

  sumOf(isCounted: (one: Held) => boolean): number {
    return this.held.filter(isCounted).reduce((sum, { amount }) => sum + amount, 0);
  }

  allows(caller: Caller, before: number, amount: number): boolean {
    if (amount <= before) return true;
    const own = this.sumOf((one) => one.caller === caller);
    const left = MAX - this.sumOf((one) => one.caller !== caller);
    return own - before + amount <= Math.ceil(left / 2);
  }

  take({
    kind,
    at,
    amount,
  }: {
    readonly kind: string;
    readonly at: number;
    readonly amount: number;
  }) {
    if (kind === "reserve") {
      const caller = callers[at];
      const expected = this.allows(caller, 0, amount);
      const reservation = this.budget.reserve(caller, amount);
      assert.equal(reservation !== undefined, expected);
      if (reservation !== undefined) this.held.push({ caller, reservation, amount });
      return;
    }
    const one = this.held[at % Math.max(1, this.held.length)];
    if (one === undefined) return;
    if (kind === "resize") {
      const expected = this.allows(one.caller, one.amount, amount);
      assert.equal(one.reservation.resize(amount), expected);
      if (expected) one.amount = amount;
      return;
    }
    one.reservation.release();
    one.reservation.release();
    this.held.splice(this.held.indexOf(one), 1);
  }

  check(): void {
    assert.equal(
      this.budget.used,
      this.sumOf(() => true),
    );
    assert.ok(this.budget.used <= MAX);
    const holding = new Set(
      this.held.filter(({ amount }) => amount > 0).map(({ caller }) => caller),
    );
    assert.equal(this.budget.callers, holding.size);
  }
}

describe("a limit that callers share", () => {
  test("is never above its sum, and gives each caller half of what the others leave", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const model = new Model();
        for (const one of steps) {
          model.take(one);
          model.check();
        }
        for (const { reservation } of model.held) reservation.release();
        expect(model.budget.used).toBe(0);
      }),
      properties({ runs: 1_000 }),
    );
  });

  test("keeps room for one more caller, however many callers take what they get", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 30 }), (count) => {
        const budget = new Budget({ max: 10_000 });
        for (let turn = 0; turn < 10_000; turn += 1) {
          const caller = `caller ${turn % count}`;
          if (turn >= count && budget.reserve(caller, 10) === undefined) continue;
          if (turn < count) budget.reserve(caller, 10);
        }
        expect(budget.reserve("another", 10)).toBeDefined();
      }),
      properties({ runs: 30 }),
    );
  });

  test("lets a waiting reservation grow when room is free, or one at a time above it", async () => {
    const budget = new Budget({ max: 100 });
    const first = budget.reserve("a", 40);
    const second = budget.reserve("a", 5);
    const third = budget.reserve("a", 4);
    const ready: string[] = [];
    expect(second?.resize(90)).toBe(false);
    second?.wait(90, () => ready.push("second"));
    third?.wait(90, () => ready.push("third"));
    await new Promise(setImmediate);
    expect(ready).toEqual(["second"]);
    expect(budget.used).toBe(134);
    first?.release();
    second?.release();
    await new Promise(setImmediate);
    expect(ready).toEqual(["second", "third"]);
    third?.release();
    expect(budget.used).toBe(0);
  });

  test("has no limit of a part for the service itself", () => {
    const budget = new Budget({ max: 10 });
    expect(budget.reserve(undefined, 6)).toBeDefined();
    expect(budget.reserve(undefined, 4)).toBeDefined();
    expect(budget.reserve(undefined, 1)).toBeUndefined();
  });
});
