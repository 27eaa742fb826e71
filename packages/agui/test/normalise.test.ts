import { describe, expect, test } from "vitest";
import { CATALOGUE, type EventType } from "@session-ledger/agui/catalogue";
import { fieldsOfType, normalise, snakeName } from "@session-ledger/agui/normalise";
import { VIOLATIONS_MAX } from "@session-ledger/base/errors";
import { readPayload } from "@session-ledger/agui/payload";

function normalised(type: EventType, text: string): string {
  const read = readPayload(text);
  if (!read.ok) throw new Error(read.violation.description);
  const result = normalise(type, read.payload);
  if (!result.ok) return result.violations.map(({ description }) => description).join("; ");
  expect(JSON.parse(result.payload.text)).toEqual(result.payload.value);
  return result.payload.text;
}

describe("top level of a payload", () => {
  test.each<[string, EventType, string, string]>([
    [
      "snake_case becomes camelCase, and the rest keeps its bytes",
      "TOOL_CALL_START",
      '{ "type":"TOOL_CALL_START" , "tool_call_id" : "\\u0063", "tool_call_name":"n","extra_key":1.0 }',
      '{ "type":"TOOL_CALL_START" , "toolCallId" : "\\u0063", "toolCallName":"n","extra_key":1.0 }',
    ],
    [
      "the result of a tool call becomes its content",
      "TOOL_CALL_RESULT",
      '{"type":"TOOL_CALL_RESULT","message_id":"m","toolCallId":"c", "result" : "found"}',
      '{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c", "content" : "found"}',
    ],
    [
      "a result that is not text becomes content as JSON",
      "TOOL_CALL_RESULT",
      '{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","result":{"n": 1.0}}',
      '{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":"{\\"n\\": 1.0}"}',
    ],
    [
      "a result next to content is an unknown key",
      "TOOL_CALL_RESULT",
      '{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":"a","result":"b"}',
      '{"type":"TOOL_CALL_RESULT","messageId":"m","toolCallId":"c","content":"a","result":"b"}',
    ],
    [
      "the error of a failed run becomes its message",
      "RUN_ERROR",
      '{"error":"broke","code":"E"}',
      '{"type":"RUN_ERROR","message":"broke","code":"E"}',
    ],
    [
      "an error that is null is not moved",
      "RUN_ERROR",
      '{"type":"RUN_ERROR","error":null}',
      '{"type":"RUN_ERROR","error":null}',
    ],
    [
      "optional fields that are null are dropped anywhere",
      "TEXT_MESSAGE_START",
      '{"raw_event":null,"type":"TEXT_MESSAGE_START", "timestamp" : null , "messageId":"m","name":null,"role":null}',
      '{"type":"TEXT_MESSAGE_START", "messageId":"m"}',
    ],
    [
      "a required field that is null stays, and is refused later",
      "STEP_STARTED",
      '{"type":"STEP_STARTED","step_name":null}',
      '{"type":"STEP_STARTED","stepName":null}',
    ],
    [
      "a fraction of a timestamp is rounded",
      "THINKING_END",
      '{"type":"THINKING_END","timestamp": 1770389237123.5 }',
      '{"type":"THINKING_END","timestamp": 1770389237124 }',
    ],
    [
      "a fraction below zero is rounded to zero without a sign",
      "THINKING_END",
      '{"type":"THINKING_END","timestamp":-0.2}',
      '{"type":"THINKING_END","timestamp":0}',
    ],
    [
      "an infinite timestamp stays",
      "THINKING_END",
      '{"type":"THINKING_END","timestamp":1e999}',
      '{"type":"THINKING_END","timestamp":1e999}',
    ],
    [
      "an inner object may lose all its fields",
      "RUN_ERROR",
      '{"type":"RUN_ERROR","message":"","usage":[ { "input_tokens":null , "model":null } ]}',
      '{"type":"RUN_ERROR","message":"","usage":[ {  } ]}',
    ],
    [
      "an integer keeps its spelling",
      "THINKING_END",
      '{"type":"THINKING_END","timestamp":1.0e3}',
      '{"type":"THINKING_END","timestamp":1.0e3}',
    ],
    [
      "REASONING_MESSAGE_START of the Claude adapter gets the role reasoning",
      "REASONING_MESSAGE_START",
      '{"type":"REASONING_MESSAGE_START","message_id":"m","role":"assistant"}',
      '{"type":"REASONING_MESSAGE_START","messageId":"m","role":"reasoning"}',
    ],
    [
      "a field of another type is an unknown key",
      "TEXT_MESSAGE_END",
      '{"type":"TEXT_MESSAGE_END","messageId":"m","thread_id":"t","tool_call_id":null}',
      '{"type":"TEXT_MESSAGE_END","messageId":"m","thread_id":"t","tool_call_id":null}',
    ],
  ])("%s", (_, type, text, expected) => {
    expect(normalised(type, text)).toBe(expected);
    expect(normalised(type, expected)).toBe(expected);
  });

  test("every field of every type is known in snake_case", () => {
    for (const { type } of CATALOGUE)
      for (const [snake, field] of fieldsOfType(type)?.bySnakeName ?? []) {
        expect(snakeName(field)).toBe(snake);
        expect(normalised(type, `{"type":"${type}","${snake}":"x"}`)).toBe(
          `{"type":"${type}","${field}":"x"}`,
        );
      }
  });

  test("a payload without changes is returned as the same object", () => {
    const read = readPayload('{"type":"STEP_STARTED","stepName":"a","x":null}');
    if (!read.ok) throw new Error("not read");
    const result = normalise("STEP_STARTED", read.payload);
    expect(result.ok && result.payload).toBe(read.payload);
  });
});

