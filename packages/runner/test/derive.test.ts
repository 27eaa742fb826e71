/** The table of docs/dual-push.md, row by row, with the cases that are easy to get wrong. */
import { describe, expect, test } from "vitest";
import {
  type DerivedMessage,
  type DeriveOptions,
  MessageDeriver,
} from "@session-ledger/runner/internal/derive/derive";
import { text } from "../../../test/support/agui-events.ts";

type Event = Readonly<Record<string, unknown>>;

const STARTED = { type: "RUN_STARTED", threadId: "t", runId: "r" };
const FINISHED = { type: "RUN_FINISHED", threadId: "t", runId: "r" };

function derive(events: readonly Event[], options: DeriveOptions = {}): readonly DerivedMessage[] {
  const deriver = new MessageDeriver(options);
  return events.flatMap((event) => deriver.next(JSON.stringify(event)));
}

/** The messages of a run without its lifecycle, as `type payload`. */
function said(...events: readonly Event[]): readonly string[] {
  return derive([STARTED, ...events], { lifecycle: false }).map(
    ({ eventType, payload }) => `${eventType} ${payload}`,
  );
}

function call(toolCallId: string, ...deltas: readonly string[]): readonly Event[] {
  return [
    { type: "TOOL_CALL_START", toolCallId, toolCallName: "add" },
    ...deltas.map((delta) => ({ type: "TOOL_CALL_ARGS", toolCallId, delta })),
    { type: "TOOL_CALL_END", toolCallId },
  ];
}

describe("TEXT_MESSAGE_END", () => {
  test("gives one assistant message with the whole text", () => {
    expect(said(...text("m", "Hel", "", "lo", " there"))).toEqual(["assistant Hello there"]);
  });

  test.each(["", " ", "\n\t \u00a0\ufeff"])(
    "gives no message for only white space: %j",
    (blank) => {
      expect(said(...text("m", blank))).toEqual([]);
    },
  );

  test("keeps white space around the text", () => {
    expect(said(...text("m", "\n a "))).toEqual(["assistant \n a "]);
  });

  test.each(["user", "system", "developer", "tool"])("gives no message for the role %s", (role) => {
    const [start, ...rest] = text("m", "mine");
    expect(said({ ...start, role }, ...rest)).toEqual([]);
  });

  test.each([{}, { role: null }, { role: "assistant" }])(
    "gives a message for a START with %j",
    (role) => {
      const start = { type: "TEXT_MESSAGE_START", messageId: "m", ...role };
      expect(said(start, ...text("m", "a").slice(1))).toEqual(["assistant a"]);
    },
  );

  test("gives an assistant's message without a START, and none without content", () => {
    expect(said(...text("m", "a").slice(1))).toEqual(["assistant a"]);
    expect(said({ type: "TEXT_MESSAGE_END", messageId: "m" })).toEqual([]);
  });

  test("gives one message when it comes twice", () => {
    expect(said(...text("m", "a"), { type: "TEXT_MESSAGE_END", messageId: "m" })).toHaveLength(1);
  });

  test("continues after a second START, as clients do", () => {
    const [start, content] = text("m", "I was saying");
    expect(said(start ?? {}, content ?? {}, ...text("m", " nothing"))).toEqual([
      "assistant I was saying nothing",
    ]);
  });

  test("joins the halves of a character, and replaces a single half by U+FFFD", () => {
    expect(said(...text("m", "\ud83d", "\ude00", "!"))).toEqual(["assistant 😀!"]);
    expect(said(...text("m", "a\ud83d"))).toEqual(["assistant a\ufffd"]);
  });

  test("replaces U+0000, which no payload can hold, by U+FFFD", () => {
    expect(said(...text("m", "a\0b"))).toEqual(["assistant a\ufffdb"]);
  });
});

