import { describe, expect, test } from "vitest";
import type { Clock } from "@session-ledger/base/clock";
import { ServiceError } from "@session-ledger/base/errors";
import { createRateLimits, MESSAGE_BYTES, type RateOptions } from "../../src/ingest/rate-limits.ts";
import { createMetrics } from "../../src/observability/metrics.ts";

const ANY: RateOptions = { principalBytesPerSecondMax: 0, sessionBytesPerSecondMax: 0 };
/** The payload of a push unless a test says otherwise. */
const PAYLOAD_BYTES = 10;
const ANN = { kind: "static", id: "ann" };
const BOB = { kind: "static", id: "bob" };

class Bench implements Clock {
  nowMs = 1_000;
  readonly metrics = createMetrics(this);
  readonly limits;

  constructor(options: Partial<RateOptions>, bucketsMax?: number) {
    const parts = { clock: this, metrics: this.metrics };
    this.limits = createRateLimits(bucketsMax === undefined ? parts : { ...parts, bucketsMax }, {
      ...ANY,
      ...options,
    });
  }

  monotonicMs(): number {
    return this.nowMs;
  }

  nowMicros(): bigint {
    return 0n;
  }

  /** "taken", or the setting that refused the push and the time to wait. */
  take(payer = ANN, sessionId = "s1", bytes = PAYLOAD_BYTES): string {
    try {
      this.limits.take(payer, sessionId, bytes);
      return "taken";
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      if (error.code !== "overloaded" || error.reason !== "RATE_LIMITED") throw error;
      return `${/\((\w+)\)$/.exec(error.message)?.[1]} ${error.retryAfterMs}`;
    }
  }

  /** The number of accepted pushes out of `pushes`. */
  taken(pushes: number, payer = ANN, sessionId = "s1", bytes = PAYLOAD_BYTES): number {
    let taken = 0;
    for (let n = 0; n < pushes; n += 1)
      taken += this.take(payer, sessionId, bytes) === "taken" ? 1 : 0;
    return taken;
  }

  async metric(line: RegExp): Promise<string | undefined> {
    return (await this.metrics.text()).split("\n").find((text) => line.test(text));
  }
}

/** The bytes a second that so many pushes take. */
function bytesOf(pushes: number): number {
  return pushes * (PAYLOAD_BYTES + MESSAGE_BYTES);
}

describe("the border of a limit", () => {
  test.each([
    ["principalBytesPerSecondMax", "PRINCIPAL_BYTES_PER_SECOND", bytesOf(5), 200],
    ["sessionBytesPerSecondMax", "SESSION_BYTES_PER_SECOND", bytesOf(5), 200],
  ] as const)(
    "of %s accepts five pushes and refuses the sixth with the time to wait",
    (option, setting, max, waitMs) => {
      const bench = new Bench({ [option]: max });
      expect(bench.taken(5)).toBe(5);
      expect(bench.take()).toBe(`${setting} ${waitMs}`);
      bench.nowMs += waitMs - 1;
      expect(bench.take()).toBe(`${setting} 1`);
      bench.nowMs += 1;
      expect(bench.take()).toBe("taken");
      expect(bench.take()).toBe(`${setting} ${waitMs}`);
    },
  );

  test("of 0 does not exist", () => {
    expect(new Bench({}).taken(1_000, ANN, "s1", 1_000_000)).toBe(1_000);
  });

  test("counts a message without a payload too", () => {
    const bench = new Bench({ sessionBytesPerSecondMax: 4 * MESSAGE_BYTES });
    expect(bench.taken(9, ANN, "s1", 0)).toBe(4);
  });

  test("is passed by a push above one second's worth only when the bucket is full, and leaves a debt", () => {
    const bench = new Bench({ sessionBytesPerSecondMax: 10_000 });
    const small = 1_000 - (MESSAGE_BYTES % 1_000);
    const cost = small + MESSAGE_BYTES;
    const large = 30_000 - MESSAGE_BYTES;
    expect(bench.take(ANN, "s1", large)).toBe("taken");
    const waitMs = 2_000 + cost / 10;
    expect(bench.take(ANN, "s1", small)).toBe(`SESSION_BYTES_PER_SECOND ${waitMs}`);
    bench.nowMs += waitMs;
    expect(bench.take(ANN, "s1", small)).toBe("taken");
    expect(bench.take(ANN, "s1", large)).toBe("SESSION_BYTES_PER_SECOND 1000");
  });
});

