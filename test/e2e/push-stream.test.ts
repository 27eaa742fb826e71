/** PushSessionEvents as a client in any language sees it; docs/push-streams.md says what is promised. */
import { toBinary } from "@bufbuild/protobuf";
import { Metadata } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { Compression } from "@session-ledger/proto/ambient/v1/event_stream_pb";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { type Status, StatusSchema } from "@session-ledger/proto/google/rpc/status_pb";
import { RpcFailure } from "../support/grpc-client.ts";
import {
  eventsOf,
  fragments,
  type OpenFields,
  PushStreamClient,
  type RawEventFields,
  type RequestFrame,
  whole,
} from "../support/push-stream.ts";
import { failureOf, newSession, push } from "../support/pushing.ts";
import { Random, seedOfRun } from "../support/random.ts";
import { useService } from "../support/use-service.ts";

const { deleteSession, watchSessionEvents } = SessionService.method;

/** Its own: a test counts all streams. */
const { service, client } = useService({});

/** What a newer client may send. */
const UNKNOWN: Compression = JSON.parse("3");
const BAD: RawEventFields = { payload: '{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1"}' };

function open(fields: OpenFields): ReturnType<typeof PushStreamClient.open> {
  return PushStreamClient.open(client, fields);
}

async function textsOf(sessionId: string): Promise<readonly string[]> {
  return (await eventsOf(client, sessionId, { expand: true })).map(({ payload }) => payload);
}

