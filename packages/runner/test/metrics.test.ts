/** The turns of a runner as numbers, over a rolling hour. */
import { expect, test } from "vitest";
import { TurnStats } from "@session-ledger/runner/internal/sdk/metrics";

function stats() {
  let nowMs = 0;
  const turns = new TurnStats({ nowMicros: () => 0n, monotonicMs: () => nowMs });
  const took = (batchSize: number, waitMs = 10): void => {
    const packed = { packedBlockCount: 2 * batchSize, tokens: 100, envelopeTokens: 60 * batchSize };
    turns.onTurnStart({ batchSize, waitMs, ...packed });
    turns.onTurnEnd({ hasFailed: batchSize === 9 });
  };
  return { turns, took, pass: (ms: number) => (nowMs += ms) };
}

test("a runner without turns has no numbers", () => {
  expect(Object.values(stats().turns.stats)).toEqual([0, 0, 0, 0, 0, 0, 0, 0]);
});

test("p95 is the largest of 19 in 20 turns, and the averages are by turn and by message", () => {
  const { turns, took } = stats();
  for (let turn = 1; turn <= 19; turn += 1) took(1, turn);
  took(9, 1_000);
  expect(turns.stats).toEqual({
    turns: 20,
    failures: 1,
    messages: 28,
    tokens: 2_000,
    p95WaitMs: 19,
    p95BatchSize: 1,
    packedBlockCount: 2.8,
    contextTokensPerEvent: 60,
  });
});

test("after an hour a turn counts no more, except in the totals", () => {
  const { turns, took, pass } = stats();
  took(5);
  pass(3_600_000);
  expect(turns.stats.p95BatchSize).toBe(5);
  pass(1);
  took(2);
  expect(turns.stats).toMatchObject({ turns: 2, messages: 7, p95BatchSize: 2 });
});

test("the turns of the last hour are bounded", () => {
  const { turns, took } = stats();
  took(7);
  for (let turn = 0; turn < 3_600; turn += 1) took(1);
  expect(turns.stats).toMatchObject({ turns: 3_601, packedBlockCount: 2 });
});
