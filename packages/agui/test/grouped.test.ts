/**
 * The grouped form, in which existing runners send a whole message, and the rows that it becomes.
 */
import { describe, expect, test } from "vitest";
import { splitEvent, type ValidatedEvent } from "@session-ledger/agui/split-event";

type EventPush = Parameters<typeof splitEvent>[0];

const CREATED = 1_770_389_237_000_000n;
const COMPLETED = CREATED + 2_000_000n;
const NOW_MICROS = COMPLETED + 50n;

/** Python runners print every field of a model, in snake_case, with null for absent ones. */
const START = {
  type: "TEXT_MESSAGE_START",
  timestamp: 1_770_389_237_000,
  raw_event: null,
  message_id: "m-1",
  role: "assistant",
  name: null,
};
const END = { type: "TEXT_MESSAGE_END", timestamp: null, raw_event: null, message_id: "m-1" };
const GROUP = { ...START, accumulated_content: "Hello", fragment_count: 2, end_event: END };

function push(payload: object | string, more: Partial<EventPush> = {}): EventPush {
  return {
    eventType: "TEXT_MESSAGE_START",
    payload: typeof payload === "string" ? payload : JSON.stringify(payload),
    eventCount: 0,
    createdAtMicros: CREATED,
    completedAtMicros: COMPLETED,
    hasFragments: false,
    ...more,
  };
}

function rows(sent: EventPush, mode: "strict" | "lenient" = "strict"): readonly ValidatedEvent[] {
  const result = splitEvent(sent, { mode, nowMicros: NOW_MICROS });
  if (!result.ok) throw new Error(JSON.stringify(result.violations));
  return result.rows;
}

function descriptions(sent: EventPush): readonly string[] {
  const result = splitEvent(sent, { mode: "strict", nowMicros: NOW_MICROS });
  return result.ok ? [] : result.violations.map(({ description }) => description);
}

describe("the rows of a group", () => {
  test("are START, CONTENT and END for a whole message", () => {
    const common = { conformant: true, mark: undefined, address: undefined };
    expect(rows(push(GROUP, { eventCount: 4 }))).toEqual([
      {
        ...common,
        eventType: "TEXT_MESSAGE_START",
        payload:
          '{"type":"TEXT_MESSAGE_START","timestamp":1770389237000,"messageId":"m-1","role":"assistant"}',
        eventCount: 1,
        createdAtMicros: CREATED,
        completedAtMicros: undefined,
      },
      {
        ...common,
        eventType: "TEXT_MESSAGE_CONTENT",
        payload: '{"type":"TEXT_MESSAGE_CONTENT","messageId":"m-1","delta":"Hello"}',
        eventCount: 2,
        createdAtMicros: CREATED,
        completedAtMicros: COMPLETED,
      },
      {
        ...common,
        eventType: "TEXT_MESSAGE_END",
        payload: '{"type":"TEXT_MESSAGE_END","messageId":"m-1"}',
        eventCount: 1,
        createdAtMicros: COMPLETED,
        completedAtMicros: undefined,
      },
    ]);
  });

  test("use the known times where others are absent", () => {
    const times = (more: Partial<EventPush>): readonly (readonly [bigint, bigint | undefined])[] =>
      rows(push(GROUP, more)).map((row) => [row.createdAtMicros, row.completedAtMicros]);
    expect(times({ createdAtMicros: undefined })).toEqual([
      [COMPLETED, undefined],
      [COMPLETED, COMPLETED],
      [COMPLETED, undefined],
    ]);
    expect(times({ createdAtMicros: undefined, completedAtMicros: undefined })).toEqual([
      [NOW_MICROS, undefined],
      [NOW_MICROS, undefined],
      [NOW_MICROS, undefined],
    ]);
  });

  test("have ARGS for a tool call, and its START keeps all fields but the id", () => {
    const text =
      '{"tool_call_id": "c", "tool_call_name": "f", "parent_message_id": "m", "big": 1.0, "accumulated_content": "{\\"a\\": \\u00e9", "fragment_count": 1}';
    expect(
      rows(push(text, { eventType: "TOOL_CALL_START" })).map(({ payload }) => payload),
    ).toEqual([
      '{"type":"TOOL_CALL_START","toolCallId": "c", "toolCallName": "f", "parentMessageId": "m", "big": 1.0}',
      '{"type":"TOOL_CALL_ARGS","toolCallId": "c","delta":"{\\"a\\": \\u00e9"}',
    ]);
  });

  test("stand for a reasoning message of the Claude adapter inside a subagent", () => {
    const group = {
      message_id: "g",
      role: "assistant",
      subagent_run_id: "s",
      metadata: { a: 1 },
      accumulated_content: "hm",
      fragment_count: 3,
      end_event: { message_id: "g" },
    };
    const sent = push(group, { eventType: "REASONING_MESSAGE_START", eventCount: 5 });
    expect(rows(sent).map(({ payload }) => JSON.parse(payload))).toEqual([
      {
        type: "REASONING_MESSAGE_START",
        messageId: "g",
        role: "reasoning",
        subagentRunId: "s",
        metadata: { a: 1 },
      },
      { type: "REASONING_MESSAGE_CONTENT", messageId: "g", subagentRunId: "s", delta: "hm" },
      { type: "REASONING_MESSAGE_END", messageId: "g" },
    ]);
  });

  test("have an empty id each for the Claude runner, which sends no id for reasoning", () => {
    const id = { message_id: null };
    const group = { ...id, role: "assistant", fragment_count: 1, accumulated_content: "hm" };
    const end_event = { type: "REASONING_MESSAGE_END", ...id, timestamp: null };
    const sent = push({ ...group, end_event }, { eventType: "REASONING_MESSAGE_START" });
    expect(rows(sent).map(({ payload }) => payload)).toEqual([
      '{"type":"REASONING_MESSAGE_START","messageId":"","role":"reasoning"}',
      '{"type":"REASONING_MESSAGE_CONTENT","messageId":"","delta":"hm"}',
      '{"type":"REASONING_MESSAGE_END","messageId":""}',
    ]);
  });

  test.each([
    ["interrupted before the first fragment", { fragment_count: 0 }, ["START"]],
    ["ended without a fragment", { fragment_count: 0, end_event: END }, ["START", "END"]],
    ["interrupted", { fragment_count: 1, accumulated_content: "a" }, ["START", "CONTENT"]],
    [
      "without fragments, with nulls and an empty text",
      { fragment_count: 0, accumulated_content: "", end_event: null },
      ["START"],
    ],
  ])("are right for a group that is: %s", (_, fields, expected) => {
    const eventCount = 1 + fields.fragment_count + (expected.includes("END") ? 1 : 0);
    const stored = rows(push({ ...START, ...fields }, { eventCount }));
    expect(stored.map(({ eventType }) => eventType.replace("TEXT_MESSAGE_", ""))).toEqual(expected);
  });

  test("have an empty delta for fragments without text", () => {
    for (const accumulated of [{}, { accumulated_content: null }, { accumulated_content: "" }]) {
      const [, content] = rows(push({ ...START, ...accumulated, fragment_count: 2 }));
      expect(content?.payload).toContain('"delta":""');
    }
  });

  test("keep an END with the id of another message: order is not enforced", () => {
    const end_event = { ...END, message_id: "m-2" };
    expect(rows(push({ ...GROUP, end_event })).at(-1)?.payload).toContain('"messageId":"m-2"');
  });

  test("come only from the key fragment_count on a START type", () => {
    expect(rows(push({ messageId: "m", accumulated_content: "x" }))).toHaveLength(1);
    expect(rows(push({ messageId: "m", fragmentCount: 2 }))).toHaveLength(1);
    const end = push({ messageId: "m", fragment_count: 2 }, { eventType: "TEXT_MESSAGE_END" });
    expect(rows(end)).toHaveLength(1);
  });

  test("are judged one by one in lenient mode", () => {
    const { message_id: _, ...start } = START;
    const stored = rows(
      push({ ...start, accumulated_content: "a", fragment_count: 1, end_event: END }),
      "lenient",
    );
    expect(stored.map(({ conformant, payload }) => [conformant, payload])).toEqual([
      [false, JSON.stringify(start)],
      [false, '{"type":"TEXT_MESSAGE_CONTENT","delta":"a"}'],
      [true, '{"type":"TEXT_MESSAGE_END","messageId":"m-1"}'],
    ]);
  });
});