describe("a stream of events", () => {
  test("is stored as rows, returns event by event as sent, and is acknowledged in order", async () => {
    const sessionId = newSession();
    const { stream, opened } = await open({ sessionId });
    expect(opened).toMatchObject({ lastClientSeq: 0n, producerEpoch: 1n, refused: 0n });
    expect(opened.maxUnacknowledgedBytes).toBe(1_048_576n);
    const events = [whole(1), ...fragments(["Hel", "lo", "", " 😀"]), whole(2)];
    for (const [index, event] of events.entries()) stream.batch(index + 1, [event]);
    stream.end();
    const frames = await stream.rest();
    const numbers = frames.map((frame) =>
      frame.case === "committed" ? Number(frame.value.lastClientSeq) : Number.NaN,
    );
    expect(numbers).toEqual(numbers.toSorted((a, b) => a - b));
    expect(frames.at(-1)).toMatchObject({
      case: "committed",
      value: { lastClientSeq: 6n, lastSeq: 6n },
    });
    const rows = await eventsOf(client, sessionId);
    expect(rows.map(({ seq, eventCount }) => [seq, eventCount])).toEqual([
      [1n, 1],
      [2n, 4],
      [6n, 1],
    ]);
    expect(JSON.parse(rows[1]?.payload ?? "")).toMatchObject({ delta: "Hello 😀" });
    expect(await textsOf(sessionId)).toEqual(events.map(({ payload }) => payload));
  });

  test("has one log record with its counts", async () => {
    const sessionId = newSession();
    const { stream } = await open({ sessionId });
    stream.batch(1, [...fragments(["a", "b"]), BAD]);
    stream.end();
    await stream.rest();
    const records = () =>
      service.log
        .filter((line) => line.includes(sessionId))
        .map((line): unknown => JSON.parse(line));
    await expect
      .poll(records)
      .toMatchObject([
        { msg: "call", code: "OK", sessionId, events: 3, refused: 1, rows: 1, level: "info" },
      ]);
  });

  test("may start before `opened` arrives, and may be empty", async () => {
    const sessionId = newSession();
    const stream = new PushStreamClient(client);
    stream.send({ case: "open", value: { sessionId } });
    stream.batch(1, [whole(1)]);
    stream.end();
    expect((await stream.rest()).map((frame) => frame.case)).toEqual(["opened", "committed"]);
    const { stream: idle } = await open({ sessionId });
    idle.batch(0, []);
    idle.end();
    expect(await idle.rest()).toEqual([]);
    expect(await textsOf(sessionId)).toHaveLength(1);
  });

  test("keeps the times that the client sends, and sets the others at receipt", async () => {
    const sessionId = newSession();
    const { stream } = await open({ sessionId });
    const before = BigInt(Math.floor(Date.now() / 1_000));
    const { payload = "" } = whole(1);
    stream.batch(1, [{ payload, occurredAt: { seconds: 5n, nanos: 1_999 } }, whole(2)]);
    await stream.committed(2);
    const [sent, came] = await eventsOf(client, sessionId);
    expect(sent?.createdAt).toMatchObject({ seconds: 5n, nanos: 1_000 });
    expect(came?.createdAt?.seconds).toBeGreaterThanOrEqual(before);
    stream.cancel();
  });

  test("without compression has a row for each event", async () => {
    const sessionId = newSession();
    const { stream } = await open({ sessionId, compression: Compression.OFF });
    const events = fragments(["a", "b", "c"]);
    stream.batch(1, events);
    await stream.committed(3);
    expect((await eventsOf(client, sessionId)).map(({ payload }) => payload)).toEqual(
      events.map(({ payload }) => payload),
    );
    stream.cancel();
  });

  test("with a grouped event takes one number for its rows", async () => {
    const sessionId = newSession();
    const { stream } = await open({ sessionId });
    const group = {
      type: "TEXT_MESSAGE_START",
      messageId: "m1",
      role: "assistant",
      accumulated_content: "hello",
      fragment_count: 3,
      end_event: { type: "TEXT_MESSAGE_END", messageId: "m1" },
    };
    stream.batch(1, [...fragments(["x"], "m0"), { payload: JSON.stringify(group) }, whole(1)]);
    expect(await stream.committed(3)).toMatchObject({ lastClientSeq: 3n, lastSeq: 7n });
    const rows = await eventsOf(client, sessionId);
    expect(rows.map(({ seq, eventType, eventCount }) => [seq, eventType, eventCount])).toEqual([
      [1n, "TEXT_MESSAGE_CONTENT", 1],
      [2n, "TEXT_MESSAGE_START", 1],
      [3n, "TEXT_MESSAGE_CONTENT", 3],
      [6n, "TEXT_MESSAGE_END", 1],
      [7n, "CUSTOM", 1],
    ]);
    stream.cancel();
  });

  test("with older spellings is stored in the current one, in every fragment", async () => {
    const sessionId = newSession();
    const { stream } = await open({ sessionId });
    const python = (delta: string, timestamp: number | null): RawEventFields => ({
      eventType: "TEXT_MESSAGE_CONTENT",
      payload: `{"message_id": "m1", "delta": ${JSON.stringify(delta)}, "timestamp": ${timestamp}, "raw_event": null}`,
    });
    stream.batch(1, [python("a", 1), python('"', 2), python("c", null), python("d", null)]);
    await stream.committed(4);
    const events = (await textsOf(sessionId)).map((text): unknown => JSON.parse(text));
    const base = { type: "TEXT_MESSAGE_CONTENT", messageId: "m1" };
    expect(events).toEqual([
      { ...base, delta: "a", timestamp: 1 },
      { ...base, delta: '"', timestamp: 2 },
      { ...base, delta: "c" },
      { ...base, delta: "d" },
    ]);
    expect(await eventsOf(client, sessionId)).toHaveLength(2);
    stream.cancel();
  });

  test("accepts a frame of 4 MiB, four times the bytes that may be unacknowledged", async () => {
    const sessionId = newSession();
    const { stream } = await open({ sessionId, maxAgeMs: 5_000 });
    const events = fragments(Array.from({ length: 40 }, (_, n) => `${n}`.padEnd(102_000, "x")));
    stream.batch(1, events);
    await stream.committed(40);
    expect(await textsOf(sessionId)).toEqual(events.map(({ payload }) => payload));
    stream.cancel();
  });

  test("brings rows to a watcher as they commit, without a flush", async () => {
    const sessionId = newSession();
    const { stream } = await open({ sessionId });
    const watch = client.serverStream(watchSessionEvents, { sessionId, expand: true });
    await watch.attached;
    stream.batch(1, fragments(["a", "b"]));
    const texts = [await watch.next(), await watch.next()].map(({ value }) => value.payload);
    expect(texts).toEqual(fragments(["a", "b"]).map(({ payload }) => payload));
    watch.cancel();
    stream.cancel();
  });
});

