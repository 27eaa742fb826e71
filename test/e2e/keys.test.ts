/** Keys and epochs over the wire: what a retry gets, and what a writer gets that was replaced. */
import { describe, expect, test } from "vitest";
import { RpcClient } from "../support/grpc-client.ts";
import {
  failureOf,
  newSession,
  push,
  type PushFields,
  rowsOf,
  STREAMS,
  type Stream,
} from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";

const { service, client } = useService();

const TIME = { seconds: 1_700_000_000n, nanos: 123_456_789 };
const LATER = { seconds: 1_700_000_001n, nanos: 0 };

/** A push that uses every field it has. */
const FULL: Readonly<Record<Stream, PushFields>> = {
  messages: {
    eventType: "user",
    payload: "hi",
    sentAt: TIME,
    sender: { id: "u", name: "n", displayName: "N", isBot: true, channel: "c", threadId: "t" },
  },
  events: {
    eventType: "TEXT_MESSAGE_CONTENT",
    payload: '{"message_id":"m","delta":"abc"}',
    eventCount: 2,
    createdAt: TIME,
    completedAt: LATER,
    fragments: { lengths: [2, 3] },
  },
};

/** The same push with one field changed: the key then stands for other content. */
const OTHER: Readonly<Record<Stream, readonly (readonly [string, PushFields])[]>> = {
  messages: [
    ["event_type", { eventType: "assistant" }],
    ["payload", { payload: "hi " }],
    ["sent_at", { sentAt: LATER }],
    ["sent_at, below a microsecond", { sentAt: { ...TIME, nanos: TIME.nanos + 1 } }],
    ["sender", { sender: { id: "u" } }],
  ],
  events: [
    ["event_type", { eventType: "REASONING_MESSAGE_CONTENT" }],
    ["payload, though it means the same", { payload: '{"messageId":"m","delta":"abc"}' }],
    ["event_count and fragments", { eventCount: 1, fragments: { lengths: [4] } }],
    ["fragments", { fragments: { lengths: [3, 2] } }],
    ["created_at", { createdAt: { ...TIME, nanos: 0 } }],
    ["completed_at", { completedAt: TIME }],
  ],
};

const REUSED = {
  code: "ALREADY_EXISTS",
  reason: "KEY_REUSED",
  violations: [{ field: "idempotency_key" }],
  retryAfterMs: undefined,
};
const STALE = { code: "FAILED_PRECONDITION", reason: "STALE_EPOCH", retryAfterMs: undefined };

describe.each(STREAMS)("%s: the same key", (stream) => {
  const full = FULL[stream];

  test("with the same content gets the first answer, marked deduplicated, and stores no row", async () => {
    const sessionId = newSession();
    const keyed = { ...full, sessionId, idempotencyKey: "k" };
    const first = await push(client, stream, keyed);
    expect(first.deduplicated).toBe(false);
    for (let n = 0; n < 3; n += 1) {
      expect(await push(client, stream, keyed)).toEqual({ ...first, deduplicated: true });
    }
    expect(await rowsOf(client, stream, sessionId)).toEqual([first]);
    const next = await push(client, stream, { sessionId });
    expect(next.seq).toBe(stream === "messages" ? 2n : 3n);
  });

  test("in several calls at once stores one row, and every call gets its answer", async () => {
    const sessionId = newSession();
    const keyed = { ...full, sessionId, idempotencyKey: "k" };
    const clients = [1, 2, 3, 4].map(() => new RpcClient(service.grpcAddress));
    const answers = await Promise.all(
      clients.flatMap((one) => [push(one, stream, keyed), push(one, stream, keyed)]),
    );
    for (const one of clients) one.close();
    const [row] = await rowsOf(client, stream, sessionId);
    const plain = answers.map((answer) => ({ ...answer, deduplicated: false }));
    expect(plain).toEqual(answers.map(() => row));
    expect(answers.filter(({ deduplicated }) => !deduplicated)).toHaveLength(1);
    expect(await rowsOf(client, stream, sessionId)).toHaveLength(1);
  });

  test.each(OTHER[stream])(
    "with another %s is ALREADY_EXISTS and stores no row",
    async (_, other) => {
      const sessionId = newSession();
      const keyed = { ...full, sessionId, idempotencyKey: "k" };
      const first = await push(client, stream, keyed);
      const failure = await failureOf(push(client, stream, { ...keyed, ...other }));
      expect(failure).toMatchObject(REUSED);
      expect(await rowsOf(client, stream, sessionId)).toEqual([first]);
    },
  );

  test("in another session or the other stream is another key", async () => {
    const keyed = { idempotencyKey: "k" };
    const sessionId = newSession();
    for (const one of STREAMS) {
      expect(await push(client, one, { ...keyed, sessionId })).toMatchObject({ seq: 1n });
    }
    const elsewhere = await push(client, stream, { ...keyed, sessionId: newSession() });
    expect(elsewhere).toMatchObject({ seq: 1n, deduplicated: false });
  });

  test("a push without a key is never deduplicated", async () => {
    const sessionId = newSession();
    await push(client, stream, { ...full, sessionId });
    expect(await push(client, stream, { ...full, sessionId })).toMatchObject({
      deduplicated: false,
    });
    expect(await rowsOf(client, stream, sessionId)).toHaveLength(2);
  });
});

