/**
 * Every row of the contract's "Behaviour on push" that a caller's input decides: what is refused, with
 * which code, reason and fields, and that a refusal stores nothing. What is at the border of being
 * refused is accepted, and shown beside it.
 */
import { describe, expect, test } from "vitest";
import {
  failureOf,
  GOOD,
  newSession,
  push,
  type PushFields,
  rowsOf,
  STREAMS,
  type Stream,
  tracesOf,
} from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";

const { client } = useService({}); // Its own: tests count all sessions.

interface Case {
  readonly title: string;
  readonly push: PushFields;
  /** What the violations name, in their order. */
  readonly fields: readonly string[];
  readonly message?: RegExp;
  readonly code?: string;
  readonly reason?: string;
}

/** INVALID_ARGUMENT unless the case says another thing. */
function expected(refused: Case): object {
  return {
    code: refused.code ?? "INVALID_ARGUMENT",
    reason: refused.reason ?? "INVALID_REQUEST",
    domain: "session-ledger",
    message: expect.stringMatching(refused.message ?? /./),
    fields: refused.fields,
    descriptions: refused.fields.map(() => expect.stringMatching(/./)),
    retryAfterMs: undefined, // The same call can never succeed.
    traces: [],
  };
}

async function refusalOf(stream: Stream, fields: PushFields): Promise<object> {
  const { outcome, traces } = await tracesOf(client, stream, (sessionId) =>
    failureOf(push(client, stream, { sessionId, ...fields })),
  );
  const { code, reason, domain, message, violations, retryAfterMs } = outcome;
  return {
    code,
    reason,
    domain,
    message,
    fields: violations.map(({ field }) => field),
    descriptions: violations.map(({ description }) => description),
    retryAfterMs,
    traces,
  };
}

const MEBIBYTE = 1_048_576;
const NUL = "a\0b";
const ID = ["session_id"];
const ID_FORM = /^session_id must be 1 to 128 bytes of \[A-Za-z0-9\._:-\], not \. or \.\.$/;

const BOTH: readonly Case[] = [
  {
    title: "no session_id",
    push: { sessionId: "" },
    fields: ID,
    message: /^session_id is required$/,
  },
  {
    title: "no session_id comes before everything else that is wrong",
    push: { sessionId: "", eventType: "", payload: NUL, idempotencyKey: NUL },
    fields: ["session_id", "event_type", "payload", "idempotency_key"],
    message: /^session_id is required$/,
  },
  {
    title: "a session_id of 129 bytes",
    push: { sessionId: "x".repeat(129) },
    fields: ID,
    message: ID_FORM,
  },
  { title: "a session_id with a space", push: { sessionId: "a b" }, fields: ID, message: ID_FORM },
  { title: "a session_id with a slash", push: { sessionId: "a/b" }, fields: ID, message: ID_FORM },
  {
    title: "a session_id with a line end",
    push: { sessionId: "a\n" },
    fields: ID,
    message: ID_FORM,
  },
  { title: "a session_id outside ASCII", push: { sessionId: "é" }, fields: ID, message: ID_FORM },
  { title: "a session_id with U+0000", push: { sessionId: NUL }, fields: ID, message: ID_FORM },
  { title: "the session_id .", push: { sessionId: "." }, fields: ID, message: ID_FORM },
  { title: "the session_id ..", push: { sessionId: ".." }, fields: ID, message: ID_FORM },
  {
    title: "no event_type",
    push: { eventType: "" },
    fields: ["event_type"],
    message: /^event_type is required$/,
  },
  {
    title: "a payload with U+0000",
    push: { payload: NUL },
    fields: ["payload"],
    message: /U\+0000/,
  },
  {
    title: "an idempotency_key of 129 bytes",
    push: { idempotencyKey: "k".repeat(129) },
    fields: ["idempotency_key"],
    message: /at most 128 bytes/,
  },
  {
    title: "an idempotency_key of 130 bytes in 65 characters",
    push: { idempotencyKey: "é".repeat(65) },
    fields: ["idempotency_key"],
  },
  {
    title: "an idempotency_key with U+0000",
    push: { idempotencyKey: NUL },
    fields: ["idempotency_key"],
    message: /U\+0000/,
  },
  {
    title: "a producer_epoch of 2^63",
    push: { producerEpoch: 2n ** 63n },
    fields: ["producer_epoch"],
    message: /9223372036854775807/,
  },
  {
    title: "a payload of one byte more than the limit",
    push: { payload: `{"name":"${"x".repeat(MEBIBYTE - 10)}"}` },
    fields: ["payload"],
    code: "RESOURCE_EXHAUSTED",
    reason: "PAYLOAD_TOO_LARGE",
    message: /1048577 bytes, at most 1048576/,
  },
  {
    title: "a payload over the limit in bytes, though not in characters",
    push: { payload: `{"name":"${"é".repeat(MEBIBYTE / 2)}"}` },
    fields: ["payload"],
    code: "RESOURCE_EXHAUSTED",
    reason: "PAYLOAD_TOO_LARGE",
  },
  {
    title: "a request over 4 MiB",
    push: { payload: "x".repeat(4 * MEBIBYTE) },
    fields: [],
    code: "RESOURCE_EXHAUSTED",
    reason: "REQUEST_TOO_LARGE",
  },
];