describe("a broken stream", () => {
  test("loses and doubles nothing, whichever events the client sends again", async () => {
    const seed = seedOfRun();
    const random = new Random(seed);
    const sessionId = newSession();
    const events = Array.from({ length: 300 }, (_, n) =>
      random.oneIn(6) ? whole(n) : (fragments([`${n} `], `m${Math.floor(n / 40)}`)[0] ?? whole(n)),
    );
    for (let committed = 0; committed < events.length; ) {
      const { stream, opened } = await open({ sessionId, producerEpoch: 1n, maxAgeMs: 20 });
      expect(opened.lastClientSeq, `SEED=${seed}`).toBeGreaterThanOrEqual(BigInt(committed));
      committed = Number(opened.lastClientSeq);
      let sent = random.below(committed + 1); // From any number that is no gap.
      const until = Math.min(events.length, committed + 1 + random.below(80));
      while (sent < until) {
        const size = 1 + random.below(9);
        stream.batch(sent + 1, events.slice(sent, sent + size));
        sent += size;
      }
      if (random.oneIn(3)) stream.flush();
      if (random.oneIn(2)) await stream.committed(Math.min(committed + 1, events.length));
      stream.cancel();
    }
    expect(await textsOf(sessionId), `SEED=${seed}`).toEqual(events.map(({ payload }) => payload));
  });

  test("has its received events committed after the caller left", async () => {
    const sessionId = newSession();
    const { stream } = await open({ sessionId, producerEpoch: 1n, maxAgeMs: 5_000 });
    stream.batch(1, [whole(1), ...fragments(["a", "b"]), BAD]);
    await stream.refused(); // So the fragments have come.
    stream.cancel();
    const watch = client.serverStream(watchSessionEvents, { sessionId });
    expect((await watch.next()).value).toMatchObject({ seq: 1n });
    expect((await watch.next()).value).toMatchObject({ seq: 2n, eventCount: 2 });
    watch.cancel();
    const { stream: next, opened } = await open({ sessionId, producerEpoch: 1n });
    expect(opened).toMatchObject({ lastClientSeq: 4n, refused: 1n });
    next.cancel();
  });

  test("skips committed numbers that are sent again, and tells the client its position", async () => {
    const sessionId = newSession();
    const first = await open({ sessionId, producerEpoch: 4n });
    first.stream.batch(1, [whole(1), whole(2), whole(3)]);
    await first.stream.committed(3);
    first.stream.cancel();
    const { stream, opened } = await open({ sessionId, producerEpoch: 4n });
    expect(opened).toMatchObject({ lastClientSeq: 3n, producerEpoch: 4n });
    stream.batch(2, [whole("other"), whole("things")]);
    expect(await stream.next()).toMatchObject({ case: "committed", value: { lastClientSeq: 3n } });
    stream.batch(3, [whole("again"), whole(4)]);
    expect(await stream.committed(4)).toMatchObject({ lastClientSeq: 4n, lastSeq: 4n });
    stream.batch(1, [whole("once more")]);
    expect(await stream.next()).toMatchObject({ value: { lastClientSeq: 4n, lastSeq: 4n } });
    expect(await textsOf(sessionId)).toEqual([1, 2, 3, 4].map((n) => whole(n).payload));
    stream.cancel();
  });

  test("restarts its numbers at 1 in a new epoch; epoch 0 takes the next epoch", async () => {
    const sessionId = newSession();
    const first = await open({ sessionId, producerEpoch: 7n });
    first.stream.batch(1, [whole(1), BAD]);
    await first.stream.committed(2);
    first.stream.cancel();
    const again = await open({ sessionId, producerEpoch: 7n });
    expect(again.opened).toMatchObject({ producerEpoch: 7n, lastClientSeq: 2n, refused: 1n });
    again.stream.cancel();
    const { stream, opened } = await open({ sessionId });
    expect(opened).toMatchObject({ producerEpoch: 8n, lastClientSeq: 0n, refused: 0n });
    stream.cancel();
  });
});

