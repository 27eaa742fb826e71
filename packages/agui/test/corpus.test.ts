/**
 * The events of real agents are stored: hand-written streams always, recorded ones where CORPUS
 * names their folder. A recorded event may be refused only if no version of AG-UI accepts it. Each
 * reason is listed with its count.
 */
import { describe, expect, test } from "vitest";
import { CATALOGUE } from "@session-ledger/agui/catalogue";
import { splitEvent } from "@session-ledger/agui/split-event";
import { ownStreams, recordedStreams, type StreamEvent } from "../../../test/support/streams.ts";

type EventRows = ReturnType<typeof splitEvent>;

function stored({ eventType, payload }: StreamEvent): EventRows {
  const times = { createdAtMicros: undefined, completedAtMicros: undefined };
  const push = { eventType, payload, eventCount: 0, ...times, hasFragments: false };
  return splitEvent(push, { mode: "strict", nowMicros: 0n });
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
});
