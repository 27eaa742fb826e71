/**
 * A transcript is what the real AG-UI clients show, after every event of any stream.
 *
 * Method: events are drawn from few ids, so that they meet: messages of one id in several roles, calls
 * whose parent is there or not, results before and after, snapshots in the middle of texts, patches
 * that fail, runs that follow each other. The reducers of the clients get them as an agent's answer
 * and say what they show before each event. Where the two generations differ (docs/ag-ui.md), the
 * transcript follows 1.0.0, so 0.0.59 gets streams that hold no such case.
 */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type JsonObject, parseObject } from "@session-ledger/agui/json";
import { Transcript } from "@session-ledger/agui/transcript/transcript";
import { type Reduced, reduceBy, runClient } from "../support/agui-reducers.ts";
import { APART, MIXED, streamOf } from "../support/agui-colliding.ts";
import { properties } from "../support/random.ts";
import { expectedOf, noVersionAccepts } from "../support/recorded.ts";
import { ownStreams, recordedStreams, type Stream } from "../support/streams.ts";
import { useQuietConsole } from "../support/quiet-console.ts";

const RECORDED = recordedStreams();

useQuietConsole();

describe.each([
  ["1.0.0", MIXED],
  ["1.0.0", APART],
  ["0.0.59", APART],
] as const)("against the reducer of %s", (version, ids) => {
  test("a transcript equals the state of the reducer before every event and after the last", async () => {
    await fc.assert(
      fc.asyncProperty(streamOf(ids, version), async (events) => {
        const client = await reduceBy(version, events);
        expect(transcriptAt("every event", client)).toEqual(shownBy(client, "every event"));
      }),
      properties({ runs: 400 }),
    );
  });
});

/** Of ids and calls that are there twice, which random streams seldom bring to where it matters. */
describe("a transcript equals the state of 1.0.0", () => {
  const say = (messageId: string): JsonObject => ({
    type: "TEXT_MESSAGE_CONTENT",
    messageId,
    delta: "more",
  });
  const call = (toolCallId: string, parentMessageId?: string): JsonObject => ({
    type: "TOOL_CALL_START",
    toolCallId,
    toolCallName: "f",
    ...(parentMessageId !== undefined && { parentMessageId }),
  });
  const argue = (toolCallId: string): JsonObject => ({
    type: "TOOL_CALL_ARGS",
    toolCallId,
    delta: "{}",
  });
  const result = (messageId: string, toolCallId: string): JsonObject => ({
    type: "TOOL_CALL_RESULT",
    messageId,
    toolCallId,
    content: "",
  });
  const snapshot = (...messages: readonly JsonObject[]): JsonObject => ({
    type: "MESSAGES_SNAPSHOT",
    messages,
  });
  const caller = (id: string, ...calls: readonly string[]): JsonObject => ({
    id,
    role: "assistant",
    toolCalls: calls.map((one) => ({
      id: one,
      type: "function",
      function: { name: "f", arguments: "" },
    })),
  });
  const user = (id: string): JsonObject => ({ id, role: "user", content: "" });

  test.each<readonly [string, readonly JsonObject[]]>([
    [
      "when a result stands in front of a message with its id",
      [
        call("c", "m"),
        { type: "TEXT_MESSAGE_START", messageId: "x", role: "user" },
        result("x", "c"),
        say("x"),
      ],
    ],
    [
      "when of two messages of one id the first goes",
      [
        snapshot(user("x"), { id: "x", role: "reasoning", content: "" }, user("y")),
        say("x"),
        { type: "MESSAGES_SNAPSHOT", messages: [user("y")] },
        say("x"),
      ],
    ],
    [
      "when of two calls of one id the first goes",
      [snapshot(caller("x", "c"), caller("y", "c")), snapshot(caller("y", "c")), argue("c")],
    ],
    [
      "when a snapshot gives a call to an earlier message too",
      [
        snapshot(caller("x", "c"), caller("y", "d")),
        snapshot(caller("x", "d"), caller("y", "d", "c")),
        argue("c"),
        argue("d"),
        result("r", "d"),
      ],
    ],
    [
      "when that call is also on a message that stays",
      [
        snapshot(caller("x", "c"), { ...caller("y", "d"), role: "reasoning" }),
        snapshot(caller("x", "d")),
        argue("d"),
      ],
    ],
    [
      "when a message that had calls becomes an activity",
      [
        snapshot(caller("x", "c"), caller("y", "c")),
        { type: "ACTIVITY_SNAPSHOT", messageId: "x", activityType: "PLAN", content: {} },
        argue("c"),
        result("r", "c"),
      ],
    ],
    [
      "when a result of a run of results becomes an activity",
      [
        call("c", "m"),
        result("r1", "c"),
        result("r2", "c"),
        { type: "ACTIVITY_SNAPSHOT", messageId: "r1", activityType: "PLAN", content: {} },
        result("r3", "c"),
      ],
    ],
    [
      "when calls stand on a message of another role",
      [
        snapshot({ ...caller("x", "c"), role: "user" }, caller("y", "c")),
        argue("c"),
        result("r", "c"),
      ],
    ],
  ])("%s", async (_, events) => {
    const client = await reduceBy("1.0.0", events);
    expect(transcriptAt("every event", client)).toEqual(shownBy(client, "every event"));
  });
});