describe("a wrong frame", () => {
  const EPOCH_MAX = 2n ** 63n - 1n;
  const good = { sessionId: "s-wrong" };

  test.each<[string, RequestFrame | undefined, string]>([
    ["is no open", { case: "flush", value: {} }, "open"],
    ["is a batch", { case: "batch", value: { firstClientSeq: 1n } }, "open"],
    ["is none", { case: undefined }, "open"],
    ["has no session", { case: "open", value: {} }, "open.session_id"],
    ["has a bad session", { case: "open", value: { sessionId: "a b" } }, "open.session_id"],
    [
      "has an epoch that no table holds",
      { case: "open", value: { ...good, producerEpoch: EPOCH_MAX + 1n } },
      "open.producer_epoch",
    ],
    ["is too patient", { case: "open", value: { ...good, maxAgeMs: 5_001 } }, "open.max_age_ms"],
    [
      "wants rows too long",
      { case: "open", value: { ...good, maxTextBytes: 65_537 } },
      "open.max_text_bytes",
    ],
    [
      "compresses in an unknown way",
      { case: "open", value: { ...good, compression: UNKNOWN } },
      "open.compression",
    ],
  ])("as the first one: %s", async (_, frame, field) => {
    const stream = new PushStreamClient(client);
    if (frame !== undefined) stream.send(frame);
    const failure = await stream.failure();
    expect(failure).toMatchObject({ code: "INVALID_ARGUMENT", reason: "INVALID_REQUEST" });
    expect(failure.violations.map((violation) => violation.field)).toEqual([field]);
    expect(stream.frames).toEqual([]);
  });

  test("a stream that ends before its open is refused", async () => {
    const stream = new PushStreamClient(client);
    stream.end();
    const failure = await stream.failure();
    expect(failure).toMatchObject({ code: "INVALID_ARGUMENT" });
    expect(failure.violations).toMatchObject([{ field: "open" }]);
  });

  test.each<[string, RequestFrame | Uint8Array, string, RegExp?]>([
    ["a second open", { case: "open", value: good }, "open"],
    ["no frame", { case: undefined }, "frame"],
    ["bytes that are no message", Buffer.from("12ff", "hex"), ""],
    ["number 0", batchOf(0n), "batch.first_client_seq"],
    ["a gap", batchOf(5n), "batch.first_client_seq", /at most 4, .* is 5/],
    ["the highest number", batchOf(EPOCH_MAX), "batch.first_client_seq"],
    ["a number above it", batchOf(2n ** 64n - 1n), "batch.first_client_seq"],
  ])(
    "as a later one: %s; earlier events are committed and acknowledged",
    async (_, frame, field, text) => {
      const sessionId = newSession();
      const { stream } = await open({ sessionId, maxAgeMs: 5_000 });
      stream.batch(1, [whole(1), ...fragments(["a", "b"])]);
      if (frame instanceof Uint8Array) stream.sendBytes(frame);
      else stream.send(frame);
      stream.batch(4, [whole("never")]);
      const failure = await stream.failure();
      expect(failure).toMatchObject({ code: "INVALID_ARGUMENT" });
      expect(failure.violations.map((violation) => violation.field)).toEqual([field]);
      expect(failure.message).toMatch(text ?? /./);
      expect(stream.frames.at(-1)).toMatchObject({
        case: "committed",
        value: { lastClientSeq: 3n },
      });
      expect(await textsOf(sessionId)).toHaveLength(3);
    },
  );

  function batchOf(firstClientSeq: bigint): RequestFrame {
    return { case: "batch", value: { firstClientSeq, events: [whole("never")] } };
  }
});