describe("a group is refused", () => {
  test.each([
    [{ fragment_count: -1 }, "payload.fragment_count must be an integer from 0 to 999998"],
    [{ fragment_count: 1.5 }, "payload.fragment_count must be an integer from 0 to 999998"],
    [{ fragment_count: "2" }, "payload.fragment_count must be an integer from 0 to 999998"],
    [{ fragment_count: null }, "payload.fragment_count must be an integer from 0 to 999998"],
    [{ fragment_count: 999_999 }, "payload.fragment_count must be an integer from 0 to 999998"],
    [
      { fragment_count: 0, accumulated_content: "a" },
      "payload.accumulated_content must be left out where fragment_count is 0",
    ],
    [{ accumulated_content: ["a"] }, "payload.accumulated_content must be a string, or left out"],
    [{ end_event: true }, "payload.end_event must be an object, or left out"],
    [
      { end_event: { ...END, message_id: null } },
      "payload.end_event.messageId must be a string, but is null",
    ],
    [
      { end_event: { ...END, type: "TEXT_MESSAGE_START" } },
      "payload.end_event.type must be TEXT_MESSAGE_END, as event_type is",
    ],
    [{ message_id: null, end_event: null }, "payload.messageId must be a string, but is null"],
    [{ message_id: "a", messageId: "b" }, "payload.messageId and payload.message_id are two"],
  ])("with the fields %o", (fields, description) => {
    const found = descriptions(push({ ...GROUP, ...fields }));
    expect(found).toHaveLength(1);
    expect(found[0]).toContain(description);
  });

  test("with a key twice in its END", () => {
    const text =
      '{"message_id":"m","fragment_count":0,"end_event":{"message_id":"m","message_id":"n"}}';
    expect(descriptions(push(text))).toEqual([
      "payload.end_event.message_id must occur once, but occurs twice",
    ]);
  });

  test.each([1, 3, 5, -4])("with event_count %i for four events", (eventCount) => {
    expect(descriptions(push(GROUP, { eventCount }))).toEqual([
      `event_count must be 4, the events of the group, or left out, but is ${eventCount}`,
    ]);
  });

  test("with a fragment index, as its fragments are no longer known", () => {
    expect(descriptions(push(GROUP, { hasFragments: true }))).toEqual([
      "fragments must be absent in a group",
    ]);
  });

  test("in lenient mode as well when its form is wrong", () => {
    const sent = push({ ...GROUP, fragment_count: -1 });
    expect(splitEvent(sent, { mode: "lenient", nowMicros: NOW_MICROS }).ok).toBe(false);
  });
});