describe("separate buckets", () => {
  test("belong to callers and sessions, and one id of two kinds is two callers", () => {
    const bench = new Bench({
      principalBytesPerSecondMax: bytesOf(2),
      sessionBytesPerSecondMax: bytesOf(3),
    });
    expect(bench.taken(9, ANN, "s1")).toBe(2);
    expect(bench.taken(9, BOB, "s1")).toBe(1); // The session's third push.
    expect(bench.taken(9, BOB, "s2")).toBe(1); // Bob's second push.
    expect(bench.taken(9, { kind: "oidc", id: "ann" }, "s2")).toBe(2);
  });

  test("are not charged for a push that one of the two refuses", () => {
    const bench = new Bench({
      principalBytesPerSecondMax: bytesOf(4),
      sessionBytesPerSecondMax: bytesOf(2),
    });
    expect(bench.taken(100, ANN, "s1")).toBe(2);
    expect(bench.taken(100, ANN, "s2")).toBe(2);
  });

  test("give the longer wait of both", () => {
    const bench = new Bench({
      principalBytesPerSecondMax: bytesOf(10),
      sessionBytesPerSecondMax: bytesOf(2),
    });
    expect(bench.taken(10, ANN, "s1")).toBe(2);
    expect(bench.taken(10, ANN, "s2")).toBe(2);
    expect(bench.taken(10, ANN, "s3")).toBe(2);
    expect(bench.taken(10, ANN, "s4")).toBe(2);
    expect(bench.taken(10, ANN, "s5")).toBe(2);
    expect(bench.take(ANN, "s1")).toBe("SESSION_BYTES_PER_SECOND 500");
    expect(bench.take(ANN, "s6")).toBe("PRINCIPAL_BYTES_PER_SECOND 100");
  });
});

describe("streams", () => {
  test("are charged without a refusal, and wait until half of the bucket is full again", () => {
    const bench = new Bench({ sessionBytesPerSecondMax: bytesOf(10) });
    const waits = Array.from({ length: 8 }, () => bench.limits.charge(ANN, "s1", PAYLOAD_BYTES));
    expect(waits.map(Math.round)).toEqual([0, 0, 0, 0, 0, 100, 200, 300]);
    expect(bench.taken(5)).toBe(2); // The streams' rest, less their debt, is left for pushes.
  });

  test("wait for the slower of the two limits", () => {
    const bench = new Bench({ principalBytesPerSecondMax: 1_000, sessionBytesPerSecondMax: 500 });
    expect(bench.limits.charge(ANN, "s1", 4_000 - MESSAGE_BYTES)).toBe(7_500);
  });
});

describe("the number of buckets", () => {
  test("falls when full buckets are dropped", async () => {
    const bench = new Bench({ sessionBytesPerSecondMax: bytesOf(10) });
    for (let n = 0; n < 1_000; n += 1) {
      expect(bench.take(ANN, `s${n}`)).toBe("taken");
      bench.nowMs += 10; // Each bucket is full again after ten more pushes.
    }
    const line = await bench.metric(/^session_ledger_rate_buckets\{of="session"\}/);
    expect(Number(line?.split(" ").at(-1))).toBeLessThan(20);
  });

  test("is bounded under a flood of session ids, which does not erase existing debts", () => {
    const bench = new Bench(
      { principalBytesPerSecondMax: bytesOf(50), sessionBytesPerSecondMax: bytesOf(2) },
      8,
    );
    expect(bench.taken(2, BOB, "busy")).toBe(2);
    let taken = 0;
    for (let n = 0; n < 1_000; n += 1) taken += bench.taken(1, ANN, `flood-${n}`);
    // Seven sessions have a bucket of their own, and all others share one.
    expect(taken).toBe(7 + 2);
    expect(bench.take(BOB, "busy")).toBe("SESSION_BYTES_PER_SECOND 500");
    expect(bench.take(ANN, "new")).toBe("SESSION_BYTES_PER_SECOND 500");
    bench.nowMs += 1_000; // The buckets are full now, and are dropped.
    expect(bench.taken(3, ANN, "new")).toBe(2);
  });

  test("does not grow by refused pushes", async () => {
    const bench = new Bench({
      principalBytesPerSecondMax: bytesOf(3),
      sessionBytesPerSecondMax: bytesOf(3),
    });
    for (let n = 0; n < 100; n += 1) bench.take(ANN, `s${n}`);
    expect(await bench.metric(/^session_ledger_rate_buckets\{of="session"\}/)).toMatch(/ 3$/);
  });
});

// Bug: each of two servers saw half of the peaks.
test("regression: each of two Prometheus servers sees the whole peak", async () => {
  const bench = new Bench({ sessionBytesPerSecondMax: bytesOf(10) });
  bench.taken(4, ANN, "s1");
  bench.taken(3, ANN, "s2");
  const line = /^session_ledger_limit_used_ratio\{limit="session_bytes_per_second"\}/;
  for (let reader = 0; reader < 2; reader += 1) expect(await bench.metric(line)).toMatch(/ 0\.4$/);
  bench.nowMs += 60_000;
  expect(await bench.metric(line)).toMatch(/ 0\.4$/);
  bench.nowMs += 60_000;
  expect(await bench.metric(line)).toMatch(/ 0$/);
});