/** The thinking-block handler of the Claude runner sends such ids. */
describe("a required message id that is null", () => {
  const REASONING = [
    "REASONING_START",
    "REASONING_END",
    "REASONING_MESSAGE_START",
    "REASONING_MESSAGE_CONTENT",
    "REASONING_MESSAGE_END",
  ] as const satisfies readonly EventType[];

  test.each(REASONING)("in %s becomes an empty string", (type) => {
    const empty = `{"type":"${type}", "messageId" : "", "delta":""}`;
    expect(normalised(type, `{"type":"${type}", "message_id" : null, "delta":""}`)).toBe(empty);
    expect(normalised(type, `{"type":"${type}", "messageId" : null, "delta":""}`)).toBe(empty);
    expect(normalised(type, `{"messageId":null }`)).toBe(`{"type":"${type}","messageId":"" }`);
  });

  test.each<[string, string]>([
    ['"messageId":null,"message_id":null', '"messageId":""'],
    ['"messageId":null,"message_id":"g"', '"messageId":"g"'],
    ['"message_id":null,"messageId":"g"', '"messageId":"g"'],
    ['"message_id":"g","messageId":null', '"messageId":"g"'],
    ['"message_id":"","messageId":null', '"messageId":""'],
    ['"message_id":7,"messageId":null', '"messageId":7'],
    ['"messageId":"null"', '"messageId":"null"'],
    ['"messageId":0,"delta":null', '"messageId":0,"delta":null'],
    ['"delta":"x"', '"delta":"x"'],
  ])("with %s becomes %s", (members, expected) => {
    const event = (inside: string): string => `{"type":"REASONING_MESSAGE_CONTENT",${inside}}`;
    expect(normalised("REASONING_MESSAGE_CONTENT", event(members))).toBe(event(expected));
  });

  test("stays in every other type and in every other field", () => {
    for (const { type, idField } of CATALOGUE) {
      const optional = fieldsOfType(type)?.droppable ?? new Set();
      const fields = [...(fieldsOfType(type)?.bySnakeName.values() ?? [])].filter(
        (field) =>
          !optional.has(field) &&
          !(field === "messageId" && REASONING.some((reasoning) => reasoning === type)),
      );
      expect({ type, idField, left: fields.filter((field) => isLeft(type, field)) }).toEqual({
        type,
        idField,
        left: fields,
      });
    }
  });

  function isLeft(type: EventType, field: string): boolean {
    const text = `{"type":"${type}","${field}":null}`;
    return normalised(type, text) === text;
  }
});

describe("both spellings of a field", () => {
  const both = (members: string): string =>
    normalised("TEXT_MESSAGE_CHUNK", `{"type":"TEXT_MESSAGE_CHUNK",${members}}`);

  test("become one when their values are equal", () => {
    const one = '{"type":"TEXT_MESSAGE_CHUNK","messageId":"m"}';
    expect(both('"message_id":"m","messageId":"m"')).toBe(one);
    expect(both('"messageId":"m","message_id":"\\u006d"')).toBe(one);
    expect(both('"rawEvent":{"a":1.0},"raw_event":{"a":1.0}')).toBe(
      '{"type":"TEXT_MESSAGE_CHUNK","rawEvent":{"a":1.0}}',
    );
  });

  test("become the other one when one is null", () => {
    const one = '{"type":"TEXT_MESSAGE_CHUNK","messageId":"m"}';
    expect(both('"messageId":"m","message_id":null')).toBe(one);
    expect(both('"messageId":null,"message_id":"m"')).toBe(one);
    expect(both('"messageId":null,"message_id":null')).toBe('{"type":"TEXT_MESSAGE_CHUNK"}');
  });

  test("are refused when their values differ", () => {
    const refusal =
      "payload.messageId and payload.message_id are two spellings of one field, but differ";
    expect(both('"messageId":"m","message_id":"n"')).toBe(refusal);
    expect(both('"message_id":"n","messageId":"m"')).toBe(refusal);
    expect(both('"rawEvent":{"a":1},"raw_event":{"a":1.0}')).toContain("rawEvent");
    expect(
      normalised("STEP_STARTED", '{"type":"STEP_STARTED","stepName":"a","step_name":null}'),
    ).toContain("differ");
  });
});

