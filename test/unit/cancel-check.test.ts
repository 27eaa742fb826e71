/** The checker of cancels reports nothing for a session that keeps the promises, and each broken one. */
import { expect, test } from "vitest";
import { type CancelledSession, cancelProblemsOf } from "../support/cancel-check.ts";
import type { Row } from "../support/history.ts";

function row(stream: Row["stream"], fields: Partial<Row>): Row {
  return {
    stream,
    sessionId: "s",
    seq: 1n,
    eventCount: 1,
    id: "1",
    eventType: "",
    payload: "{}",
    createdAtMicros: 1n,
    runId: "",
    ...fields,
  };
}

const asked = (seq: bigint, runId: string): Row =>
  row("messages", { seq, payload: JSON.stringify({ event: "cancel_requested", run_id: runId }) });
const ended = (runId: string): Row => row("events", { eventType: "RUN_FINISHED", runId });

function problems(rest: Partial<CancelledSession>): readonly string[] {
  return cancelProblemsOf({
    sessionId: "s",
    messages: [asked(1n, "a 1"), asked(2n, "a 10")],
    events: [ended("a 1"), ended("a 10"), row("events", { eventType: "RUN_ERROR" })],
    cancels: [
      { runId: "a 1", seq: 1n },
      { runId: "a 10", seq: 2n },
      { runId: "a 3", seq: undefined },
    ],
    ...rest,
  });
}

test("cancels that are there once, whose runs have ended once, have no problem", () => {
  expect(problems({})).toEqual([]);
});

test.each([
  [
    "a cancel that is lost",
    { messages: [asked(2n, "a 10")] },
    "s: the cancel of run a 1 is not there as message 1",
  ],
  [
    "a cancel that is there twice",
    { messages: [asked(1n, "a 1"), asked(2n, "a 10"), asked(3n, "a 1")] },
    "s: the cancel of run a 1 is there 2 times",
  ],
  [
    "a run that goes on",
    { events: [ended("a 1")] },
    "s: the cancel of run a 10 was answered, and the run has 0 ends",
  ],
  [
    "a run that ends twice",
    { events: [ended("a 1"), ended("a 10"), ended("a 10")] },
    "s: the cancel of run a 10 was answered, and the run has 2 ends",
  ],
] as const)("%s is a problem", (_, rest, problem) => {
  expect(problems(rest)).toEqual([problem]);
});
