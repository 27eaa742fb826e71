/** Frames that clients have not taken yet are counted once, for the right callers. */
import { EventEmitter } from "node:events";
import { expect, test } from "vitest";
import { CallerMemory, type CallMemory } from "../../src/auth/caller-memory.ts";
import { FairShare } from "../../src/base/fair-share.ts";
import { UnsentFrames } from "../../src/http/sse.ts";

function holding() {
  const all = new FairShare({ max: 1_000 });
  const callers = new CallerMemory(all, { asks: false });
  const unsent = new UnsentFrames();
  const ended: string[] = [];
  const hold = (name: string, data: string | Uint8Array) => {
    const memory: CallMemory = callers.of(new EventEmitter()).call(() => {
      ended.push(name);
      leave();
    });
    const leave = (): void => {
      unsent.release({ data }, memory);
      memory.release();
    };
    unsent.hold({ data }, memory);
    return leave;
  };
  return { all, ended, hold };
}

test("bytes held by many streams are counted once, until the last stream releases them", () => {
  const { all, hold } = holding();
  const shared = new Uint8Array(400);
  const leave = [hold("a", shared), hold("b", shared), hold("c", new Uint8Array(300))];
  expect(all.used).toBe(700);
  leave[0]?.();
  expect(all.used).toBe(700);
  leave[1]?.();
  leave[1]?.();
  expect(all.used).toBe(300);
  leave[2]?.();
  expect(all.used).toBe(0);
});

test("a text is counted for each stream, in the bytes that Node needs for it", () => {
  const { all, hold } = holding();
  const texts = [hold("a", "x".repeat(100)), hold("b", "x".repeat(100))];
  expect(all.used).toBe(600);
  for (const leave of texts) leave();
  expect(all.used).toBe(0);
});

test("without room the streams with the most bytes end, and shared bytes end with their last stream", () => {
  const { all, ended, hold } = holding();
  const shared = new Uint8Array(400);
  hold("a", shared);
  hold("b", new Uint8Array(400));
  hold("c", shared);
  expect(ended).toEqual([]);
  hold("d", new Uint8Array(400));
  expect(all.used).toBeLessThanOrEqual(1_000);
  expect(ended).toEqual(["a", "c"]);
});