describe("inner objects", () => {
  test("are normalised in the messages of a snapshot and their tool calls", () => {
    const messages = [
      { id: "u", role: "user", content: [{ type: "text", mime_type: null }], name: null },
      {
        id: "a",
        role: "assistant",
        content: null,
        tool_calls: [
          {
            id: "c",
            type: "function",
            function: { name: "f", arguments: '{"tool_call_id":null}' },
            encrypted_value: null,
          },
        ],
      },
      { id: "t", role: "tool", content: "x", tool_call_id: "c", error: null },
      { id: "p", role: "activity", activity_type: "PLAN", content: { tool_call_id: null } },
    ];
    const text = normalised("MESSAGES_SNAPSHOT", JSON.stringify({ messages }));
    expect(JSON.parse(text)).toEqual({
      type: "MESSAGES_SNAPSHOT",
      messages: [
        { id: "u", role: "user", content: [{ type: "text", mime_type: null }] },
        {
          id: "a",
          role: "assistant",
          toolCalls: [
            {
              id: "c",
              type: "function",
              function: { name: "f", arguments: '{"tool_call_id":null}' },
            },
          ],
        },
        { id: "t", role: "tool", content: "x", toolCallId: "c" },
        { id: "p", role: "activity", activityType: "PLAN", content: { tool_call_id: null } },
      ],
    });
  });

  test("are normalised in a run's input, its outcome and its usage", () => {
    const input = {
      thread_id: "t",
      run_id: "r",
      parent_run_id: null,
      state: null,
      messages: [],
      tools: [{ name: "f", description: "", parameters: null }],
      context: null,
      forwarded_props: { run_id: null },
      resume: [{ interrupt_id: "i", status: "resolved", payload: null }],
    };
    expect(JSON.parse(normalised("RUN_STARTED", JSON.stringify({ input })))).toEqual({
      type: "RUN_STARTED",
      input: {
        threadId: "t",
        runId: "r",
        state: null,
        messages: [],
        tools: [{ name: "f", description: "" }],
        forwardedProps: { run_id: null },
        resume: [{ interruptId: "i", status: "resolved" }],
      },
    });
    const interrupts = [{ id: "i", reason: "x", tool_call_id: "c", expires_at: null }];
    const finished = { outcome: { type: "interrupt", interrupts }, usage: [{ input_tokens: 1 }] };
    expect(JSON.parse(normalised("RUN_FINISHED", JSON.stringify(finished)))).toEqual({
      type: "RUN_FINISHED",
      outcome: { type: "interrupt", interrupts: [{ id: "i", reason: "x", toolCallId: "c" }] },
      usage: [{ inputTokens: 1 }],
    });
  });

  test.each<[EventType, string]>([
    ["CUSTOM", '"name":"n","value":{"message_id":null,"raw_event":null}'],
    ["STATE_SNAPSHOT", '"snapshot":{"message_id":null}'],
    ["STATE_DELTA", '"delta":[{"op":"add","path":"","value":null,"message_id":null}]'],
    ["ACTIVITY_SNAPSHOT", '"messageId":"","activityType":"","content":{"message_id":null}'],
    ["RAW", '"event":{"raw_event":null,"message_id":null}'],
    ["TEXT_MESSAGE_END", '"messageId":"","rawEvent":{"message_id":null}'],
    ["TEXT_MESSAGE_END", '"messageId":"","metadata":{"message_id":null}'],
    ["TOOL_CALL_ARGS", '"toolCallId":"","delta":"{\\"message_id\\":null}"'],
    ["RUN_FINISHED", '"threadId":"","runId":"","result":{"run_id":null}'],
  ])("are left as they are in user data of %s", (type, members) => {
    const text = `{"type":"${type}",${members}}`;
    expect(normalised(type, text)).toBe(text);
  });

  test("are named by their path when two spellings differ", () => {
    const call = '{"encryptedValue":"a","encrypted_value":"b"}';
    const text = `{"messages":[{"id":"","role":"assistant","tool_calls":[${call}]}]}`;
    expect(normalised("MESSAGES_SNAPSHOT", text)).toBe(
      "payload.messages[0].toolCalls[0].encryptedValue and payload.messages[0].toolCalls[0].encrypted_value are two spellings of one field, but differ",
    );
  });

  test("are reported a limited number of times when their spellings differ", () => {
    const message = '{"id":"","role":"tool","toolCallId":"a","tool_call_id":"b"}';
    const text = `{"messages":[${Array<string>(1_000).fill(message).join(",")}]}`;
    expect(normalised("MESSAGES_SNAPSHOT", text).split("; ")).toHaveLength(VIOLATIONS_MAX);
  });

  test("stay as they are when a key is repeated or the variant is unknown", () => {
    for (const message of [
      '{"id":"a","role":"tool","tool_call_id":"b","tool_call_id":"c"}',
      '{"id":"a","role":"robot","tool_call_id":"b"}',
      '{"id":"a","tool_call_id":"b"}',
    ]) {
      const text = `{"type":"MESSAGES_SNAPSHOT","messages":[${message},null,1]}`;
      expect(normalised("MESSAGES_SNAPSHOT", text)).toBe(text);
    }
  });
});
