/**
 * The events of real agents are stored: hand-written streams always, recorded ones where CORPUS
 * names their folder. A recorded event may be refused only if no version of AG-UI accepts it, and
 * counts as out of order only if AG-UI's client refuses it. Each reason is listed with its count.
 */
import { describe, expect, test } from "vitest";
import { CATALOGUE } from "../../src/agui/catalogue.ts";
import { eventRows } from "../../src/agui/rows.ts";
import { Sequence } from "../../src/agui/sequence.ts";
import { ownStreams, recordedStreams, type Stream, type StreamEvent } from "../support/streams.ts";

type EventRows = ReturnType<typeof eventRows>;

function stored({ eventType, payload }: StreamEvent): EventRows {
  const times = { createdAtMicros: undefined, completedAtMicros: undefined };
  const push = { eventType, payload, eventCount: 0, ...times, hasFragments: false };
  return eventRows(push, { mode: "strict", nowMicros: 0n });
}

interface Tally {
  readonly unchanged: number;
  readonly normalised: number;
  /** The number of refusals for each reason. */
  readonly refused: Readonly<Record<string, number>>;
}

function tally(events: readonly StreamEvent[]): Tally {
  const refused: Record<string, number> = {};
  let unchanged = 0;
  let normalised = 0;
  for (const event of events) {
    const result = stored(event);
    if (!result.ok) {
      const fields = result.violations.map(({ field }) => field).join(", ");
      const reason = `${event.eventType}: ${fields}`;
      refused[reason] = (refused[reason] ?? 0) + 1;
      continue;
    }
    expect(result.rows).toHaveLength(1);
    if (result.rows[0].payload === event.payload) unchanged += 1;
    else normalised += 1;
  }
  return { unchanged, normalised, refused };
}

/** How often each rule was broken by each type. */
function outOfOrder(streams: readonly Stream[]): Readonly<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const { events } of streams) {
    const sequence = new Sequence("before");
    for (const event of events) {
      const result = stored(event);
      const place = result.ok ? result.rows[0].place : undefined;
      const rule = place && sequence.observe(place);
      if (rule === undefined) continue;
      const what = `${event.eventType}: ${rule}`;
      counts[what] = (counts[what] ?? 0) + 1;
    }
  }
  return counts;
}

describe("hand-written streams", () => {
  const streams = ownStreams();

  test("have every type", () => {
    const types = new Set(streams.flatMap(({ events }) => events.map((event) => event.eventType)));
    expect([...types].toSorted()).toEqual(CATALOGUE.map(({ type }) => type as string).toSorted());
  });

  test.each(streams)("$scenario is stored", ({ scenario, events }) => {
    const { unchanged, normalised, refused } = tally(events);
    expect(refused).toEqual({});
    // The Python runner's events all have a snake_case field or a null.
    expect(scenario === "python-runner" ? unchanged : normalised).toBe(0);
  });

  test("are in order, except for the stream with intended errors", () => {
    const failing = streams.filter(({ scenario }) => scenario === "error-and-retry");
    expect(outOfOrder(streams)).toEqual(outOfOrder(failing));
    expect(outOfOrder(failing)).toEqual({
      "TOOL_CALL_ARGS: fragment_without_start": 1,
      "TEXT_MESSAGE_START: start_twice": 1,
    });
  });
});

const recorded = recordedStreams();

describe.skipIf(recorded === undefined)("recorded streams", () => {
  test("are refused only where no version of AG-UI accepts the event", () => {
    const events = (recorded ?? []).flatMap((stream) => stream.events);
    expect(tally(events)).toEqual({
      unchanged: 5_070,
      normalised: 1_811,
      refused: {
        "USAGE_METADATA: event_type": 39,
        "TOOL_CALL_RESULT: payload.messageId": 27,
      },
    });
  });

  test("have a known number of events out of order", () => {
    // Four agents finish a run twice; LangGraph's says more than once that a step ends and begins.
    expect(outOfOrder(recorded ?? [])).toEqual({
      "STEP_STARTED: start_twice": 34,
      "STEP_FINISHED: end_without_start": 41,
      "RUN_FINISHED: run_finished_with_open_construct": 7,
      "RUN_FINISHED: after_run_end": 4,
    });
  });
});