describe.each(STREAMS)("%s: a push is refused for", (stream) => {
  test.each(BOTH)("$title", async (refused) => {
    expect(await refusalOf(stream, refused.push)).toEqual(expected(refused));
  });
});

const SENDER_FIELDS = {
  id: "id",
  name: "name",
  displayName: "display_name",
  channel: "channel",
  channelId: "channel_id",
  threadId: "thread_id",
} as const;

const ALLOWED =
  /^event_type must be one of user, assistant, tool_use, tool_result, system, error, lifecycle$/;

/** Years 1 to 9999, and nanos that count forward within a second. */
const BAD_TIMES = [
  {
    title: "before the year 1",
    time: { seconds: -62_135_596_801n, nanos: 999_999_999 },
    part: "seconds",
  },
  { title: "after the year 9999", time: { seconds: 253_402_300_800n, nanos: 0 }, part: "seconds" },
  { title: "with negative nanos", time: { seconds: 0n, nanos: -1 }, part: "nanos" },
  { title: "with a second of nanos", time: { seconds: 0n, nanos: 1_000_000_000 }, part: "nanos" },
] as const;

function badTimes(key: "sentAt" | "createdAt" | "completedAt", field: string): readonly Case[] {
  return BAD_TIMES.map(({ title, time, part }) => ({
    title: `${field} ${title}`,
    push: { [key]: time },
    fields: [`${field}.${part}`],
  }));
}

describe("a message is refused for", () => {
  const cases: readonly Case[] = [
    ...["User", "user ", "tool", "TEXT_MESSAGE_START", "\0"].map((eventType) => ({
      title: `the event_type ${JSON.stringify(eventType)}`,
      push: { eventType },
      fields: ["event_type"],
      message: ALLOWED,
    })),
    ...Object.entries(SENDER_FIELDS).map(([key, field]) => ({
      title: `a sender.${field} with U+0000`,
      push: { sender: { [key]: NUL } },
      fields: [`sender.${field}`],
      message: /U\+0000/,
    })),
    ...badTimes("sentAt", "sent_at"),
  ];
  test.each(cases)("$title", async (refused) => {
    expect(await refusalOf("messages", refused.push)).toEqual(expected(refused));
  });
});

