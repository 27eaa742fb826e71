/**
 * Old client, new server: a runner that knows only upstream's messages pushes plain, compressed and
 * grouped rows into one session, and understands the rows that it reads.
 */
import { status } from "@grpc/grpc-js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type PushEvent,
  UpstreamClient,
  type UpstreamEvent,
  type UpstreamTimestamp,
} from "../support/upstream-codec.ts";
import { useService } from "../support/use-service.ts";

const { service } = useService({});
let client: UpstreamClient;

beforeAll(async () => {
  client = new UpstreamClient(service.grpcAddress);
});

afterAll(async () => {
  client.close();
});

const PAST = { seconds: 1_700_000_000n, nanos: 123_456_000 };

/** What a row says, without what the service made up: id and time. */
function said({ seq, eventType, payload, eventCount }: UpstreamEvent): readonly unknown[] {
  return [seq, eventType, payload, eventCount];
}

function micros({ seconds, nanos }: UpstreamTimestamp): bigint {
  return seconds * 1_000_000n + BigInt(nanos) / 1_000n;
}

/** One run as existing runners send it, and the rows it stands for: seq, type, payload, event_count. */
const RUN: readonly Omit<PushEvent, "sessionId">[] = [
  {
    eventType: "RUN_STARTED",
    payload: '{"thread_id":"t","run_id":"r1","parent_run_id":null}',
  },
  {
    eventType: "TEXT_MESSAGE_START",
    payload:
      '{"message_id":"m1","role":"assistant","accumulated_content":"Hello, you","fragment_count":3,"end_event":{"message_id":"m1"}}',
    eventCount: 5,
    completedAt: PAST,
  },
  {
    eventType: "TEXT_MESSAGE_CONTENT",
    payload: '{"message_id":"m2","delta":"four fragments"}',
    eventCount: 4,
    completedAt: PAST,
  },
  {
    eventType: "TOOL_CALL_START",
    payload:
      '{"tool_call_id":"c1","tool_call_name":"search","accumulated_content":"{\\"q\\":","fragment_count":2}',
    completedAt: PAST,
  },
  {
    eventType: "REASONING_MESSAGE_START",
    payload:
      '{"message_id":"m3","role":"assistant","fragment_count":0,"end_event":{"message_id":"m3"}}',
    eventCount: 2,
    completedAt: PAST,
  },
  { eventType: "STEP_STARTED", payload: '{"step_name":"s"}', eventCount: 1 },
  { eventType: "RUN_FINISHED", payload: '{"thread_id":"t","run_id":"r1"}' },
];

const ROWS: readonly (readonly unknown[])[] = [
  [1n, "RUN_STARTED", '{"type":"RUN_STARTED","threadId":"t","runId":"r1"}', 1],
  [
    2n,
    "TEXT_MESSAGE_START",
    '{"type":"TEXT_MESSAGE_START","messageId":"m1","role":"assistant"}',
    1,
  ],
  [
    3n,
    "TEXT_MESSAGE_CONTENT",
    '{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"Hello, you"}',
    3,
  ],
  [6n, "TEXT_MESSAGE_END", '{"type":"TEXT_MESSAGE_END","messageId":"m1"}', 1],
  [
    7n,
    "TEXT_MESSAGE_CONTENT",
    '{"type":"TEXT_MESSAGE_CONTENT","messageId":"m2","delta":"four fragments"}',
    4,
  ],
  [
    11n,
    "TOOL_CALL_START",
    '{"type":"TOOL_CALL_START","toolCallId":"c1","toolCallName":"search"}',
    1,
  ],
  [12n, "TOOL_CALL_ARGS", '{"type":"TOOL_CALL_ARGS","toolCallId":"c1","delta":"{\\"q\\":"}', 2],
  [
    14n,
    "REASONING_MESSAGE_START",
    '{"type":"REASONING_MESSAGE_START","messageId":"m3","role":"reasoning"}',
    1,
  ],
  [15n, "REASONING_MESSAGE_END", '{"type":"REASONING_MESSAGE_END","messageId":"m3"}', 1],
  [16n, "STEP_STARTED", '{"type":"STEP_STARTED","stepName":"s"}', 1],
  [17n, "RUN_FINISHED", '{"type":"RUN_FINISHED","threadId":"t","runId":"r1"}', 1],
];

async function pushRun(sessionId: string): Promise<readonly UpstreamEvent[]> {
  const answers: UpstreamEvent[] = [];
  for (const push of RUN) answers.push(await client.pushEvent({ ...push, sessionId }));
  return answers;
}

async function eventsAfter(
  sessionId: string,
  { afterSeq, count }: { readonly afterSeq: bigint; readonly count: number },
): Promise<readonly UpstreamEvent[]> {
  const watch = client.watchEvents({ sessionId, afterSeq });
  const rows = await watch.take(count);
  watch.cancel();
  return rows;
}