describe("a refused event", () => {
  test("takes its number, has the reason of a unary push, and ends no group", async () => {
    const sessionId = newSession();
    const { stream } = await open({ sessionId, maxAgeMs: 5_000 });
    const [first, second, third] = fragments(["a", "b", "c"]);
    stream.batch(1, [first ?? {}, second ?? {}, BAD, third ?? {}]);
    stream.flush();
    const refused = await stream.refused();
    expect(refused.clientSeq).toBe(3n);
    expect(await stream.committed(4)).toMatchObject({ lastClientSeq: 4n, lastSeq: 3n });
    const rows = await eventsOf(client, sessionId);
    expect(rows.map(({ seq, eventCount }) => [seq, eventCount])).toEqual([[1n, 3]]);

    const eventType = "TEXT_MESSAGE_CONTENT";
    const unary = await failureOf(
      push(client, "events", { sessionId, eventType, payload: BAD.payload ?? "" }),
    );
    const { code, message, reason, domain, violations } = refusalOf(refused.status);
    expect(unary).toMatchObject({ code, message, reason, domain, violations });
    expect(violations).toMatchObject([{ field: "payload.delta" }]);
    stream.cancel();
  });

  test.each<[string, RawEventFields, Partial<RpcFailure>, string]>([
    ["no payload", {}, { code: "INVALID_ARGUMENT" }, "payload"],
    ["no type", { payload: "{}" }, { code: "INVALID_ARGUMENT" }, "event_type"],
    [
      "a type that its payload does not have",
      { payload: '{"type":"CUSTOM","name":"n","value":1}', eventType: "RAW" },
      { code: "INVALID_ARGUMENT" },
      "payload.type",
    ],
    [
      "a type nobody knows",
      { payload: '{"type":"X"}' },
      { code: "INVALID_ARGUMENT" },
      "event_type",
    ],
    ["U+0000", { payload: "\0" }, { code: "INVALID_ARGUMENT" }, "payload"],
    [
      "a time outside of time",
      { payload: "{}", occurredAt: { seconds: 0n, nanos: -1 } },
      { code: "INVALID_ARGUMENT" },
      "occurred_at.nanos",
    ],
    [
      "a payload over the limit",
      whole("x".repeat(4_170_000)),
      { code: "RESOURCE_EXHAUSTED", reason: "PAYLOAD_TOO_LARGE" },
      "payload",
    ],
  ])("%s", async (_, event, failure, field) => {
    const sessionId = newSession();
    const { stream } = await open({ sessionId });
    stream.batch(1, [event, whole(2)]);
    const refused = refusalOf((await stream.refused()).status);
    expect(refused).toMatchObject(failure);
    expect(refused.violations.map((violation) => violation.field)).toEqual([field]);
    await stream.committed(2);
    expect(await textsOf(sessionId)).toEqual([whole(2).payload]);
    stream.cancel();
  });

  test("is committed even alone: the next stream knows its number", async () => {
    const sessionId = newSession();
    const { stream } = await open({ sessionId, producerEpoch: 1n });
    stream.batch(1, [BAD, BAD]);
    expect(await stream.committed(2)).toMatchObject({ lastClientSeq: 2n, lastSeq: 0n });
    expect(stream.frames.map((frame) => frame.case)).toEqual([
      "opened",
      "refused",
      "refused",
      "committed",
    ]);
    stream.cancel();
    const { stream: next, opened } = await open({ sessionId, producerEpoch: 1n });
    expect(opened).toMatchObject({ lastClientSeq: 2n, refused: 2n });
    next.cancel();
    expect(await textsOf(sessionId)).toEqual([]);
  });

  test("ends the stream if the client asked for it, after the earlier events are acknowledged", async () => {
    const sessionId = newSession();
    const { stream } = await open({ sessionId, stopOnRefused: true, maxAgeMs: 5_000 });
    stream.batch(1, [...fragments(["a", "b"]), BAD, whole("never")]);
    const failure = await stream.failure();
    expect(failure).toMatchObject({ code: "INVALID_ARGUMENT" });
    expect(failure.violations).toMatchObject([{ field: "payload.delta" }]);
    expect(stream.frames.slice(1)).toMatchObject([
      { case: "committed", value: { lastClientSeq: 2n, lastSeq: 2n } },
      { case: "refused", value: { clientSeq: 3n } },
      { case: "committed", value: { lastClientSeq: 3n, lastSeq: 2n } },
    ]);
    const { stream: next, opened } = await open({ sessionId, producerEpoch: 1n });
    expect(opened).toMatchObject({ lastClientSeq: 3n, refused: 1n });
    next.cancel();
  });
});