describe.each(["1.0.0", "0.0.59"] as const)("with the whole client %s", (version) => {
  test("a transcript of the hand-written streams equals the state of the client", async () => {
    for (const stream of ownStreams()) {
      const client = await runClient(version, valuesOf(stream));
      expect(transcriptAt("every event", client)).toEqual(shownBy(client, "every event"));
    }
  });

  test.skipIf(RECORDED === undefined)(
    "a transcript of the recorded streams equals the state of the client",
    async () => {
      let events = 0;
      for (const stream of RECORDED ?? []) {
        const client = await runClient(version, valuesOf(stream));
        const when = client.steps.length < 60 ? "every event" : "the end";
        expect(transcriptAt(when, client)).toEqual(shownBy(client, when));
        events += client.steps.length;
      }
      expect(events).toBeGreaterThan(5_000);
    },
  );
});

test("a transcript changes none of its events", () => {
  fc.assert(
    fc.property(streamOf(MIXED, "1.0.0"), (events) => {
      const before = JSON.stringify(events);
      const transcript = new Transcript();
      for (const one of events) transcript.apply(one);
      expect(JSON.stringify(events)).toBe(before);
    }),
    properties({ runs: 400 }),
  );
});

test("the weight of a transcript is known after any events, and equals a new count", () => {
  fc.assert(
    fc.property(streamOf(MIXED, "1.0.0"), (events) => {
      const transcript = new Transcript();
      for (const one of events) transcript.apply(one);
      // Answered calls count until the run ends.
      const ends = { type: "RUN_FINISHED", threadId: "t", runId: "r" };
      transcript.apply(ends);
      const rebuilt = new Transcript();
      const outcome = { type: "interrupt", interrupts: [{ id: "i", reason: "r" }] };
      for (const runId of transcript.unansweredRuns) rebuilt.apply({ ...ends, runId, outcome });
      rebuilt.apply(ends);
      rebuilt.apply({ type: "MESSAGES_SNAPSHOT", messages: transcript.messages() });
      if (transcript.state !== undefined)
        rebuilt.apply({ type: "STATE_SNAPSHOT", snapshot: transcript.state });
      rebuilt.messages();
      const ids = transcript.messages().map(({ id }) => id);
      // A property of two messages with one id is counted once, and may be in both.
      const atLeast = new Set(ids).size < ids.length ? rebuilt.bytes / 2 : rebuilt.bytes;
      expect(transcript.bytes).toBeGreaterThanOrEqual(atLeast);
      expect(transcript.bytes).toBeLessThanOrEqual(rebuilt.bytes);
    }),
    properties({ runs: 400 }),
  );
});

function valuesOf({ events }: Stream): readonly JsonObject[] {
  return events
    .filter((one) => !noVersionAccepts(one))
    .map((one) => parseObject(JSON.stringify(expectedOf(one).value)));
}

type When = "every event" | "the end";

interface Shown {
  readonly messages: unknown;
  readonly state: unknown;
}

interface Reading {
  readonly steps: readonly Shown[];
  readonly end: Shown;
  readonly interrupts: unknown;
}

function shownBy({ steps, shown, pendingInterrupts }: Reduced, when: When): Reading {
  const parsed = ({ messages, state }: Reduced["shown"]): Shown => ({
    messages: JSON.parse(messages),
    state: JSON.parse(state),
  });
  return {
    steps: when === "the end" ? [] : steps.map(({ before }) => parsed(before)),
    end: parsed(shown),
    interrupts: JSON.parse(pendingInterrupts),
  };
}

/** Given what reached the client's reducer: chunks expanded, old types translated. */
function transcriptAt(when: When, { steps }: Reduced): Reading {
  const transcript = new Transcript();
  const read: Shown[] = [];
  for (const { event: one } of steps) {
    if (when === "every event") read.push(readingOf(transcript));
    transcript.apply(one);
  }
  return { steps: read, end: readingOf(transcript), interrupts: transcript.interrupts() };
}

/** A client has an empty object for a state before there is one. */
function readingOf(transcript: Transcript): Shown {
  const { state = {} } = transcript;
  const read = JSON.stringify({ messages: transcript.messages(), state });
  const { messages, state: parsed } = parseObject(read);
  return { messages, state: parsed };
}
