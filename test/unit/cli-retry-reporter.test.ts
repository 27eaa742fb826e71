import { expect, test } from "vitest";
import { retryReporter } from "../../src/cli/connection.ts";
import { RpcFailure } from "@session-ledger/runner/internal/failure";

function teller() {
  const lines: string[] = [];
  const clock = { nowMs: 0, monotonicMs: () => clock.nowMs };
  const options = { address: "ledger:9000", retryForMs: 60_000 };
  const tellRetry = retryReporter(options, (line) => lines.push(line), clock);
  return { lines, clock, tellRetry };
}

test("repeated limits of a push are reported once in ten seconds", () => {
  const { lines, clock, tellRetry } = teller();
  const limited = new RpcFailure("RESOURCE_EXHAUSTED", "too fast", {
    reason: "RATE_LIMITED",
    retryAfterMs: 5,
  });
  for (; clock.nowMs < 20_000; clock.nowMs += 100) tellRetry(limited, 1);
  const line = "ledger:9000: RATE_LIMITED: too fast; trying again for 60 s";
  expect(lines).toEqual([line, line]);
  tellRetry(new RpcFailure("UNAVAILABLE", "gone"), 1);
  expect(lines.at(-1)).toBe("ledger:9000: UNAVAILABLE: gone; trying again for 60 s");
});

test("a row of failures is reported once, at the first", () => {
  const { lines, tellRetry } = teller();
  for (const count of [1, 2, 3]) tellRetry(new RpcFailure("UNAVAILABLE", "gone"), count);
  expect(lines).toHaveLength(1);
});

test("a withdrawn token is reported as tried once more, without a duration", () => {
  const { lines, tellRetry } = teller();
  tellRetry(new RpcFailure("UNAUTHENTICATED", "no", { reason: "UNAUTHENTICATED" }), 1);
  expect(lines).toEqual(["ledger:9000: UNAUTHENTICATED: no; trying once more"]);
});
