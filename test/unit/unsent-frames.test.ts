import { expect, test } from "vitest";
import { UnsentFrames } from "../../src/http/unsent-frames.ts";

const LIMITS = { bytesMax: 1_000, freeBytesMax: 10 };

function holding() {
  const unsent = new UnsentFrames(LIMITS);
  const cuts: string[] = [];
  const hold = (name: string, data: string | Uint8Array) =>
    unsent.hold({ data }, () => cuts.push(name));
  return { unsent, cuts, hold };
}

test("what many hold is counted once, until the last lets go", () => {
  const { unsent, hold } = holding();
  const shared = new Uint8Array(400);
  const leave = [hold("a", shared), hold("b", shared), hold("c", new Uint8Array(300))];
  expect(unsent.bytes).toBe(700);
  leave[0]?.();
  expect(unsent.bytes).toBe(700);
  leave[1]?.();
  leave[1]?.();
  expect(unsent.bytes).toBe(300);
  leave[2]?.();
  expect(unsent.bytes).toBe(0);
});

test("a text is each stream's own, and Node's bytes of it too; a short one is not counted", () => {
  const { unsent, hold } = holding();
  const texts = [hold("a", "x".repeat(100)), hold("b", "x".repeat(100)), hold("c", "x".repeat(10))];
  expect(unsent.bytes).toBe(400);
  for (const leave of texts) leave();
  expect(unsent.bytes).toBe(0);
});

test("above the bound those that stand still for the longest are cut off, once each", () => {
  const { unsent, cuts, hold } = holding();
  const shared = new Uint8Array(400);
  const leave = [hold("a", shared), hold("b", new Uint8Array(400)), hold("c", shared)];
  expect(cuts).toEqual([]);
  hold("d", new Uint8Array(400));
  expect(cuts).toEqual(["a", "c"]);
  leave[0]?.();
  leave[2]?.();
  hold("e", new Uint8Array(150));
  expect(cuts).toEqual(["a", "c"]);
  hold("f", new Uint8Array(100));
  expect(cuts).toEqual(["a", "c", "b"]);
  hold("g", new Uint8Array(300)); // What is cut off is on its way out.
  expect(cuts).toEqual(["a", "c", "b"]);
  expect(unsent.bytes).toBe(1_350);
});
