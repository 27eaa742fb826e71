import { describe, expect, test } from "vitest";
import type { ValidationMode } from "@session-ledger/agui/validate";
import { splitEvent, splitRawEvent, type ValidatedEvent } from "@session-ledger/agui/split-event";
import type { Violation } from "@session-ledger/base/errors";

type EventPush = Parameters<typeof splitEvent>[0];

const NOW_MICROS = 1_770_389_237_000_000n;

function push(eventType: string, payload: unknown, more: Partial<EventPush> = {}): EventPush {
  return {
    eventType,
    payload: typeof payload === "string" ? payload : JSON.stringify(payload),
    eventCount: 0,
    createdAtMicros: undefined,
    completedAtMicros: undefined,
    hasFragments: false,
    ...more,
  };
}

function rowOf(sent: EventPush, mode: ValidationMode = "strict"): ValidatedEvent {
  const result = splitEvent(sent, { mode, nowMicros: NOW_MICROS });
  if (!result.ok) throw new Error(JSON.stringify(result.violations));
  expect(result.rows).toHaveLength(1);
  return result.rows[0];
}

function rawRow(
  eventType: string,
  payload: object,
  mode: ValidationMode = "strict",
): ValidatedEvent {
  const event = { eventType, payload: JSON.stringify(payload), createdAtMicros: NOW_MICROS };
  const result = splitRawEvent(event, mode);
  if (!result.ok) throw new Error(JSON.stringify(result.violations));
  return result.rows[0];
}

function violations(sent: EventPush, mode: ValidationMode = "strict"): readonly Violation[] {
  const result = splitEvent(sent, { mode, nowMicros: NOW_MICROS });
  return result.ok ? [] : result.violations;
}

const CONTENT = { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "x" };

describe("event_type", () => {
  test("is required, and its absence is the only violation reported", () => {
    expect(violations(push("", "not JSON", { eventCount: -1 }))).toEqual([
      { field: "event_type", description: "event_type is required" },
    ]);
  });

  test("equals the payload's type, which is added where it is absent", () => {
    expect(violations(push("TEXT_MESSAGE_END", CONTENT))).toEqual([
      {
        field: "payload.type",
        description: "payload.type must be TEXT_MESSAGE_END, as event_type is",
      },
    ]);
    expect(violations(push("RAW", { type: null, event: 1 }))[0]?.field).toBe("payload.type");
    expect(rowOf(push("RAW", ' { "event" : 1.0 } ')).payload).toBe(
      ' {"type":"RAW", "event" : 1.0 } ',
    );
    expect(rowOf(push("THINKING_END", "{ }")).payload).toBe('{"type":"THINKING_END" }');
  });

  test("is refused in strict mode outside of the catalogue, and quoted in short form", () => {
    const said = "event_type must be an AG-UI event type, but is USAGE_METADATA; the types are ";
    expect(violations(push("USAGE_METADATA", {}))).toEqual([
      { field: "event_type", description: expect.stringContaining(said) },
    ]);
    const [violation] = violations(push(`\u001b[31m${"x".repeat(1_000)}`, {}));
    // A longer description would lose the end of the list in the status.
    expect(violation?.description.length).toBeLessThan(600);
    expect(violation?.description).not.toContain("\u001b");
  });
});

// The answer was the whole list of types, twice, and the meant one in the middle.
test.each([
  ["RUN_STARTD", "RUN_STARTED"],
  ["RUN_START", "RUN_STARTED"],
  ["TOOL_CALL_RESULTS", "TOOL_CALL_RESULT"],
  ["textMessageContnt", "TEXT_MESSAGE_CONTENT"],
])("regression: the mistyped %s gets the nearest type, and no list", (given, meant) => {
  const said = `event_type must be an AG-UI event type, but is ${given}; did you mean ${meant}?`;
  expect(violations(push(given, {}))).toEqual([{ field: "event_type", description: said }]);
});

test.each(["text_message_start", "textMessageStart", "TextMessageStart", "text-message.start"])(
  "regression: %s gets a suggestion",
  (given) => {
    expect(violations(push(given, {}))).toEqual([
      {
        field: "event_type",
        description: `event_type must be an AG-UI event type, but is ${/^\w+$/.test(given) ? given : JSON.stringify(given)}; did you mean TEXT_MESSAGE_START?`,
      },
    ]);
  },
);