describe("TOOL_CALL_END", () => {
  const used = (...deltas: readonly string[]): unknown => {
    const [message] = derive([STARTED, ...call("c", ...deltas)], { lifecycle: false });
    expect(message?.eventType).toBe("tool_use");
    return JSON.parse(message?.payload ?? "");
  };
  const add = { tool: "add", tool_call_id: "c" };

  test.each([
    ["an object", ['{"a":', '1,"b":{}}'], { a: 1, b: {} }],
    ["an object with space around it", ['\n {"a":1} '], { a: 1 }],
    ["a list", ["[1,2]"], { value: [1, 2] }],
    ["null", ["null"], { value: null }],
    ["a number", ["1"], { value: 1 }],
    ["a text", ['"x"'], { value: "x" }],
    ["no JSON", ['{"a":1}', '{"a":2}'], { raw: '{"a":1}{"a":2}' }],
    ["cut off", ['{"a":'], { raw: '{"a":' }],
    ["space", [" "], { raw: " " }],
  ])("gives the input of arguments that are %s", (_, deltas, input) => {
    expect(used(...deltas)).toEqual({ ...add, input });
  });

  test("gives no input without arguments", () => {
    expect(used()).toEqual(add);
    expect(used("", "")).toEqual(add);
  });

  test("keeps the digits of numbers", () => {
    expect(said(...call("c", '{"id":9007199254740993,"x":1.0}'))).toEqual([
      'tool_use {"tool":"add","tool_call_id":"c","input":{"id":9007199254740993,"x":1.0}}',
    ]);
  });

  test("names the tool unknown without a START", () => {
    expect(said(...call("c", "{}").slice(1))).toEqual([
      'tool_use {"tool":"unknown","tool_call_id":"c","input":{}}',
    ]);
  });

  test("uses the name of a second START and keeps the arguments, as clients do", () => {
    const [start, args, end] = call("c", "{}");
    const renamed = { ...start, toolCallName: "sum" };
    expect(said(start ?? {}, args ?? {}, renamed, end ?? {})).toEqual([
      'tool_use {"tool":"sum","tool_call_id":"c","input":{}}',
    ]);
  });

  test("separates calls with alternating arguments", () => {
    const first = call("c1", '{"a":', "1}");
    const second = call("c2", '{"b":', "2}");
    const mixed = first.flatMap((event, at) => [event, second[at] ?? {}]);
    expect(said(...mixed)).toEqual([
      'tool_use {"tool":"add","tool_call_id":"c1","input":{"a":1}}',
      'tool_use {"tool":"add","tool_call_id":"c2","input":{"b":2}}',
    ]);
  });
});

