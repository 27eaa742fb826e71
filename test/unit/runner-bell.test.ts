import { describe, expect, test } from "vitest";
import { Bell } from "../../src/runner/writer/book.ts";

describe("a bell", () => {
  test("wakes the next waiter once when it rang before the wait", async () => {
    const bell = new Bell();
    bell.ring();
    bell.ring();
    await bell.wait(2 ** 30);
    let isWoken = false;
    const waiting = bell.wait().then(() => (isWoken = true));
    await Promise.resolve();
    expect(isWoken).toBe(false);
    bell.ring();
    expect(await waiting).toBe(true);
  });

  test("wakes a waiter when it rings or the time is over", async () => {
    const bell = new Bell();
    const rung = bell.wait(2 ** 30);
    bell.ring();
    await rung;
    expect(await bell.wait(1)).toBeUndefined();
  });
});