test("regression: an unknown event type gets the list of types", () => {
  const [violation] = violations(push("USAGE_METADATA", {}));
  expect(violation?.description).toContain("TEXT_MESSAGE_{START,CONTENT,END,CHUNK}, TOOL_CALL_{");
  expect(violation?.description).toMatch(/RAW, CUSTOM$/);
});

describe("event_count", () => {
  test.each([
    [0, 1],
    [1, 1],
    [7, 7],
    [1_000_000, 1_000_000],
  ])("of %i on a fragment is stored as %i", (eventCount, stored) => {
    expect(rowOf(push("TEXT_MESSAGE_CONTENT", CONTENT, { eventCount })).eventCount).toBe(stored);
  });

  test.each([-1, 1_000_001, -2_147_483_648])("of %i is refused", (eventCount) => {
    expect(violations(push("TEXT_MESSAGE_CONTENT", CONTENT, { eventCount }))).toEqual([
      {
        field: "event_count",
        description: `event_count must be from 0 to 1000000, but is ${eventCount}`,
      },
    ]);
  });

  test("is above 1 only for fragments, in both modes", () => {
    const end = push("TEXT_MESSAGE_END", { messageId: "m" }, { eventCount: 2 });
    expect(violations(end)[0]?.field).toBe("event_count");
    expect(violations({ ...end, eventType: "FOREIGN" }, "lenient")[0]?.field).toBe("event_count");
    expect(rowOf({ ...end, eventCount: 1 }).eventCount).toBe(1);
  });
});

describe("times", () => {
  const times = (createdAtMicros?: bigint, completedAtMicros?: bigint): ValidatedEvent =>
    rowOf(push("TEXT_MESSAGE_CONTENT", CONTENT, { createdAtMicros, completedAtMicros }));

  test("are the earlier of now and completed_at where created_at is absent", () => {
    expect(times().createdAtMicros).toBe(NOW_MICROS);
    expect(times(undefined, NOW_MICROS - 5n).createdAtMicros).toBe(NOW_MICROS - 5n);
    expect(times(undefined, NOW_MICROS + 5n)).toMatchObject({
      createdAtMicros: NOW_MICROS,
      completedAtMicros: NOW_MICROS + 5n,
    });
    expect(times(7n)).toMatchObject({ createdAtMicros: 7n, completedAtMicros: undefined });
    expect(times(7n, 7n)).toMatchObject({ createdAtMicros: 7n, completedAtMicros: 7n });
  });

  test("are refused with completed_at before created_at", () => {
    const sent = push("TEXT_MESSAGE_CONTENT", CONTENT, {
      createdAtMicros: 8n,
      completedAtMicros: 7n,
    });
    expect(violations(sent)).toEqual([
      { field: "completed_at", description: "completed_at must not be before created_at" },
    ]);
    expect(violations({ ...sent, payload: "[", eventCount: -1 }).map(({ field }) => field)).toEqual(
      ["completed_at", "payload"],
    );
  });
});

