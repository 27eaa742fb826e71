import { expect, test } from "vitest";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import { SPANS_WAITING_MAX } from "../../src/observability/otlp-tracing.ts";
import type { Tracing } from "../../src/observability/trace.ts";
import { LoadedTracing } from "../../src/observability/tracing.ts";
import { describeUnitContract } from "../support/unit-contract.ts";

/** Nothing is sent: no server listens at this address. */
function tracing(sampleRatio: number, metrics = createMetrics()): Tracing {
  const log = createLogTo({ write: () => undefined });
  const options = { endpoint: "http://127.0.0.1:1/", serviceName: "test", sampleRatio };
  return new LoadedTracing({ log, metrics }, options);
}

const isRecorded = (unit: Tracing): boolean => unit.span("call", undefined, {}) !== undefined;

describeUnitContract<Tracing>("tracing", {
  create: () => tracing(1),
  isOfUse: isRecorded,
  remains: (unit) => (isRecorded(unit) ? ["it records"] : []),
});

test("the caller's sampling decision is used, and an invalid traceparent is ignored", async () => {
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

test("spans above the limit of waiting ones are dropped and counted", async () => {
  const metrics = createMetrics();
  const unit = tracing(1, metrics);
  await unit.start();
  // No span is sent meanwhile: an export needs a turn of the event loop.
  for (let n = 0; n < SPANS_WAITING_MAX + 7; n += 1) unit.span("call", undefined, {})?.end();
  const { values } = await metrics.traceSpans.get();
  expect(values).toMatchObject([{ labels: { outcome: "dropped" }, value: 7 }]);
  await unit.stop();
});