test("a repeated grouped push gets its START as the answer and takes no number", async () => {
  const sessionId = newSession();
  const group = {
    sessionId,
    idempotencyKey: "k",
    eventType: "TOOL_CALL_START",
    payload:
      '{"tool_call_id":"c","tool_call_name":"n","accumulated_content":"ab","fragment_count":2,"end_event":{"tool_call_id":"c"}}',
    completedAt: LATER,
  };
  const first = await push(client, "events", group);
  expect(await push(client, "events", group)).toEqual({ ...first, deduplicated: true });
  const rows = await rowsOf(client, "events", sessionId);
  expect(rows.map(({ seq, eventType }) => [seq, eventType])).toEqual([
    [1n, "TOOL_CALL_START"],
    [2n, "TOOL_CALL_ARGS"],
    [4n, "TOOL_CALL_END"],
  ]);
  expect((await push(client, "events", { sessionId })).seq).toBe(5n);
});

describe("an epoch", () => {
  test("below the highest of the session is refused in both streams and stores nothing", async () => {
    const sessionId = newSession();
    const first = await push(client, "events", { sessionId, producerEpoch: 7n });
    for (const stream of STREAMS) {
      for (const producerEpoch of [0n, 6n]) {
        const failure = await failureOf(push(client, stream, { sessionId, producerEpoch }));
        expect(failure).toMatchObject(STALE);
      }
    }
    expect(await rowsOf(client, "events", sessionId)).toEqual([first]);
    expect(await rowsOf(client, "messages", sessionId)).toEqual([]);
    for (const producerEpoch of [7n, 8n])
      await push(client, "messages", { sessionId, producerEpoch });
    expect(await failureOf(push(client, "events", { sessionId, producerEpoch: 7n }))).toMatchObject(
      STALE,
    );
  });

  test("that is absent is never fenced", async () => {
    const sessionId = newSession();
    await push(client, "events", { sessionId, producerEpoch: 2n ** 63n - 1n });
    for (const stream of STREAMS) {
      expect(await push(client, stream, { sessionId })).toMatchObject({ deduplicated: false });
    }
  });

  test("is compared after the key, so the retry of a replaced writer still gets its row", async () => {
    const sessionId = newSession();
    const mine = { sessionId, idempotencyKey: "mine", producerEpoch: 1n };
    const first = await push(client, "messages", mine);
    await push(client, "messages", { sessionId, producerEpoch: 2n });
    expect(await push(client, "messages", mine)).toEqual({ ...first, deduplicated: true });
    const reused = await failureOf(push(client, "messages", { ...mine, payload: "other" }));
    expect(reused).toMatchObject(REUSED);
    const unkeyed = await failureOf(push(client, "messages", { ...mine, idempotencyKey: "new" }));
    expect(unkeyed).toMatchObject(STALE);
  });

  test("is no part of the content, and a deduplicated push does not raise it", async () => {
    const sessionId = newSession();
    const keyed = { sessionId, idempotencyKey: "k" };
    const first = await push(client, "events", { ...keyed, producerEpoch: 1n });
    const retried = await push(client, "events", { ...keyed, producerEpoch: 9n });
    expect(retried).toEqual({ ...first, deduplicated: true });
    expect(await push(client, "events", { sessionId, producerEpoch: 1n })).toMatchObject({
      seq: 2n,
    });
  });

  test("of a refused push does not raise the epoch of the session", async () => {
    const sessionId = newSession();
    await push(client, "events", { sessionId, idempotencyKey: "k", producerEpoch: 1n });
    const reused = { sessionId, idempotencyKey: "k", producerEpoch: 9n, payload: '{"name":"o"}' };
    expect(await failureOf(push(client, "events", reused))).toMatchObject(REUSED);
    const invalid = { sessionId, producerEpoch: 9n, payload: "{" };
    expect((await failureOf(push(client, "events", invalid))).code).toBe("INVALID_ARGUMENT");
    expect(await push(client, "events", { sessionId, producerEpoch: 1n })).toMatchObject({
      seq: 2n,
    });
  });
});
