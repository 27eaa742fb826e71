import { describe, expect, test } from "vitest";
import { Bell } from "../../src/runner/writer/book.ts";

describe("a bell", () => {
  test("that was rung while nobody waited is heard by the next who does, once", async () => {
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

  test("wakes who waits, at once or when the time is over", async () => {
    const bell = new Bell();
    const rung = bell.wait(2 ** 30);
    bell.ring();
    await rung;
    expect(await bell.wait(1)).toBeUndefined();
  });
});