describe("a group closes", () => {
  test("at a flush, which is answered even with nothing to commit", async () => {
    const sessionId = newSession();
    const { stream } = await open({ sessionId, maxAgeMs: 5_000 });
    stream.flush();
    expect(await stream.next()).toMatchObject({
      case: "committed",
      value: { lastClientSeq: 0n, lastSeq: 0n },
    });
    stream.batch(1, fragments(["a", "b"]));
    stream.flush();
    const standing = { case: "committed", value: { lastClientSeq: 2n, lastSeq: 2n } };
    expect(await stream.next()).toMatchObject(standing);
    stream.flush();
    expect(await stream.next()).toMatchObject(standing);
    expect(await eventsOf(client, sessionId)).toMatchObject([{ seq: 1n, eventCount: 2 }]);
    stream.cancel();
  });

  test("at its age", async () => {
    const sessionId = newSession();
    const { stream } = await open({ sessionId, maxAgeMs: 40 });
    stream.batch(1, fragments(["a", "b"]));
    await stream.committed(2);
    stream.batch(3, fragments(["c"]));
    await stream.committed(3);
    expect(await eventsOf(client, sessionId)).toHaveLength(2);
    stream.cancel();
  });

  test("at a text limit", async () => {
    const sessionId = newSession();
    const { stream } = await open({ sessionId, maxTextBytes: 4 });
    stream.batch(1, fragments(["ab", "cd", "e", "😀", "f"]));
    await stream.committed(5);
    const counts = (await eventsOf(client, sessionId)).map(({ eventCount }) => eventCount);
    expect(counts).toEqual([2, 1, 1, 1]);
    stream.cancel();
  });

  test("at a unary push of the session, whose row comes after the group", async () => {
    const sessionId = newSession();
    const { stream } = await open({ sessionId, maxAgeMs: 5_000 });
    stream.batch(1, [whole(1)]);
    await stream.committed(1);
    stream.batch(2, [...fragments(["a", "b"]), BAD]);
    await stream.refused(); // So the fragments have come.
    const unary = await push(client, "events", { sessionId });
    expect(unary.seq).toBe(4n);
    stream.batch(5, fragments(["c"]));
    stream.end();
    await stream.rest();
    const rows = await eventsOf(client, sessionId);
    expect(rows.map(({ seq, eventCount }) => [seq, eventCount])).toEqual([
      [1n, 1],
      [2n, 2],
      [4n, 1],
      [5n, 1],
    ]);
  });

  test("at the end of the client's side, and the status OK follows the last acknowledgement", async () => {
    const sessionId = newSession();
    const { stream } = await open({ sessionId, maxAgeMs: 5_000 });
    stream.batch(1, fragments(["a", "b"]));
    stream.end();
    expect(await stream.rest()).toMatchObject([
      { case: "committed", value: { lastClientSeq: 2n, lastSeq: 2n } },
    ]);
  });

  test("at the byte limit, before its age, for a client that stops at this limit", async () => {
    const before = await metrics();
    const { stream, opened } = await open({ sessionId: newSession(), maxAgeMs: 5_000 });
    // Little text in large payloads: the limit of the text is far.
    const events = Array.from({ length: 100 }, (_, n) => {
      const fragment = { type: "TEXT_MESSAGE_CONTENT", messageId: "m1", delta: `${n}` };
      return JSON.stringify({ ...fragment, rawEvent: "x".repeat(30_000) });
    });
    const bytesMax = Number(opened.maxUnacknowledgedBytes);
    let unacknowledged: readonly string[] = [];
    for (const [index, payload] of events.entries()) {
      while (unacknowledged.join("").length + payload.length > bytesMax) {
        const { lastClientSeq } = await stream.committed(index + 1 - unacknowledged.length);
        unacknowledged = events.slice(Number(lastClientSeq), index);
      }
      stream.batch(index + 1, [{ payload }]);
      unacknowledged = [...unacknowledged, payload];
    }
    stream.end();
    await stream.rest();
    const after = await metrics();
    const closed = (by: string): number => {
      const name = `push_stream_groups_total{by="${by}"}`;
      return (after.get(name) ?? 0) - (before.get(name) ?? 0);
    };
    expect(closed("bytes")).toBeGreaterThan(3);
    expect(closed("age")).toBe(0);
  });
});