describe("marks", () => {
  test.each(["strict", "lenient"] as const)(
    "a run id of more than 128 bytes is refused in %s mode, as every row of the run repeats it",
    (mode) => {
      const started = (runId: string) => push("RUN_STARTED", { threadId: "t", runId });
      const violation = {
        field: "payload.runId",
        description: "payload.runId must have at most 128 bytes",
      };
      for (const runId of ["r".repeat(129), "é".repeat(65), "\0".repeat(43)])
        expect(violations(started(runId), mode)).toEqual([violation]);
      for (const runId of ["r".repeat(128), "é".repeat(64), "\0".repeat(42)])
        expect(violations(started(runId), mode)).toEqual([]);
    },
  );

  test("a run id becomes text that PostgreSQL can hold", () => {
    const { mark } = rowOf(push("RUN_STARTED", { threadId: "t", runId: "a\0b\ud800" }));
    expect(mark).toEqual({ kind: "open", runId: "a\ufffdb\ufffd" });
  });

  const run = { threadId: "t", runId: "r" };

  test("RUN_STARTED opens its run, RUN_FINISHED and RUN_ERROR close the open one", () => {
    expect(rowOf(push("RUN_STARTED", { thread_id: "t", run_id: "r" })).mark).toEqual({
      kind: "open",
      runId: "r",
    });
    expect(rowOf(push("RUN_STARTED", { threadId: "", runId: "" })).mark).toEqual({
      kind: "open",
      runId: "",
    });
    const ended = (outcome: string) => ({ kind: "close", outcome });
    expect(rowOf(push("RUN_FINISHED", run)).mark).toEqual(ended("finished"));
    expect(rowOf(push("RUN_ERROR", { message: "" })).mark).toEqual(ended("error"));
    const asking = {
      ...run,
      outcome: { type: "interrupt", interrupts: [{ id: "i", reason: "r" }] },
    };
    expect(rowOf(push("RUN_FINISHED", asking)).mark).toEqual(ended("interrupted"));
    expect(rowOf(push("TEXT_MESSAGE_CONTENT", CONTENT)).mark).toBeUndefined();
  });

  test("a row of a raw event has the fields that decide its place in the order", () => {
    expect(rawRow("TOOL_CALL_CHUNK", { tool_call_id: "c" }).address).toEqual({
      type: "TOOL_CALL_CHUNK",
      key: "c",
      owner: undefined,
      canStart: false,
    });
    const step = { stepName: "a", subagentRunId: "s" };
    expect(rawRow("STEP_STARTED", step).address).toMatchObject({ key: "1:sa", owner: "s" });
    // Version 0.0.57 has no subagents, and accepts any value in the field.
    expect(rawRow("TEXT_MESSAGE_END", { messageId: "", subagentRunId: 7 }).address).toEqual({
      type: "TEXT_MESSAGE_END",
      key: "",
      owner: undefined,
      canStart: true,
    });
  });

  test("a nonconformant event changes nothing", () => {
    for (const [type, payload] of [
      ["RUN_STARTED", {}],
      ["RUN_FINISHED", { runId: "r" }],
      ["RUN_ERROR", { error: null }],
    ] as const) {
      const { conformant, mark, address: place } = rawRow(type, payload, "lenient");
      expect([conformant, mark, place]).toEqual([false, undefined, undefined]);
    }
  });
});

describe("lenient mode", () => {
  test.each([
    ["a foreign type", "USAGE_METADATA", '{"input_tokens": 1, "x": null}'],
    ["another type in the payload", "RAW", '{"type":"FOO"}'],
    ["a missing field", "TEXT_MESSAGE_CONTENT", '{ "message_id":"m", "raw_event":null }'],
    ["two spellings", "STEP_STARTED", '{"stepName":"a","step_name":"b"}'],
    ["an empty object", "A", "{}"],
  ])("stores %s as it came", (_, type, payload) => {
    expect(rowOf(push(type, payload), "lenient")).toMatchObject({ payload, conformant: false });
    expect(violations(push(type, payload))).not.toEqual([]);
  });

  test("normalises the types that it knows", () => {
    expect(rowOf(push("STEP_STARTED", { step_name: "a" }), "lenient")).toMatchObject({
      payload: '{"type":"STEP_STARTED","stepName":"a"}',
      conformant: true,
    });
  });

  test.each(["usage", "1ST", "_A", "A-B", `A${"B".repeat(64)}`, "Ä"])(
    "refuses a type like %s",
    (type) => {
      expect(violations(push(type, {}), "lenient")[0]?.field).toBe("event_type");
    },
  );

  test("stores a type of 64 characters", () => {
    expect(rowOf(push(`A${"_".repeat(63)}`, {}), "lenient").conformant).toBe(false);
  });

  test.each(["", "[]", "1", '{"a":1,"a":1}', `{"a":${"[".repeat(64)}${"]".repeat(64)}}`])(
    "refuses the payload %s, as strict mode does",
    (payload) => {
      expect(violations(push("FOREIGN", payload), "lenient")).toHaveLength(1);
    },
  );
});

describe("META", () => {
  test.each(["strict", "lenient"] as const)(
    "is accepted in %s mode, but belongs to no version",
    (mode) => {
      const sent = push("META", { meta_type: "thumbs_up", payload: { message_id: "m" } });
      expect(rowOf(sent, mode)).toMatchObject({
        payload: '{"type":"META","metaType":"thumbs_up","payload":{"message_id":"m"}}',
        conformant: false,
        mark: undefined,
      });
    },
  );

  test("requires a metaType", () => {
    expect(violations(push("META", { payload: [] })).map(({ description }) => description)).toEqual(
      [
        "payload.metaType must be a string, but is absent",
        "payload.payload must be an object, but is an empty array",
      ],
    );
  });
});
