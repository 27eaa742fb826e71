/** The next step of a stream of events: each row of the table has a view and its step. */
import { describe, expect, test } from "vitest";
import { nextStep } from "@session-ledger/runner/internal/writer/stream";

type StreamView = Parameters<typeof nextStep>[0];

type StreamStep = ReturnType<typeof nextStep>;

const LIMITS = { progressTimeoutMs: 1_000, idleTimeoutMs: 300 };

/** All events were sent and settled a moment ago. */
const RESTING: StreamView = {
  unsentEvents: 0,
  unacknowledgedEvents: 0,
  unacknowledgedBytes: 0,
  unacknowledgedBytesMax: 1_000,
  isBlocked: false,
  wantsFlush: false,
  isLeft: false,
  wantsCancels: false,
  sinceSentMs: 100,
  sinceProgressMs: 100,
  sinceActiveMs: 100,
};
const AWAITED = { unacknowledgedEvents: 1, unacknowledgedBytes: 100 };
const FULL = { unacknowledgedEvents: 9, unacknowledgedBytes: 1_000 };

const CASES: readonly (readonly [string, Partial<StreamView>, StreamStep])[] = [
  ["nothing to do", {}, { kind: "wait", forMs: 200 }],
  ["nothing to do for long", { sinceActiveMs: 300 }, { kind: "end" }],
  [
    "nothing to do for long but to hear",
    { wantsCancels: true, sinceActiveMs: 300 },
    { kind: "wait", forMs: 300 },
  ],
  ["nothing left of a lane of an earlier process", { isLeft: true }, { kind: "end" }],
  ["an event after a pause", { unsentEvents: 1 }, { kind: "send" }],
  ["the first event of all", { unsentEvents: 1, sinceSentMs: Infinity }, { kind: "send" }],
  [
    "an event just after another",
    { unsentEvents: 1, sinceSentMs: 3 },
    { kind: "coalesce", forMs: 7 },
  ],
  [
    "a frame full of events just after another",
    { unsentEvents: 512, sinceSentMs: 0 },
    { kind: "send" },
  ],
  ["an event while others are under way", { ...AWAITED, unsentEvents: 1 }, { kind: "send" }],
  [
    "the maximum of bytes under way",
    { ...FULL, unsentEvents: 1, sinceProgressMs: 400 },
    { kind: "wait", forMs: 600 },
  ],
  [
    "a full transport",
    { ...AWAITED, unsentEvents: 1, isBlocked: true },
    { kind: "wait", forMs: 900 },
  ],
  ["all events sent, and not acknowledged", AWAITED, { kind: "wait", forMs: 900 }],
  ["all events sent, and a flush wanted", { ...AWAITED, wantsFlush: true }, { kind: "flush" }],
  [
    "a flush wanted before all is sent",
    { ...AWAITED, wantsFlush: true, unsentEvents: 1 },
    { kind: "send" },
  ],
  ["no acknowledgement for long", { ...AWAITED, sinceProgressMs: 1_000 }, { kind: "stalled" }],
  [
    "no acknowledgement for long, and a full transport",
    { ...AWAITED, isBlocked: true, unsentEvents: 1, sinceProgressMs: 2_000 },
    { kind: "stalled" },
  ],
  [
    "a long time without anything to acknowledge",
    { sinceProgressMs: 9_000, unsentEvents: 1 },
    { kind: "send" },
  ],
];

describe("the next step of a stream", () => {
  test.each(CASES)("is right for: %s", (_, view, step) => {
    expect(nextStep({ ...RESTING, ...view }, LIMITS)).toEqual(step);
  });

  test("sends one event under any limit of the service", () => {
    const view = { ...RESTING, unsentEvents: 1, unacknowledgedBytesMax: 0 };
    expect(nextStep(view, LIMITS)).toEqual({ kind: "send" });
  });
});