describe("two streams of a session", () => {
  test("with one epoch: the later stream continues, and the other is ABORTED at once", async () => {
    const sessionId = newSession();
    const first = await open({ sessionId, producerEpoch: 3n });
    const second = await open({ sessionId, producerEpoch: 3n });
    expect(await first.stream.failure()).toMatchObject({
      code: "ABORTED",
      reason: "STREAM_REPLACED",
    });
    second.stream.batch(1, [whole(1)]);
    await second.stream.committed(1);
    second.stream.cancel();
  });

  test("with a higher epoch: the other is FAILED_PRECONDITION, and a lower epoch does not open", async () => {
    const sessionId = newSession();
    const first = await open({ sessionId, producerEpoch: 3n });
    const second = await open({ sessionId, producerEpoch: 4n });
    const stale = { code: "FAILED_PRECONDITION", reason: "STALE_EPOCH" };
    expect(await first.stream.failure()).toMatchObject(stale);
    await expect(open({ sessionId, producerEpoch: 3n })).rejects.toMatchObject(stale);
    second.stream.batch(1, [whole(1)]);
    await second.stream.committed(1);
    second.stream.cancel();
  });

  test("with a unary push of a higher epoch: the stream is fenced", async () => {
    const sessionId = newSession();
    const { stream } = await open({ sessionId, producerEpoch: 3n });
    await push(client, "events", { sessionId, producerEpoch: 5n });
    stream.batch(1, [whole(1)]);
    expect(await stream.failure()).toMatchObject({ reason: "STALE_EPOCH" });
  });
});

describe("the end of a session", () => {
  test("a deletion ends the stream at once", async () => {
    const sessionId = newSession();
    const { stream } = await open({ sessionId });
    stream.batch(1, [whole(1)]);
    await stream.committed(1);
    await client.unary(deleteSession, { id: sessionId });
    const deleted = { code: "NOT_FOUND", reason: "SESSION_DELETED" };
    expect(await stream.failure()).toMatchObject(deleted);
    await expect(open({ sessionId })).rejects.toMatchObject(deleted);
  });
});

test("metrics count streams, events, rows and the reasons that closed groups", async () => {
  const openNow = async () => (await metrics()).get("push_streams");
  await expect.poll(openNow).toBe(0); // A stream that another test has cancelled ends later.
  const { stream } = await open({ sessionId: newSession() });
  const before = await metrics();
  expect(before.get("push_streams")).toBe(1);
  stream.batch(1, [...fragments(["a", "b", "c"]), BAD, whole(1)]);
  stream.end();
  await stream.rest();
  await expect.poll(openNow).toBe(0);
  const after = await metrics();
  const grown = (name: string): number => (after.get(name) ?? 0) - (before.get(name) ?? 0);
  expect(grown("push_stream_events_total")).toBe(5);
  expect(grown("push_stream_events_refused_total")).toBe(1);
  expect(grown("push_stream_rows_total")).toBe(2);
  expect(grown('push_stream_groups_total{by="event"}')).toBe(1);
  expect(after.get("push_stream_unacknowledged_bytes")).toBe(0);
});

async function metrics(): Promise<ReadonlyMap<string, number>> {
  const answer = await fetch(`http://${service.opsAddress}/metrics`);
  const lines = (await answer.text()).matchAll(/^session_ledger_(\S+) (\S+)$/gm);
  return new Map(Array.from(lines, ([, name = "", value]) => [name, Number(value)]));
}

function refusalOf(given: Status | undefined): RpcFailure {
  if (given === undefined) throw new Error("a refusal has a status");
  const bytes = toBinary(StatusSchema, given);
  const metadata = new Metadata();
  metadata.set("grpc-status-details-bin", Buffer.from(bytes));
  const { code, message: details } = given;
  return new RpcFailure(Object.assign(new Error(details), { code, details, metadata }));
}
