/** Frames that clients have not taken yet are counted once, for the right callers. */
import { expect, test } from "vitest";
import { Budget, CALL_BYTES, CallMemory } from "../../src/base/budget.ts";
import { UnsentFrames } from "../../src/http/sse.ts";

function holding({ max = 1e9 } = {}) {
  const all = new Budget({ max });
  const unsent = new UnsentFrames();
  const hold = (data: string | Uint8Array) => {
    const memory = new CallMemory(all, {}, { end: () => undefined, includedBytes: 0 });
    const isHeld = unsent.hold({ data }, memory);
    const leave = (): void => {
      unsent.release({ data }, memory);
      memory.release();
    };
    return { isHeld, leave };
  };
  return { all, hold };
}

test("bytes held by many streams are counted once, until the last stream releases them", () => {
  const { all, hold } = holding();
  const shared = new Uint8Array(400);
  const streams = [hold(shared), hold(shared), hold(new Uint8Array(300))];
  expect(all.used).toBe(3 * CALL_BYTES + 700);
  streams[0]?.leave();
  expect(all.used).toBe(2 * CALL_BYTES + 700);
  streams[1]?.leave();
  streams[1]?.leave();
  expect(all.used).toBe(CALL_BYTES + 300);
  streams[2]?.leave();
  expect(all.used).toBe(0);
});

test("a text is counted for each stream, in the bytes that Node needs for it", () => {
  const { all, hold } = holding();
  const streams = [hold("x".repeat(100)), hold("x".repeat(100))];
  expect(all.used).toBe(2 * CALL_BYTES + 600);
  for (const { leave } of streams) leave();
  expect(all.used).toBe(0);
});

test("a stream without room does not hold its frame, and streams that hold one keep it", () => {
  const { all, hold } = holding({ max: 6 * CALL_BYTES });
  const shared = new Uint8Array(CALL_BYTES);
  const held = [hold(shared), hold(shared)];
  expect(held.map(({ isHeld }) => isHeld)).toEqual([true, true]);
  const late = hold(new Uint8Array(CALL_BYTES));
  expect(late.isHeld).toBe(false);
  expect(all.used).toBe(4 * CALL_BYTES);
});
