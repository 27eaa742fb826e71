/**
 * What AG-UI says of an event's payload, over the wire: refused in strict mode with the field and what
 * was expected of it, and stored as it came, though marked, in lenient mode. What no reader could make
 * sense of is refused in both.
 */
import { describe, expect, test } from "vitest";
import type { RpcFailure } from "../support/grpc-client.ts";
import {
  failureOf,
  newSession,
  push,
  type PushFields,
  rowsOf,
  tracesOf,
} from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";

/** Its own: each refusal is shown to have made no session. */
const { client: strict } = useService({});
const { client: lenient, service: lenientService } = useService("limited");

type Case = readonly [
  title: string,
  push: PushFields,
  fields: string | readonly string[],
  message: RegExp,
];

async function refusalOf(fields: PushFields): Promise<object> {
  const { outcome, traces } = await tracesOf(strict, "events", (sessionId) =>
    failureOf(push(strict, "events", { sessionId, ...fields })),
  );
  return { ...detailsOf(outcome), traces };
}

/** Of a push into a session that does not exist, and does not exist after it. */
async function lenientRefusalOf(fields: PushFields): Promise<object> {
  const sessionId = newSession();
  const refusal = await failureOf(push(lenient, "events", { sessionId, ...fields }));
  const { reason } = await failureOf(rowsOf(lenient, "events", sessionId));
  return { ...detailsOf(refusal), traces: reason === "SESSION_NOT_FOUND" ? [] : [sessionId] };
}

function detailsOf({ code, reason, message, violations }: RpcFailure): object {
  return { code, reason, message, fields: violations.map(({ field }) => field) };
}

function expected([, , fields, message]: Case): object {
  return {
    code: "INVALID_ARGUMENT",
    reason: "INVALID_REQUEST",
    message: expect.stringMatching(message),
    fields: [fields].flat(),
    traces: [],
  };
}

const deep = (levels: number): string =>
  `{"name":"n","value":${"[".repeat(levels - 1)}${"]".repeat(levels - 1)}}`;

/** Refused in both modes. */
const UNREADABLE: readonly Case[] = [
  ...["", " ", "hello", "{", '{"name":"n"} {}', "{'name':1}", '{"name":NaN}', "\uFEFF{}"].map(
    (payload): Case => [
      `${JSON.stringify(payload)}, which is not JSON`,
      { payload },
      "payload",
      /^payload must be a JSON object, but is not JSON$/,
    ],
  ),
  ...["null", "true", "1", '"{}"', "[{}]"].map(
    (payload): Case => [
      `${payload}, which is no JSON object`,
      { payload },
      "payload",
      /^payload must be a JSON object$/,
    ],
  ),
  [
    "a key twice",
    { payload: '{"name":"a","value":1,"name":"a"}' },
    "payload.name",
    /once, but occurs twice/,
  ],
  ["65 levels", { payload: deep(65) }, "payload", /at most 64 levels/],
  [
    "an event_type that cannot be a type",
    { eventType: "Custom" },
    "event_type",
    /^event_type must be .+, but is Custom; did you mean CUSTOM\?$/,
  ],
  [
    "an event_type of 65 characters",
    { eventType: "X".repeat(65) },
    "event_type",
    /^event_type must be /,
  ],
  // All other groups are in packages/agui/test/grouped.test.ts.
  [
    "an event_count that is not the sum of the group",
    {
      eventType: "TEXT_MESSAGE_START",
      payload:
        '{"messageId":"m","fragment_count":2,"accumulated_content":"ab","end_event":{"messageId":"m"}}',
      eventCount: 3,
    },
    "event_count",
    /^event_count must be 4, the events of the group, or left out, but is 3$/,
  ],
];

const content = (payload: string): PushFields => ({ eventType: "TEXT_MESSAGE_CONTENT", payload });

/** Refused in strict mode only; the other faults are in packages/agui/test/validate.test.ts. */
const NOT_AGUI: readonly Case[] = [
  [
    "an event_type outside the catalogue",
    { eventType: "FOO_BAR", payload: "{}" },
    "event_type",
    /^event_type must be an AG-UI event type, but is FOO_BAR; the types are RUN_\{/,
  ],
  [
    "a type in the payload that is not event_type",
    { payload: '{"type":"RAW","name":"n"}' },
    "payload.type",
    /payload\.type must be CUSTOM, as event_type is/,
  ],
  [
    "a missing field",
    content('{"messageId":"m"}'),
    "payload.delta",
    /^payload\.delta must be a string, but is absent$/,
  ],
  [
    "several fields at once",
    { eventType: "TOOL_CALL_START", payload: "{}" },
    ["payload.toolCallId", "payload.toolCallName"],
    /^payload\.toolCallId must be a string, but is absent$/,
  ],
  [
    "a run without an id",
    { eventType: "RUN_STARTED", payload: '{"threadId":"t"}' },
    "payload.runId",
    /must be a string/,
  ],
];

describe("strict and lenient mode refuse", () => {
  test.each(UNREADABLE)("%s", async (...refused) => {
    expect(await refusalOf(refused[1])).toEqual(expected(refused));
    expect(await lenientRefusalOf(refused[1])).toEqual(expected(refused));
  });
});

describe("strict mode refuses, and lenient mode stores unchanged,", () => {
  test.each(NOT_AGUI)("%s", async (...refused) => {
    const [, fields] = refused;
    expect(await refusalOf(fields)).toEqual(expected(refused));
    const sessionId = newSession();
    const answer = await push(lenient, "events", { sessionId, ...fields });
    expect(answer).toMatchObject({ seq: 1n, runId: "", nonconformant: true, ...fields });
    expect(await rowsOf(lenient, "events", sessionId)).toEqual([answer]);
    const path = `/api/ambient/v1/sessions/${sessionId}/events/history`;
    const page: unknown = await (await fetch(`http://${lenientService.httpAddress}${path}`)).json();
    expect(page).toMatchObject({ items: [{ seq: 1, nonconformant: true }] });
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
  test.each<[string, PushFields]>([
    ["64 levels", { payload: deep(64) }],
    ["META, a draft", { eventType: "META", payload: '{"metaType":"thumbs_up"}' }],
    ["THINKING_START, of 0.x only", { eventType: "THINKING_START", payload: "{}" }],
    ["a CUSTOM without value, of 0.x only", { payload: '{"name":"n"}' }],
    [
      "tool arguments that are no JSON",
      { eventType: "TOOL_CALL_ARGS", payload: '{"toolCallId":"c","delta":"{\\"q\\": \\"h"}' },
    ],
  ])("%s", async (_, fields) => {
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
