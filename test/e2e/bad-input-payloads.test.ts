/**
 * What AG-UI says of an event's payload, over the wire: refused in strict mode with the field and what
 * was expected of it, and stored as it came, though marked, in lenient mode. What no reader could make
 * sense of is refused in both.
 */
import { describe, expect, test } from "vitest";
import type { RpcClient } from "../support/grpc-client.ts";
import {
  failureOf,
  newSession,
  push,
  type PushFields,
  rowsOf,
  tracesOf,
} from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";

const { client: strict } = useService({ env: { VALIDATION: "strict" } });
const { client: lenient } = useService({ env: { VALIDATION: "lenient" } });

interface Case {
  readonly title: string;
  readonly push: PushFields;
  readonly fields: readonly string[];
  readonly message: RegExp;
}

async function refusalOf(client: RpcClient, fields: PushFields): Promise<object> {
  const { outcome, traces } = await tracesOf(client, "events", (sessionId) =>
    failureOf(push(client, "events", { sessionId, ...fields })),
  );
  const { code, reason, message, violations } = outcome;
  return { code, reason, message, fields: violations.map(({ field }) => field), traces };
}

function expected({ fields, message }: Case): object {
  return {
    code: "INVALID_ARGUMENT",
    reason: "INVALID_REQUEST",
    message: expect.stringMatching(message),
    fields,
    traces: [],
  };
}

const deep = (levels: number): string =>
  `{"name":"n","value":${"[".repeat(levels - 1)}${"]".repeat(levels - 1)}}`;

/** Refused in both modes. */
const UNREADABLE: readonly Case[] = [
  ...["", " ", "hello", "{", '{"name":"n"} {}', "{'name':1}", '{"name":NaN}', "\uFEFF{}"].map(
    (payload) => ({
      title: `${JSON.stringify(payload)}, which is not JSON`,
      push: { payload },
      fields: ["payload"],
      message: /^payload must be a JSON object, but is not JSON$/,
    }),
  ),
  ...["null", "true", "1", '"{}"', "[{}]"].map((payload) => ({
    title: `${payload}, which is no JSON object`,
    push: { payload },
    fields: ["payload"],
    message: /^payload must be a JSON object$/,
  })),
  {
    title: "a key twice",
    push: { payload: '{"name":"a","value":1,"name":"a"}' },
    fields: ["payload.name"],
    message: /once, but is there twice/,
  },
  {
    title: "a key twice, spelled differently",
    push: { payload: String.raw`{"name":"a","n\u0061me":"b"}` },
    fields: ["payload.name"],
    message: /once, but is there twice/,
  },
  {
    title: "65 levels",
    push: { payload: deep(65) },
    fields: ["payload"],
    message: /at most 64 levels/,
  },
  {
    title: "an event_type that cannot be a type",
    push: { eventType: "Custom" },
    fields: ["event_type"],
    message: /^event_type must be .+, but is Custom; did you mean CUSTOM\?$/,
  },
  {
    title: "an event_type of 65 characters",
    push: { eventType: "X".repeat(65) },
    fields: ["event_type"],
    message: /^event_type must be /,
  },
];

const content = (payload: string): PushFields => ({ eventType: "TEXT_MESSAGE_CONTENT", payload });
const group = (rest: object, eventCount = 0): PushFields => ({
  eventType: "TEXT_MESSAGE_START",
  payload: JSON.stringify({ messageId: "m", ...rest }),
  eventCount,
});

/** Groups that do not say what they stand for. */
const GROUPS: readonly Case[] = [
  {
    title: "an event_count that is not the sum of the group",
    push: group({ fragment_count: 2, accumulated_content: "ab", end_event: { messageId: "m" } }, 3),
    fields: ["event_count"],
    message: /^event_count must be 4, the events of the group, or left out, but is 3$/,
  },
  {
    title: "a negative fragment_count",
    push: group({ fragment_count: -1 }),
    fields: ["payload.fragment_count"],
    message: /an integer from 0 to 999998/,
  },
  {
    title: "a fragment_count that is no number",
    push: group({ fragment_count: "2" }),
    fields: ["payload.fragment_count"],
    message: /an integer/,
  },
  {
    title: "text without a fragment",
    push: group({ fragment_count: 0, accumulated_content: "ab" }),
    fields: ["payload.accumulated_content"],
    message: /left out where fragment_count is 0/,
  },
  {
    title: "an end_event that is no object",
    push: group({ fragment_count: 0, end_event: "END" }),
    fields: ["payload.end_event"],
    message: /an object, or left out/,
  },
  {
    title: "fragments on a group",
    push: { ...group({ fragment_count: 1 }), fragments: { lengths: [1] } },
    fields: ["fragments"],
    message: /absent in a group/,
  },
];

