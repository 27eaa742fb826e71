/** Which pushes of one session may share a batch. */
import { expect, test } from "vitest";
import { Independent, type Push } from "../../src/store/rows.ts";
import { newPush, rangePush } from "../support/ledger.ts";

const unary = (push: Partial<Push>) => newPush("s", push);
const range = (epoch: bigint, stream: bigint, from: bigint) =>
  rangePush("s", { epoch, stream }, { from, to: from + 1n });

test.each([
  { title: "no key and no epoch", pushes: [unary({}), unary({})], admitted: true },
  { title: "one key twice", pushes: [unary({ key: "k" }), unary({ key: "k" })], admitted: false },
  {
    title: "one key in both streams",
    pushes: [unary({ key: "k" }), unary({ key: "k", stream: "messages" })],
    admitted: true,
  },
  { title: "a lower epoch", pushes: [unary({ epoch: 2n }), unary({ epoch: 1n })], admitted: false },
  { title: "a range further on", pushes: [range(1n, 1n, 1n), range(1n, 1n, 3n)], admitted: true },
  { title: "a range again", pushes: [range(1n, 1n, 1n), range(1n, 1n, 1n)], admitted: false },
  { title: "another stream", pushes: [range(1n, 1n, 1n), range(1n, 2n, 3n)], admitted: false },
  { title: "another epoch", pushes: [range(1n, 1n, 1n), range(2n, 1n, 3n)], admitted: false },
  {
    title: "a range of the epoch of a unary push",
    pushes: [unary({ epoch: 2n }), range(2n, 1n, 1n)],
    admitted: true,
  },
  {
    title: "a range that a unary push makes stale",
    pushes: [unary({ epoch: 3n }), range(2n, 1n, 1n)],
    admitted: false,
  },
  {
    title: "unary pushes of any epoch after a range",
    pushes: [range(2n, 1n, 1n), unary({ epoch: 1n }), unary({ epoch: 3n })],
    admitted: true,
  },
])("pushes may share a batch with $title: $admitted", ({ pushes, admitted }) => {
  const independent = new Independent();
  expect(pushes.every((push) => independent.admit(push))).toBe(admitted);
});