describe("events", () => {
  test("plain, compressed and grouped pushes of one session become the documented rows", async () => {
    const answers = await pushRun("mixed");
    // The answer is the row of the push; of a group, its START.
    expect(answers.map(said)).toEqual([0, 1, 4, 5, 7, 9, 10].map((index) => ROWS[index]));
    const rows = await eventsAfter("mixed", { afterSeq: 0n, count: ROWS.length });
    expect(rows.map(said)).toEqual(ROWS);
    expect(new Set(rows.map(({ sessionId }) => sessionId))).toEqual(new Set(["mixed"]));
    expect(new Set(rows.map(({ id }) => id)).size).toBe(ROWS.length);
  });

  test("an answer equals the row that a watch delivers later", async () => {
    const answers = await pushRun("answers");
    const rows = await eventsAfter("answers", { afterSeq: 0n, count: ROWS.length });
    const answered = new Set(answers.map(({ id }) => id));
    expect(rows.filter(({ id }) => answered.has(id))).toEqual(answers);
  });

  test("times come from the runner where it sends them, and from the service elsewhere", async () => {
    const before = BigInt(Date.now()) * 1_000n;
    await pushRun("times");
    const after = BigInt(Date.now() + 1) * 1_000n;
    const rows = await eventsAfter("times", { afterSeq: 0n, count: ROWS.length });
    const timed = rows.filter(({ seq }) => seq > 1n && seq < 16n);
    expect(timed.map(({ createdAt }) => createdAt)).toEqual(timed.map(() => PAST));
    const others = rows.filter((row) => !timed.includes(row)).map(({ createdAt }) => createdAt);
    expect(others).toHaveLength(3);
    for (const createdAt of others) {
      expect(createdAt && micros(createdAt)).toBeGreaterThanOrEqual(before);
      expect(createdAt && micros(createdAt)).toBeLessThanOrEqual(after);
    }
    const isCompressed = (row: UpstreamEvent): boolean => row.eventCount > 1;
    expect(rows.map(({ completedAt }) => completedAt)).toEqual(
      rows.map((row) => (isCompressed(row) ? PAST : undefined)),
    );
  });

  test("the plain seq of any row, merged or not, is a cursor that repeats nothing", async () => {
    await pushRun("cursors");
    for (const [index, [seq]] of ROWS.slice(0, -1).entries()) {
      const rest = ROWS.slice(index + 1);
      const rows = await eventsAfter("cursors", {
        afterSeq: BigInt(String(seq)),
        count: rest.length,
      });
      expect(rows.map(said)).toEqual(rest);
    }
  });

  test("the client skips our additional fields", async () => {
    await pushRun("skipped");
    await eventsAfter("skipped", { afterSeq: 0n, count: ROWS.length });
    expect([...client.skipped]).toEqual([111]); // run_id; the others are not there without a key.
  });
});

describe("messages", () => {
  const TYPES = ["user", "assistant", "tool_use", "tool_result", "system", "error", "lifecycle"];

  test("a runner that watches from the beginning receives older rows and its own rows", async () => {
    const sessionId = "conversation";
    const start = BigInt(Date.now()) * 1_000n;
    const question = await client.pushMessage({ sessionId, eventType: "user", payload: "hi" });
    const watch = client.watchMessages({ sessionId, afterSeq: 0n });
    expect(await watch.take(1)).toEqual([question]);
    for (const eventType of TYPES) {
      const payload = eventType === "lifecycle" ? "" : `{"a":  "${eventType} \\u0000"}`;
      const answer = await client.pushMessage({ sessionId, eventType, payload });
      expect(answer).toMatchObject({ eventType, payload, sessionId });
      expect(await watch.take(1)).toEqual([answer]);
      // A runner skips rows that are five seconds older than its start.
      expect(answer.createdAt && micros(answer.createdAt)).toBeGreaterThanOrEqual(start);
    }
    watch.cancel();
    expect((await client.pushMessage({ sessionId, eventType: "user", payload: "" })).seq).toBe(9n);
  });

  test("a watch of an empty session waits for the first row", async () => {
    const watch = client.watchMessages({ sessionId: "later", afterSeq: 0n });
    await watch.attached;
    const pushed = await client.pushMessage({
      sessionId: "later",
      eventType: "user",
      payload: "first",
    });
    expect(pushed.seq).toBe(1n);
    expect(await watch.take(1)).toEqual([pushed]);
    watch.cancel();
  });

  test("messages and events of a session have separate numbers", async () => {
    const sessionId = "apart";
    await pushRun(sessionId);
    const message = await client.pushMessage({ sessionId, eventType: "user", payload: "hi" });
    expect(message.seq).toBe(1n);
    const event = await client.pushEvent({
      sessionId,
      eventType: "CUSTOM",
      payload: '{"name":"n"}',
    });
    expect(event.seq).toBe(18n);
  });
});

test("a watch that reopens at its highest seq after a restart of the service misses nothing", async () => {
  const sessionId = "restart";
  const push = (payload: string) => client.pushMessage({ sessionId, eventType: "user", payload });
  const first = await push("one");
  const messages = client.watchMessages({ sessionId, afterSeq: 0n });
  const [seen] = await messages.take(1);
  expect(seen).toEqual(first);
  await pushRun(sessionId);
  const events = client.watchEvents({ sessionId, afterSeq: 0n });
  const before = await events.take(5); // The last of them is a compressed row.
  expect(before.at(-1)?.eventCount).toBe(4);
  const ends = [messages, events].map((watch) => watch.ended().catch((error: unknown) => error));

  const { grpcAddress } = service;
  expect(await service.stop()).toBe(0);
  for (const end of ends) expect(await end).toMatchObject({ code: status.UNAVAILABLE });
  await service.restart();

  const restarted = new UpstreamClient(grpcAddress);
  const second = await restarted.pushMessage({ sessionId, eventType: "user", payload: "two" });
  expect(second.seq).toBe(2n);
  const reopened = restarted.watchMessages({ sessionId, afterSeq: seen?.seq ?? 0n });
  expect(await reopened.take(1)).toEqual([second]);
  const rest = restarted.watchEvents({ sessionId, afterSeq: before.at(-1)?.seq ?? 0n });
  expect((await rest.take(6)).map(said)).toEqual(ROWS.slice(5));
  for (const watch of [reopened, rest]) watch.cancel();
  restarted.close();
});