/** Refused in strict mode only. */
const NOT_AGUI: readonly Case[] = [
  {
    title: "an event_type outside the catalogue",
    push: { eventType: "FOO_BAR", payload: "{}" },
    fields: ["event_type"],
    message: /^event_type must be an AG-UI event type, but is FOO_BAR; the types are RUN_\{/,
  },
  {
    title: "a type in the payload that is not event_type",
    push: { payload: '{"type":"RAW","name":"n"}' },
    fields: ["payload.type"],
    message: /payload\.type must be CUSTOM, as event_type is/,
  },
  {
    title: "a type in the payload that is no string",
    push: { payload: '{"type":null,"name":"n"}' },
    fields: ["payload.type"],
    message: /payload\.type must be CUSTOM/,
  },
  {
    title: "a field that is not there",
    push: content('{"messageId":"m"}'),
    fields: ["payload.delta"],
    message: /^payload\.delta must be a string, but is absent$/,
  },
  {
    title: "content in place of delta, which is AG-UI in no version",
    push: content('{"messageId":"m","content":"x"}'),
    fields: ["payload.delta"],
    message: /^payload\.delta must be a string, but is absent; content is not AG-UI$/,
  },
  {
    title: "a field of the wrong kind",
    push: content('{"messageId":7,"delta":"x"}'),
    fields: ["payload.messageId"],
    message: /^payload\.messageId must be a string, but is a number$/,
  },
  {
    title: "several fields at once",
    push: { eventType: "TOOL_CALL_START", payload: "{}" },
    fields: ["payload.toolCallId", "payload.toolCallName"],
    message: /^payload\.toolCallId must be a string, but is absent$/,
  },
  {
    title: "a field deep inside",
    push: {
      eventType: "MESSAGES_SNAPSHOT",
      payload: '{"messages":[{"id":"1","role":"tool","content":"x"}]}',
    },
    fields: ["payload.messages[0].toolCallId"],
    message: /must be a string, but is absent/,
  },
  {
    title: "two spellings of one field with different values",
    push: content('{"messageId":"a","message_id":"b","delta":"x"}'),
    fields: ["payload.messageId"],
    message: /two spellings of one field, but differ/,
  },
  {
    title: "a run without an id",
    push: { eventType: "RUN_STARTED", payload: '{"threadId":"t"}' },
    fields: ["payload.runId"],
    message: /must be a string/,
  },
];

describe("strict and lenient mode refuse", () => {
  test.each([...UNREADABLE, ...GROUPS])("$title", async (refused) => {
    for (const client of [strict, lenient]) {
      expect(await refusalOf(client, refused.push)).toEqual(expected(refused));
    }
  });
});

describe("strict mode refuses, and lenient mode stores unchanged,", () => {
  test.each(NOT_AGUI)("$title", async (refused) => {
    expect(await refusalOf(strict, refused.push)).toEqual(expected(refused));
    const sessionId = newSession();
    const answer = await push(lenient, "events", { sessionId, ...refused.push });
    expect(answer).toMatchObject({ seq: 1n, runId: "", ...refused.push });
    expect(await rowsOf(lenient, "events", sessionId)).toEqual([answer]);
  });

  test("an event that is not AG-UI opens no run and closes none", async () => {
    const sessionId = newSession();
    const runIds: unknown[] = [];
    for (const [eventType, payload] of [
      ["RUN_STARTED", '{"threadId":"t"}'],
      ["CUSTOM", '{"name":"n"}'],
      ["RUN_STARTED", '{"threadId":"t","runId":"r"}'],
      ["RUN_FINISHED", '{"type":"RUN_STARTED"}'],
      ["CUSTOM", '{"name":"n"}'],
      ["RUN_ERROR", '{"message":"m"}'],
      ["CUSTOM", '{"name":"n"}'],
    ] as const) {
      const row = await push(lenient, "events", { sessionId, eventType, payload });
      runIds.push("runId" in row ? row.runId : undefined);
    }
    expect(runIds).toEqual(["", "", "r", "r", "r", "r", ""]);
  });
});

describe("strict and lenient mode accept", () => {
  test.each([
    { title: "64 levels", push: { payload: deep(64) } },
    { title: "META, a draft", push: { eventType: "META", payload: '{"metaType":"thumbs_up"}' } },
    { title: "THINKING_START, of 0.x only", push: { eventType: "THINKING_START", payload: "{}" } },
    { title: "a CUSTOM without value, of 0.x only", push: { payload: '{"name":"n"}' } },
    {
      title: "tool arguments that are no JSON",
      push: { eventType: "TOOL_CALL_ARGS", payload: '{"toolCallId":"c","delta":"{\\"q\\": \\"h"}' },
    },
  ])("$title", async ({ push: fields }) => {
    for (const client of [strict, lenient]) {
      const sessionId = newSession();
      const answer = await push(client, "events", { sessionId, ...fields });
      expect(answer.seq).toBe(1n);
      expect(await rowsOf(client, "events", sessionId)).toEqual([answer]);
    }
  });

  test("a run id with JSON escapes, including characters that PostgreSQL cannot store", async () => {
    for (const [escaped, runId] of [
      [String.raw`r\"\\\u00e9\ud83d\ude00`, 'r"\\é😀'],
      [String.raw`\u0000\ud800`, "\uFFFD\uFFFD"],
    ] as const) {
      const sessionId = newSession();
      const payload = `{"type":"RUN_STARTED","threadId":"t","runId":"${escaped}"}`;
      const row = await push(strict, "events", { sessionId, eventType: "RUN_STARTED", payload });
      expect(row).toMatchObject({ runId, payload });
      expect(await rowsOf(strict, "events", sessionId)).toEqual([row]);
    }
  });
});
