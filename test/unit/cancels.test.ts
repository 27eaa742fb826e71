/** The looks of one replica for cancels: when they are made, and that a stream is told once. */
import { expect, test } from "vitest";
import type { PushSessionEventsResponse } from "@session-ledger/proto/ambient/v1/event_stream_pb";
import { OpenGroups, type StreamOfSession } from "../../src/handlers/push-stream/open-groups.ts";
import { Cancels } from "../../src/handlers/turns/cancels.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import type { OpenCancel } from "../../src/store/cancels.ts";
import { ManualTimers, settled } from "../support/slow-table.ts";
import { describeUnitContract } from "../support/unit-contract.ts";

/** The cancels of a table, and one stream on this replica. */
class Bench {
  readonly timers = new ManualTimers();
  readonly frames: PushSessionEventsResponse["frame"][] = [];
  open: OpenCancel[] = [];
  looks = 0;
  readonly groups = new OpenGroups();
  readonly cancels: Cancels;

  constructor() {
    const stream: StreamOfSession = {
      sessionId: "here",
      opened: { epoch: 1n, stream: 1n, lastClientSeq: 0n, refused: 0n, isCancelled: false },
      closeGroup: () => undefined,
      send: (frame) => void this.frames.push(frame),
      fence: () => undefined,
    };
    this.groups.enter(stream);
    const never = (): Promise<never> => Promise.reject(new Error("nothing is ended here"));
    this.cancels = new Cancels(
      {
        cancels: {
          readRun: never,
          readCancel: never,
          openCancels: async ({ after }) => {
            if (after === "") this.looks += 1;
            return this.open.filter(({ sessionId }) => sessionId > after);
          },
        },
        ingest: { push: never },
        transcripts: { read: never },
        groups: this.groups,
        timers: this.timers,
        clock: { nowMicros: () => 0n, monotonicMs: () => 0 },
        log: createLogTo({ write: () => undefined }, "silent"),
        metrics: createMetrics(),
      },
      { cancelGraceMs: 30_000, headPollIntervalMs: 1_000 },
    );
  }
}

function cancelOf(sessionId: string, waitedMs: number): OpenCancel {
  const payload = '{"event":"cancel_requested","run_id":"r","reason":"why"}';
  return { sessionId, runId: "r", seq: 7n, payload, waitedMs };
}

/** Started benches, to see what a stopped unit leaves. */
const benches = new WeakMap<Cancels, Bench>();

describeUnitContract("the looks for cancels", {
  create: () => {
    const bench = new Bench();
    benches.set(bench.cancels, bench);
    return bench.cancels;
  },
  isOfUse: async (unit) => {
    await settled();
    return benches.get(unit)?.looks === 1;
  },
  remains: async (unit) => {
    await settled();
    return (benches.get(unit)?.timers.pending ?? []).map(({ delayMs }) => `a timer of ${delayMs}`);
  },
});

test("a stream on this replica receives a cancel once, for any number of looks", async () => {
  const bench = new Bench();
  bench.open = [cancelOf("elsewhere", 0), cancelOf("here", 0)];
  await bench.cancels.start();
  while (bench.looks < 3) {
    await settled();
    bench.timers.fireAll(); // The pace, and the time of the next look.
  }
  await settled();
  const value = { $typeName: "ambient.v1.Cancel", runId: "r", reason: "why", messageSeq: 7n };
  expect(bench.frames).toEqual([{ case: "cancel", value }]);
  await bench.cancels.stop();
});

test("the next look is in a second, or when the time of a cancel is over", async () => {
  const bench = new Bench();
  await bench.cancels.start();
  await settled();
  const delays = (): readonly number[] => bench.timers.pending.map(({ delayMs }) => delayMs);
  expect(delays()).toContain(1_000);
  bench.open = [cancelOf("elsewhere", 29_399.5)];
  bench.timers.fireAll();
  await settled();
  bench.timers.fireAll();
  await settled();
  expect(delays()).toContain(601);
  await bench.cancels.stop();
});