describe("an event is refused for", () => {
  const content = (delta: string): PushFields => ({
    eventType: "TEXT_MESSAGE_CONTENT",
    payload: JSON.stringify({ messageId: "m", delta }),
  });
  const counted = { eventType: "RAW", payload: '{"event":1}' };
  const cases: readonly Case[] = [
    ...badTimes("createdAt", "created_at"),
    ...badTimes("completedAt", "completed_at"),
    {
      title: "completed_at a microsecond before created_at",
      push: { createdAt: { seconds: 5n, nanos: 1_000 }, completedAt: { seconds: 5n, nanos: 999 } },
      fields: ["completed_at"],
      message: /^completed_at must not be before created_at$/,
    },
    {
      title: "an event_count of -1",
      push: { ...content("x"), eventCount: -1 },
      fields: ["event_count"],
    },
    {
      title: "the least event_count there is",
      push: { ...content("x"), eventCount: -2_147_483_648 },
      fields: ["event_count"],
    },
    {
      title: "an event_count over a million",
      push: { ...content("x"), eventCount: 1_000_001 },
      fields: ["event_count"],
      message: /from 0 to 1000000/,
    },
    {
      title: "an event_count of 2 on a type without fragments",
      push: { ...counted, eventCount: 2 },
      fields: ["event_count"],
      message: /must be 1, or left out/,
    },
    {
      title: "fragments on a type that has none",
      push: { ...counted, fragments: { lengths: [1] } },
      fields: ["fragments"],
    },
    {
      title: "fragments whose lengths do not add up to the delta",
      push: { ...content("abc"), eventCount: 2, fragments: { lengths: [2, 2] } },
      fields: ["fragments.lengths"],
      message: /3 UTF-16 units in all, as the delta is, but is 2/,
    },
    {
      title: "more fragments than event_count",
      push: { ...content("ab"), eventCount: 2, fragments: { lengths: [2, 2, 1] } },
      fields: ["fragments.lengths"],
    },
    {
      title: "raw events with a step that takes more texts than there are",
      push: {
        eventType: "TEXT_MESSAGE_CONTENT",
        payload: '{"messageId":"m","delta":"ab","rawEvent":{"at":1}}',
        eventCount: 2,
        fragments: { rawEvents: { lengths: [2, 2], steps: [0, 4 * 9 + 2, 0, 0], texts: "2" } },
      },
      fields: ["fragments.raw_events"],
      message: /texts of another length/,
    },
    {
      title: "fewer time differences than fragments have",
      push: {
        eventType: "TEXT_MESSAGE_CONTENT",
        payload: '{"messageId":"m","delta":"abc","timestamp":5}',
        eventCount: 3,
        fragments: { lengths: [2, 2, 2], timestampDeltasMs: [1n] },
      },
      fields: ["fragments.timestamp_deltas_ms"],
    },
    {
      title: "a row that would expand to more than 64 MiB",
      push: {
        eventType: "TEXT_MESSAGE_CONTENT",
        payload: JSON.stringify({ messageId: "m".repeat(70), delta: "" }),
        eventCount: 700_000,
        fragments: { lengths: Array.from({ length: 700_000 }, () => 1) },
      },
      fields: ["payload"],
      message: /at most 67108864 bytes when expanded/,
    },
  ];
  test.each(cases)("$title", async (refused) => {
    expect(await refusalOf("events", refused.push)).toEqual(expected(refused));
  });
});

const YEAR_1 = { seconds: -62_135_596_800n, nanos: 0 };
const YEAR_9999 = { seconds: 253_402_300_799n, nanos: 999_999_000 };

describe.each(STREAMS)("%s: the largest accepted value is", (stream) => {
  const accepted: readonly { readonly title: string; readonly push: PushFields }[] = [
    { title: "a session_id of 128 bytes", push: { sessionId: `a${"._:-Z9".repeat(21)}x` } },
    { title: "a session_id of three dots", push: { sessionId: "..." } },
    { title: "an idempotency_key of 128 bytes", push: { idempotencyKey: "é".repeat(64) } },
    { title: "a producer_epoch of 2^63 - 1", push: { producerEpoch: 2n ** 63n - 1n } },
    {
      title: "a payload of the limit",
      push: { payload: `{"type":"CUSTOM","name":"${"x".repeat(MEBIBYTE - 27)}"}` },
    },
    {
      title: "the JSON escape of U+0000",
      push: { payload: String.raw`{"type":"CUSTOM","name":"\u0000","\u0000":"\ud800"}` },
    },
  ];
  test.each(accepted)("$title", async ({ push: fields }) => {
    const sessionId = fields.sessionId ?? newSession();
    const answer = await push(client, stream, { ...fields, sessionId });
    expect(answer.seq).toBe(1n);
    expect(answer.payload).toBe(fields.payload ?? GOOD[stream].payload);
    expect(await rowsOf(client, stream, sessionId)).toEqual([answer]);
  });
});

