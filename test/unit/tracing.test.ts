import { expect, test } from "vitest";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import { createTracing, type Tracing } from "../../src/observability/trace.ts";
import { describeUnitContract } from "../support/unit-contract.ts";

/** Nothing is sent: no span of these tests is recorded and ended. */
function tracing(sampleRatio: number): Tracing {
  const log = createLogTo({ write: () => undefined });
  const options = { endpoint: "http://127.0.0.1:1/", serviceName: "test", sampleRatio };
  return createTracing({ log, metrics: createMetrics() }, options);
}

const isRecorded = (unit: Tracing): boolean => unit.span("call", undefined, {}) !== undefined;

describeUnitContract<Tracing>("tracing", {
  create: () => tracing(1),
  isOfUse: isRecorded,
  remains: (unit) => (isRecorded(unit) ? ["it records"] : []),
});

test("what the caller chose is followed, and what is no traceparent is none", async () => {
  const [all, none] = [tracing(1), tracing(0)];
  await Promise.all([all.start(), none.start()]);
  const ids = `00-${"a".repeat(32)}-${"b".repeat(16)}`;
  const spans = (traceparent: string | undefined) =>
    [all, none].map((one) => one.span("call", traceparent, undefined) !== undefined);
  expect(spans(undefined)).toEqual([true, false]);
  expect(spans(`${ids}-01`)).toEqual([true, true]);
  expect(spans(`${ids}-00`)).toEqual([false, false]);
  for (const wrong of ["", "00", ids, `${ids}-1`, `00-${"0".repeat(32)}-${"b".repeat(16)}-01`]) {
    expect(spans(wrong)).toEqual([true, false]);
  }
  await Promise.all([all.stop(), none.stop()]);
});
