import { describe, expect, test } from "vitest";
import { RpcFailure } from "@session-ledger/runner/internal/failure";
import { type RetryOptions, retrying } from "@session-ledger/runner/internal/retry";

const lost = new RpcFailure("UNAVAILABLE", "gone");
const full = new RpcFailure("RESOURCE_EXHAUSTED", "full", { retryAfterMs: 9_000 });
const wrong = new RpcFailure("INVALID_ARGUMENT", "wrong");

/** Time passes only during a wait, and every wait is recorded. */
function clockwork(options: { readonly retryForMs: number; readonly random?: number }) {
  const pauses: number[] = [];
  let nowMs = 0;
  const retry: RetryOptions = {
    retryForMs: options.retryForMs,
    clock: { nowMicros: () => 0n, monotonicMs: () => nowMs },
    random: () => options.random ?? 0,
    wait: (pauseMs) => {
      pauses.push(pauseMs);
      nowMs += pauseMs;
      return Promise.resolve();
    },
  };
  return { pauses, retry };
}

function failing(failures: readonly unknown[]): () => Promise<string> {
  const left = [...failures];
  return () => (left.length > 0 ? Promise.reject(left.shift()) : Promise.resolve("done"));
}

describe("a retry", () => {
  test("repeats the call until it succeeds, with pauses that double up to a limit", async () => {
    const { pauses, retry } = clockwork({ retryForMs: 60_000, random: 1 });
    const attempt = failing(Array.from({ length: 8 }, () => lost));
    expect(await retrying(attempt, retry)).toBe("done");
    expect(pauses).toEqual([100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
  });

  test("spreads the pauses over their upper half", async () => {
    const { pauses, retry } = clockwork({ retryForMs: 60_000, random: 0 });
    await retrying(failing([lost, lost]), retry);
    expect(pauses).toEqual([50, 100]);
  });

  test("waits at least as long as the service asked", async () => {
    const { pauses, retry } = clockwork({ retryForMs: 60_000 });
    await retrying(failing([full]), retry);
    expect(pauses).toEqual([9_000]);
  });

  test("ends with the last failure at its time limit, and cuts the last pause", async () => {
    const { pauses, retry } = clockwork({ retryForMs: 1_000, random: 1 });
    const attempt = failing(Array.from({ length: 99 }, () => lost));
    await expect(retrying(attempt, retry)).rejects.toBe(lost);
    expect(pauses).toEqual([100, 200, 400, 300]);
  });

  test("does not wait for a failure that its options refuse", async () => {
    const { pauses, retry } = clockwork({ retryForMs: 60_000 });
    const options = { ...retry, mayRepeat: (failure: RpcFailure) => failure !== lost };
    await expect(retrying(failing([full, lost]), options)).rejects.toBe(lost);
    expect(pauses).toEqual([9_000]);
  });

  test("does not wait when the service asks for more than the remaining time", async () => {
    const { pauses, retry } = clockwork({ retryForMs: 1_000 });
    await expect(retrying(failing([full, full]), retry)).rejects.toBe(full);
    expect(pauses).toEqual([]);
  });

  test("makes one attempt without time", async () => {
    const { pauses, retry } = clockwork({ retryForMs: 0 });
    await expect(retrying(failing([lost]), retry)).rejects.toBe(lost);
    expect(pauses).toEqual([]);
  });

  test("does not repeat a permanent failure, nor a defect", async () => {
    const { pauses, retry } = clockwork({ retryForMs: 60_000 });
    await expect(retrying(failing([wrong]), retry)).rejects.toBe(wrong);
    const defect = new TypeError("a defect");
    await expect(retrying(failing([defect]), retry)).rejects.toBe(defect);
    expect(pauses).toEqual([]);
  });

  test("stops its wait when the signal aborts, and ends with the failure", async () => {
    const ending = new AbortController();
    const attempt = retrying(failing([full]), {
      retryForMs: 60_000,
      signal: ending.signal,
      onRetry: () => ending.abort(),
    });
    await expect(attempt).rejects.toBe(full);
  });
});
