import { describe, expect, onTestFinished, test, vi } from "vitest";
import { Interval } from "../../src/base/interval.ts";
import { eventually } from "../support/eventually.ts";

/** An action that ends when the test ends it. */
class Act {
  begun = 0;
  ended = 0;
  #end: () => void = () => undefined;
  readonly repeating = new Interval(async () => {
    this.begun += 1;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#end = resolve;
    await promise;
    this.ended += 1;
  });

  end(): void {
    this.#end();
  }
}

describe("a repeated action", () => {
  test("begins again only after it has ended, and a stop waits for it", async () => {
    const act = new Act();
    act.repeating.start(1);
    await eventually(() => expect(act.begun).toBe(1));
    act.end();
    await eventually(() => expect([act.begun, act.ended]).toEqual([2, 1]));
    const stopped = act.repeating.stop();
    expect(act.repeating.isStopped).toBe(true);
    expect(act.ended).toBe(1);
    act.end();
    await stopped;
    expect([act.begun, act.ended]).toEqual([2, 2]);
  });

  test("does not begin after a stop", async () => {
    const act = new Act();
    await act.repeating.stop();
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    act.repeating.start(0);
    vi.runAllTimers();
    expect(act.begun).toBe(0);
  });
});
