/**
 * What real agents send is stored: hand-written streams always, recorded ones where CORPUS names
 * their folder. Of the recorded events only those may be refused that no version of AG-UI accepts,
 * so each reason is listed here, with how often it occurs.
 */
import { describe, expect, test } from "vitest";
import { CATALOGUE } from "../../src/agui/catalogue.ts";
import { eventRows, type EventRows } from "../../src/agui/rows.ts";
import { ownStreams, recordedStreams, type StreamEvent } from "../support/streams.ts";

function stored({ eventType, payload }: StreamEvent): EventRows {
  const times = { createdAtMicros: undefined, completedAtMicros: undefined };
  const push = { eventType, payload, eventCount: 0, ...times, hasFragments: false };
  return eventRows(push, { mode: "strict", nowMicros: 0n });
}

interface Tally {
  readonly unchanged: number;
  readonly normalised: number;
  /** How often each thing was wrong. */
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

describe("hand-written streams", () => {
  const streams = ownStreams();

  test("hold every type", () => {
    const types = new Set(streams.flatMap(({ events }) => events.map((event) => event.eventType)));
    expect([...types].toSorted()).toEqual(CATALOGUE.map(({ type }) => type as string).toSorted());
  });

  test.each(streams)("$scenario is stored", ({ scenario, events }) => {
    const { unchanged, normalised, refused } = tally(events);
    expect(refused).toEqual({});
    // The Python runner's events all have a snake_case field or a null.
    expect(scenario === "python-runner" ? unchanged : normalised).toBe(0);
  });
});

const recorded = recordedStreams();

describe.skipIf(recorded === undefined)("recorded streams", () => {
  test("only what no version accepts is refused", () => {
    const events = (recorded ?? []).flatMap((stream) => stream.events);
    expect(tally(events)).toEqual({
      unchanged: 5_070,
      normalised: 1_809,
      refused: {
        "USAGE_METADATA: event_type": 39,
        "TOOL_CALL_RESULT: payload.messageId, payload.content": 27,
        "RUN_ERROR: payload.message": 2,
      },
    });
  });
});