describe("TOOL_CALL_RESULT", () => {
  const result = (content: unknown): unknown => {
    const event = { type: "TOOL_CALL_RESULT", messageId: "m", toolCallId: "c", content };
    const [message] = derive([STARTED, event], { lifecycle: false });
    expect(message?.eventType).toBe("tool_result");
    return JSON.parse(message?.payload ?? "");
  };
  const shown = (content: unknown): string => {
    const value = result(content);
    return typeof value === "object" && value !== null && "result" in value
      ? String(value.result)
      : "";
  };

  test("gives a message with the id of its call", () => {
    expect(result("ok")).toEqual({ tool_call_id: "c", result: "ok" });
    expect(result("")).toEqual({ tool_call_id: "c", result: "" });
  });

  test.each([
    [
      "texts",
      [
        { type: "text", text: "a" },
        { type: "text", text: "b" },
      ],
      "a\nb",
    ],
    ["a picture", [{ type: "image", source: { type: "data", value: "…" } }], "[image]"],
    ["invalid parts", ["a", {}], '"a"\n[not text]'],
  ])("becomes a text from parts: %s", (_, content, shownText) => {
    expect(shown(content)).toBe(shownText);
  });

  test("keeps 2,000 characters, and marks the cut of a longer one", () => {
    expect(shown("x".repeat(2_000))).toBe("x".repeat(2_000));
    expect(shown("x".repeat(2_001))).toBe(
      `${"x".repeat(2_000)}… [cut after 2000 of 2001 characters]`,
    );
  });

  test("is not cut within a character", () => {
    expect(shown(`${"x".repeat(1_999)}😀!`)).toBe(
      `${"x".repeat(1_999)}… [cut after 1999 of 2002 characters]`,
    );
    expect(shown(`${"x".repeat(1_998)}😀!`)).toMatch(/x😀… \[cut after 2000 /);
  });

  test("replaces half a character, and escapes U+0000", () => {
    expect(shown("a\ud83d\0")).toBe("a\ufffd\0");
  });

  test("is read from the field `result` of some agents", () => {
    expect(said({ type: "TOOL_CALL_RESULT", toolCallId: "c", result: "12:00" })).toEqual([
      'tool_result {"tool_call_id":"c","result":"12:00"}',
    ]);
  });

  test("gives no message without a call or without content", () => {
    expect(said({ type: "TOOL_CALL_RESULT", content: "a" })).toEqual([]);
    expect(said({ type: "TOOL_CALL_RESULT", toolCallId: "c", content: null })).toEqual([]);
  });
});

describe("runs", () => {
  test("give lifecycle messages, unless these are off", () => {
    const lifecycle = derive([STARTED, FINISHED]).map(({ eventType, payload }) => [
      eventType,
      payload,
    ]);
    expect(lifecycle).toEqual([
      ["lifecycle", '{"event":"run_started"}'],
      ["lifecycle", '{"event":"run_finished"}'],
    ]);
    expect(derive([STARTED, FINISHED], { lifecycle: false })).toEqual([]);
  });

  test("with an error give the open text and the error, and no open call", () => {
    const [start, content] = text("m", "I was sa");
    const [callStart, args] = call("c", '{"a":');
    const error = { type: "RUN_ERROR", message: "connection lost", code: "NETWORK" };
    expect(said(start ?? {}, callStart ?? {}, content ?? {}, args ?? {}, error)).toEqual([
      "assistant I was sa",
      'error {"error":"connection lost","code":"NETWORK"}',
    ]);
  });

  test.each([
    [{ message: "a" }, '{"error":"a"}'],
    [{ message: "a", code: null }, '{"error":"a"}'],
    [{ message: "a", code: 7 }, '{"error":"a","code":"7"}'],
    [{ error: "of two recorded agents" }, '{"error":"of two recorded agents"}'],
    [{ error: { status: 1 } }, '{"error":"{\\"status\\":1}"}'],
    [{}, '{"error":"unknown error"}'],
  ])("with the error %j give its message", (fields, payload) => {
    expect(said({ type: "RUN_ERROR", ...fields })).toEqual([`error ${payload}`]);
  });

  test("with an error leave nothing open", () => {
    const [start, content] = text("m", "a");
    const error = { type: "RUN_ERROR", message: "x" };
    expect(said(start ?? {}, content ?? {}, error, ...text("m", "b")).slice(2)).toEqual([
      "assistant b",
    ]);
  });

  test("replaced by another give their open text under their own id", () => {
    const [start, content] = text("m", "unfinished");
    const next = { ...STARTED, runId: "next" };
    const messages = derive([STARTED, start ?? {}, content ?? {}, next, ...text("m", "new")], {
      lifecycle: false,
    });
    expect(messages.map(({ payload, key }) => [payload, key])).toEqual([
      ["unfinished", "r:assistant:m:1"],
      ["new", "next:assistant:m:1"],
    ]);
  });

  test("with an end leave nothing open", () => {
    const [start, content] = text("m", "a");
    const [callStart, args] = call("c", "{}");
    expect(said(callStart ?? {}, start ?? {}, content ?? {}, args ?? {}, FINISHED)).toEqual([
      'tool_use {"tool":"add","tool_call_id":"c","input":{}}',
      "assistant a",
    ]);
  });
});

describe("CUSTOM", () => {
  test.each([
    ["progress", "system"],
    ["error", "error"],
    ["agent_error_occurred", "error"],
    ["AgentError", "error"],
  ])("%s becomes %s", (name, type) => {
    expect(said({ type: "CUSTOM", name, value: { a: [null, 1] } })).toEqual([
      `${type} {"custom_event":"${name}","value":{"a":[null,1]}}`,
    ]);
  });

  test("keeps the spelling of its value", () => {
    const deriver = new MessageDeriver();
    const payload = '{"value":0,"name":"n","value": 1.50 ,"type":"CUSTOM"}';
    expect(deriver.next(payload).map((message) => message.payload)).toEqual([
      '{"custom_event":"n","value":1.50}',
    ]);
    expect(said({ type: "CUSTOM", name: "n" })).toEqual(['system {"custom_event":"n"}']);
    expect(said({ type: "CUSTOM", name: "n", value: null })).toEqual([
      'system {"custom_event":"n","value":null}',
    ]);
  });
});

test.each([
  "RAW",
  "STATE_SNAPSHOT",
  "MESSAGES_SNAPSHOT",
  "STEP_STARTED",
  "REASONING_MESSAGE_START",
  "REASONING_MESSAGE_CONTENT",
  "THINKING_TEXT_MESSAGE_CONTENT",
  "SUBAGENT_STARTED",
  "ACTIVITY_SNAPSHOT",
  "META",
  "NO_SUCH_TYPE",
])("an event of type %s gives no message", (type) => {
  const fields = { messageId: "m", delta: "a", name: "error", message: "a", content: "a" };
  expect(said({ type, ...fields })).toEqual([]);
});

describe("chunks", () => {
  const chunk = (delta: string, fields: Event = {}): Event => ({
    type: "TEXT_MESSAGE_CHUNK",
    delta,
    ...fields,
  });

  test("end at an event that is not their own", () => {
    const end = { type: "STATE_SNAPSHOT", snapshot: {} };
    const chunks = [chunk("a", { messageId: "m" }), chunk("b"), chunk("c", { messageId: "m" })];
    expect(said(...chunks)).toEqual([]);
    expect(said(...chunks, end)).toEqual(["assistant abc"]);
    expect(said(...chunks, chunk("d", { messageId: "n" }), end)).toEqual([
      "assistant abc",
      "assistant d",
    ]);
  });

  test.each(["RAW", "ACTIVITY_DELTA", "REASONING_ENCRYPTED_VALUE", "SUBAGENT_STARTED"])(
    "continue after %s",
    (type) => {
      const events = [chunk("a", { messageId: "m" }), { type }, chunk("b"), FINISHED];
      expect(said(...events)).toEqual(["assistant ab"]);
    },
  );

  test("give a message for a tool call, and none for reasoning", () => {
    const args = { type: "TOOL_CALL_CHUNK", delta: "{}" };
    expect(
      said(
        chunk("a", { messageId: "m" }),
        { ...args, toolCallId: "c", toolCallName: "add" },
        { type: "REASONING_MESSAGE_CHUNK", messageId: "g", delta: "hmm" },
        chunk("b", { messageId: "n" }),
        FINISHED,
      ),
    ).toEqual([
      "assistant a",
      'tool_use {"tool":"add","tool_call_id":"c","input":{}}',
      "assistant b",
    ]);
  });

  test("of several subagents are independent", () => {
    const one = { subagentRunId: "s1" };
    const two = { subagentRunId: "s2" };
    expect(
      said(
        chunk("a", { messageId: "m", ...one }),
        chunk("b", { messageId: "m", ...two }),
        chunk("c", one),
        { type: "STATE_SNAPSHOT", snapshot: {} },
        chunk("d", two),
        { type: "STATE_SNAPSHOT", snapshot: {}, ...two },
        chunk("e", one),
        FINISHED,
      ),
    ).toEqual(["assistant bd", "assistant ace"]);
  });

  test("of the user give no message", () => {
    expect(said(chunk("a", { messageId: "m", role: "user" }), FINISHED)).toEqual([]);
  });

  test("without an id give a message for text, and none for a call", () => {
    expect(said(chunk("a"), chunk("b"), FINISHED)).toEqual(["assistant ab"]);
    expect(said({ type: "TOOL_CALL_CHUNK", toolCallName: "add", delta: "{}" }, FINISHED)).toEqual(
      [],
    );
  });

  test("become a message when their run fails", () => {
    const error = { type: "RUN_ERROR", message: "x" };
    expect(said(chunk("a", { messageId: "m" }), error)).toEqual([
      "assistant a",
      'error {"error":"x"}',
    ]);
  });
});

describe("subagents", () => {
  const of = (subagentRunId: string, events: readonly Event[]): readonly Event[] =>
    events.map((event) => ({ ...event, subagentRunId }));

  test("may use the same ids", () => {
    const [one, two] = [of("s1", text("m", "a", "b")), of("s2", text("m", "c", "d"))];
    const mixed = one.flatMap((event, at) => [event, two[at] ?? {}]);
    const messages = derive([STARTED, ...mixed], { lifecycle: false });
    expect(messages.map(({ payload, key }) => [payload, key])).toEqual([
      ["ab", "r:assistant:s1/m:1"],
      ["cd", "r:assistant:s2/m:1"],
    ]);
  });

  test("may be left out in later events while only one has the id", () => {
    const [start, ...rest] = text("m", "a");
    const one = { ...start, subagentRunId: "s1" };
    const two = { ...start, subagentRunId: "s2" };
    const keys = (...events: readonly Event[]): readonly string[] =>
      derive([STARTED, ...events], { lifecycle: false }).map(({ key }) => key);
    expect(keys(one, ...rest)).toEqual(["r:assistant:s1/m:1"]);
    expect(keys(one, two, ...rest)).toEqual(["r:assistant:m:1"]);
  });
});

describe("a runner in Python", () => {
  test("spells fields in snake_case and sends nulls", () => {
    const nulls = { timestamp: null, raw_event: null, subagent_run_id: null };
    expect(
      derive([
        { type: "RUN_STARTED", thread_id: "t", run_id: "py", ...nulls },
        { type: "TEXT_MESSAGE_START", message_id: "m", role: null, name: null, ...nulls },
        { type: "TEXT_MESSAGE_CONTENT", message_id: "m", messageId: null, delta: "a", ...nulls },
        { type: "TEXT_MESSAGE_END", message_id: "m", ...nulls },
        { type: "TOOL_CALL_START", tool_call_id: "c", tool_call_name: "add", ...nulls },
        { type: "TOOL_CALL_ARGS", tool_call_id: "c", delta: "{}", ...nulls },
        { type: "TOOL_CALL_END", tool_call_id: "c", ...nulls },
        { type: "TOOL_CALL_RESULT", tool_call_id: "c", content: "3", ...nulls },
      ]).map(({ eventType, payload, key }) => `${key} ${eventType} ${payload}`),
    ).toEqual([
      'py:lifecycle:run_started:1 lifecycle {"event":"run_started"}',
      "py:assistant:m:1 assistant a",
      'py:tool_use:c:1 tool_use {"tool":"add","tool_call_id":"c","input":{}}',
      'py:tool_result:c:1 tool_result {"tool_call_id":"c","result":"3"}',
    ]);
  });

  test("sends a whole message as one event", () => {
    const start = { type: "TEXT_MESSAGE_START", message_id: "m", fragment_count: 3 };
    const end_event = { type: "TEXT_MESSAGE_END", message_id: "m" };
    expect(said({ ...start, accumulated_content: "abc", end_event })).toEqual(["assistant abc"]);
    expect(said({ ...start, role: "user", accumulated_content: "abc", end_event })).toEqual([]);
    expect(said({ ...start, end_event })).toEqual([]);
  });

  test("sends an interrupted message, and perhaps the rest later", () => {
    const start = { type: "TEXT_MESSAGE_START", message_id: "m", fragment_count: 3 };
    const open = { ...start, accumulated_content: "abc", end_event: null };
    expect(said(open)).toEqual([]);
    expect(said(open, { type: "RUN_ERROR", message: "x" })[0]).toBe("assistant abc");
    expect(said(open, ...text("m", "d").slice(1))).toEqual(["assistant abcd"]);
  });

  test("sends a whole tool call as one event", () => {
    const start = { type: "TOOL_CALL_START", tool_call_id: "c", tool_call_name: "add" };
    const grouped = { accumulated_content: '{"a":1}', fragment_count: 1, end_event: {} };
    expect(said({ ...start, ...grouped })).toEqual([
      'tool_use {"tool":"add","tool_call_id":"c","input":{"a":1}}',
    ]);
  });
});

test.each([
  "",
  "{",
  "null",
  "[]",
  "7",
  '"RUN_STARTED"',
  "{}",
  '{"type":null}',
  '{"type":{"toString":1}}',
  '{"type":["TEXT_MESSAGE_START"]}',
  '{"type":"TEXT_MESSAGE_START"}',
  '{"type":"TEXT_MESSAGE_END","messageId":7}',
  '{"type":"TEXT_MESSAGE_CONTENT","messageId":null,"delta":"a"}',
  '{"type":"TOOL_CALL_RESULT","toolCallId":{},"content":"a"}',
  '{"type":"CUSTOM","name":7}',
  '{"__proto__":{"type":"RUN_ERROR"}}',
])("an invalid event gives no message: %s", (payload) => {
  expect(new MessageDeriver().next(payload)).toEqual([]);
});