describe("the largest accepted value is", () => {
  test.each(["user", "assistant", "tool_use", "tool_result", "system", "error", "lifecycle"])(
    "the message type %s, with an empty payload",
    async (eventType) => {
      const sessionId = newSession();
      const answer = await push(client, "messages", { sessionId, eventType, payload: "" });
      expect(answer).toMatchObject({ seq: 1n, eventType, payload: "" });
      expect(await rowsOf(client, "messages", sessionId)).toEqual([answer]);
    },
  );

  test.each([
    { title: "absent", eventCount: {}, stored: 1 },
    { title: "0", eventCount: { eventCount: 0 }, stored: 1 },
    { title: "1", eventCount: { eventCount: 1 }, stored: 1 },
    { title: "a million", eventCount: { eventCount: 1_000_000 }, stored: 1_000_000 },
  ])("an event_count that is $title", async ({ eventCount, stored }) => {
    const sessionId = newSession();
    const fields = { eventType: "TEXT_MESSAGE_CHUNK", payload: '{"delta":"x"}', ...eventCount };
    const answer = await push(client, "events", { sessionId, ...fields });
    expect(answer).toMatchObject({ seq: 1n, eventCount: stored });
    const next = await push(client, "events", { sessionId });
    expect(next.seq).toBe(1n + BigInt(stored));
  });

  test.each([
    { title: "the first moment of the year 1", time: YEAR_1, stored: YEAR_1 },
    { title: "the last of the year 9999", time: YEAR_9999, stored: YEAR_9999 },
    {
      title: "nanos, cut to microseconds",
      time: { seconds: 1n, nanos: 999_999_999 },
      stored: { seconds: 1n, nanos: 999_999_000 },
    },
    {
      title: "nanos before 1970, cut towards the past",
      time: { seconds: -1n, nanos: 1_999 },
      stored: { seconds: -1n, nanos: 1_000 },
    },
  ])("$title", async ({ time, stored }) => {
    const sessionId = newSession();
    const event = await push(client, "events", { sessionId, createdAt: time, completedAt: time });
    expect(event).toMatchObject({ createdAt: stored, completedAt: stored });
    expect(await rowsOf(client, "events", sessionId)).toEqual([event]);
    const message = await push(client, "messages", { sessionId, sentAt: time });
    expect(message).toMatchObject({ sentAt: stored });
    expect(await rowsOf(client, "messages", sessionId)).toEqual([message]);
  });

  test("a completed_at less than a microsecond before created_at", async () => {
    const sessionId = newSession();
    const answer = await push(client, "events", {
      sessionId,
      createdAt: { seconds: 5n, nanos: 1_999 },
      completedAt: { seconds: 5n, nanos: 1_000 },
    });
    const cut = { seconds: 5n, nanos: 1_000 };
    expect(answer).toMatchObject({ createdAt: cut, completedAt: cut });
  });

  test("no created_at: the row gets the earlier of now and completed_at", async () => {
    const sessionId = newSession();
    const past = { seconds: 1_700_000_000n, nanos: 1_000 };
    const before = BigInt(Date.now()) / 1_000n;
    const complete = await push(client, "events", { sessionId, completedAt: past });
    expect(complete.createdAt).toMatchObject(past);
    const future = await push(client, "events", { sessionId, completedAt: YEAR_9999 });
    expect(future.createdAt?.seconds).toBeGreaterThanOrEqual(before);
    expect(future.createdAt?.seconds).toBeLessThanOrEqual(BigInt(Date.now()) / 1_000n);
  });

  test("a row that expands to exactly 64 MiB", async () => {
    // 128 bytes around each delta, 2^19 times; one more is over.
    const envelope = (id: string): string =>
      `{"type":"TEXT_MESSAGE_CHUNK","messageId":"${id}","delta":""}`;
    const payload = envelope("m".repeat(128 - envelope("").length));
    const eventCount = 2 ** 19;
    const fields = (count: number): PushFields => ({
      eventType: "TEXT_MESSAGE_CHUNK",
      payload,
      eventCount: count,
      fragments: { lengths: Array.from({ length: count }, () => 1) },
    });
    const sessionId = newSession();
    const failure = await failureOf(
      push(client, "events", { sessionId, ...fields(eventCount + 1) }),
    );
    expect(failure.violations.map(({ field }) => field)).toEqual(["payload"]);
    const answer = await push(client, "events", { sessionId, ...fields(eventCount) });
    expect(answer).toMatchObject({ seq: 1n, eventCount });
  });
});
