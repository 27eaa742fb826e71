/** Streams of the gRPC server alone: their pace, their ends, and that nothing outlives them. */
import { create, toBinary } from "@bufbuild/protobuf";
import { connect } from "node:http2";
import { describe, expect, test } from "vitest";
import {
  type SessionEvent,
  SessionEventSchema,
  WatchSessionEventsRequestSchema,
} from "@session-ledger/proto/ambient/v1/events_pb";
import { PushSessionEventsResponseSchema } from "@session-ledger/proto/ambient/v1/event_stream_pb";
import { SessionSchema, SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { ServiceError } from "@session-ledger/base/errors";
import { UNSENT_BYTES_MAX } from "../../src/rpc/server-stream.ts";
import { frame } from "../support/http2-frames.ts";
import { conversation, startRpc } from "../support/rpc-fixture.ts";

const { getSession, pushSessionEvents, watchSessionEvents } = SessionService.method;

function eventOf(seq: bigint, payload = "{}"): SessionEvent {
  return create(SessionEventSchema, { id: "e", sessionId: "s1", seq, payload, eventCount: 1 });
}

async function seqsOf(events: AsyncIterable<SessionEvent>): Promise<bigint[]> {
  const seqs: bigint[] = [];
  for await (const event of events) seqs.push(event.seq);
  return seqs;
}

describe("a server stream", () => {
  test("sends its headers before the first message", async () => {
    const closed = Promise.withResolvers<void>();
    await using rpc = await startRpc({
      async *watchSessionEvents(_, { signal }) {
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        closed.resolve();
        yield eventOf(1n);
      },
    });
    const watch = rpc.client.serverStream(watchSessionEvents, { sessionId: "s1" });
    expect(await watch.attached).toBeUndefined();
    watch.cancel();
    await closed.promise;
  });

  test("delivers all messages in order, and then OK", async () => {
    await using rpc = await startRpc({
      async *watchSessionEvents({ afterSeq }) {
        for (let seq = afterSeq + 1n; seq <= 3_000n; seq += 1n) yield eventOf(seq);
      },
    });
    const seqs = await seqsOf(rpc.client.serverStream(watchSessionEvents, { afterSeq: 5n }));
    expect(seqs).toEqual(Array.from({ length: 2_995 }, (_, index) => BigInt(index) + 6n));
    expect(await rpc.recorded("call")).toMatchObject({ code: "OK", method: "WatchSessionEvents" });
  });

  test("delivers the messages before an error, and then the error", async () => {
    await using rpc = await startRpc({
      async *watchSessionEvents() {
        yield eventOf(1n);
        yield eventOf(2n);
        throw new ServiceError("not_found", "SESSION_DELETED", "the session was deleted");
      },
    });
    const watch = rpc.client.serverStream(watchSessionEvents, {});
    expect((await watch.next()).value).toMatchObject({ seq: 1n });
    expect((await watch.next()).value).toMatchObject({ seq: 2n });
    await expect(watch.next()).rejects.toMatchObject({
      code: "NOT_FOUND",
      reason: "SESSION_DELETED",
    });
  });

  test("runs the finally of the handler when the watcher leaves", async () => {
    const cleaned = Promise.withResolvers<unknown>();
    await using rpc = await startRpc({
      async *watchSessionEvents(_, { signal }) {
        try {
          yield eventOf(1n);
          const { promise, reject } = Promise.withResolvers<never>();
          signal.addEventListener("abort", () => reject(signal.reason));
          await promise;
        } finally {
          cleaned.resolve(signal.reason);
        }
      },
    });
    const watch = rpc.client.serverStream(watchSessionEvents, { sessionId: "s1" });
    await watch.next();
    await watch.return?.();
    expect(await cleaned.promise).toMatchObject({ code: "cancelled" });
    expect(await rpc.recorded("call")).toMatchObject({ code: "CANCELLED", sessionId: "s1" });
  });

  test("pauses its handler for a slow reader, and runs its finally when the reader leaves", async () => {
    const payload = "x".repeat(1_024);
    let yielded = 0;
    const cleaned = Promise.withResolvers<void>();
    await using rpc = await startRpc({
      getSession: async () => create(SessionSchema),
      async *watchSessionEvents() {
        try {
          for (let seq = 1n; seq <= 100_000n; seq += 1n) {
            yielded += 1;
            yield eventOf(seq, payload);
          }
        } finally {
          cleaned.resolve();
        }
      },
    });
    const session = connect(`http://${rpc.server.address}`);
    const stream = session.request({
      ":method": "POST",
      ":path": "/ambient.v1.SessionService/WatchSessionEvents",
      "content-type": "application/grpc",
      te: "trailers",
    });
    stream.pause(); // It never reads: 64 KiB fill its window, and no more are granted.
    const request = create(WatchSessionEventsRequestSchema, { sessionId: "s1" });
    stream.end(frame(toBinary(WatchSessionEventsRequestSchema, request)));

    // 200 calls of another client go by, time enough to send everything.
    for (let call = 0; call < 200; call += 1) await rpc.client.unary(getSession, {});
    const windowBytes = 65_535;
    const most = (windowBytes + UNSENT_BYTES_MAX) / payload.length + 1;
    expect(yielded).toBeGreaterThan(UNSENT_BYTES_MAX / (payload.length + 100));
    expect(yielded).toBeLessThanOrEqual(most);

    stream.close();
    await cleaned.promise;
    session.destroy();
  });

  test("delivers everything to a slow reader that continues", async () => {
    await using rpc = await startRpc({
      async *watchSessionEvents() {
        for (let seq = 1n; seq <= 500n; seq += 1n) yield eventOf(seq, "x".repeat(2_000));
      },
    });
    const watch = rpc.client.serverStream(watchSessionEvents, {});
    const seqs: bigint[] = [];
    for await (const event of watch) {
      seqs.push(event.seq);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(seqs).toHaveLength(500);
    expect(seqs.at(-1)).toBe(500n);
  });

  test("sends a message larger than the buffer limit", async () => {
    const payload = "x".repeat(UNSENT_BYTES_MAX * 5);
    await using rpc = await startRpc({
      async *watchSessionEvents() {
        yield eventOf(1n, payload);
        yield eventOf(2n, payload);
      },
    });
    const watch = rpc.client.serverStream(watchSessionEvents, {});
    expect((await watch.next()).value).toMatchObject({ payload });
    expect((await watch.next()).value).toMatchObject({ seq: 2n });
    expect((await watch.next()).done).toBe(true);
  });

  test("with a defect is INTERNAL", async () => {
    await using rpc = await startRpc({
      async *watchSessionEvents() {
        yield eventOf(1n);
        throw new RangeError("secret");
      },
    });
    const watch = rpc.client.serverStream(watchSessionEvents, {});
    await watch.next();
    await expect(watch.next()).rejects.toMatchObject({
      code: "INTERNAL",
      message: "internal error",
    });
    expect(await rpc.recorded("call")).toMatchObject({ err: { message: "secret" } });
  });
});

describe("a bidirectional stream", () => {
  const committed = (lastClientSeq: bigint) =>
    create(PushSessionEventsResponseSchema, {
      frame: { case: "committed", value: { lastClientSeq } },
    });

  test("answers as the requests arrive, and ends after them", async () => {
    await using rpc = await startRpc({
      pushSessionEvents: (caller) =>
        conversation({
          onMessage: ({ frame: request }) => {
            if (request.case === "batch") caller.send(committed(request.value.firstClientSeq));
            return true;
          },
          onHalfClose: () => caller.end(),
        }),
    });
    const call = rpc.client.bidiStream(pushSessionEvents);
    await call.attached;
    for (const firstClientSeq of [1n, 2n, 3n]) {
      call.send({ frame: { case: "batch", value: { firstClientSeq } } });
      const { value } = await call.next();
      expect(value.frame).toMatchObject({ value: { lastClientSeq: firstClientSeq } });
    }
    call.end();
    expect((await call.next()).done).toBe(true);
    expect(await rpc.recorded("call")).toMatchObject({ code: "OK", sessionId: "s1", events: 7 });
  });

  test("with a broken request calls onDecodeError with INVALID_ARGUMENT, and reads no further", async () => {
    const seen: unknown[] = [];
    await using rpc = await startRpc({
      pushSessionEvents: (caller) =>
        conversation({
          onMessage: (request) => {
            seen.push(request.frame.case);
            return true;
          },
          onDecodeError: (error) => {
            caller.send(committed(1n)); // There may be something to say before the end.
            caller.end(error);
          },
        }),
    });
    const call = rpc.client.bidiStream(pushSessionEvents);
    call.send({ frame: { case: "flush", value: {} } });
    call.sendBytes(Buffer.from("0aff", "hex"));
    call.send({ frame: { case: "flush", value: {} } });
    expect((await call.next()).value.frame).toMatchObject({ value: { lastClientSeq: 1n } });
    await expect(call.next()).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    expect(seen).toEqual(["flush"]);
  });

  test("keeps requests at the caller until the handler listens again", async () => {
    let heard = 0;
    const second = Promise.withResolvers<() => void>();
    await using rpc = await startRpc({
      getSession: async () => create(SessionSchema),
      pushSessionEvents: (caller) =>
        conversation({
          onMessage: (request) => {
            heard += 1;
            if (heard === 2) second.resolve(() => caller.resume());
            if (request.frame.case === "flush") caller.send(committed(BigInt(heard)));
            return heard !== 2;
          },
          onHalfClose: () => caller.end(),
        }),
    });
    const call = rpc.client.bidiStream(pushSessionEvents);
    const payload = "x".repeat(10_000);
    for (let batch = 0; batch < 100; batch += 1) {
      call.send({ frame: { case: "batch", value: { events: [{ payload }] } } });
    }
    call.send({ frame: { case: "flush", value: {} } });
    const listenOn = await second.promise;
    for (let other = 0; other < 50; other += 1) await rpc.client.unary(getSession, {});
    expect(heard).toBe(2);
    listenOn();
    expect((await call.next()).value.frame).toMatchObject({ value: { lastClientSeq: 101n } });
    call.end();
    expect((await call.next()).done).toBe(true);
  });

  test("with many small waiting requests does not exhaust the stack", async () => {
    let heard = 0;
    const first = Promise.withResolvers<() => void>();
    await using rpc = await startRpc({
      getSession: async () => create(SessionSchema),
      pushSessionEvents: (caller) =>
        conversation({
          onMessage: () => {
            heard += 1;
            if (heard === 1) first.resolve(() => caller.resume());
            return heard !== 1;
          },
          onHalfClose: () => caller.end(),
        }),
    });
    const call = rpc.client.bidiStream(pushSessionEvents);
    // 9,000 frames of 7 bytes fill the window of a stream.
    for (let frames = 0; frames < 20_000; frames += 1) call.sendBytes(Buffer.from("1200", "hex"));
    call.end();
    const listenOn = await first.promise;
    for (let other = 0; other < 50; other += 1) await rpc.client.unary(getSession, {});
    listenOn();
    expect((await call.next()).done).toBe(true);
    expect(heard).toBe(20_000);
  });

  test.each([
    ["OK", undefined, undefined],
    ["an error", new ServiceError("aborted", "STREAM_REPLACED", "x"), { code: "ABORTED" }],
  ])("a handler may end before its caller, with %s", async (_, error, failure) => {
    let told = 0;
    await using rpc = await startRpc({
      pushSessionEvents: (caller) =>
        conversation({
          onMessage: () => {
            caller.send(committed(7n));
            caller.end(error);
            return true;
          },
          onClose: () => void (told += 1),
        }),
    });
    const call = rpc.client.bidiStream(pushSessionEvents);
    call.send({ frame: { case: "flush", value: {} } });
    expect((await call.next()).value.frame).toMatchObject({ value: { lastClientSeq: 7n } });
    const end = await call.next().catch((reason: unknown) => reason);
    expect(end).toMatchObject(failure ?? { done: true });
    expect(told).toBe(0); // A handler that ended by itself gets no call of `onClose`.
  });

  test("calls onClose once, and not onHalfClose, when the caller leaves", async () => {
    const over: unknown[] = [];
    const told = Promise.withResolvers<void>();
    await using rpc = await startRpc({
      pushSessionEvents: (caller) =>
        conversation({
          onMessage: () => {
            caller.send(committed(1n));
            return true;
          },
          onHalfClose: () => over.push("all"),
          onClose: (error) => {
            over.push(error.code);
            told.resolve();
          },
        }),
    });
    const call = rpc.client.bidiStream(pushSessionEvents);
    call.send({ frame: { case: "flush", value: {} } });
    await call.next();
    call.cancel();
    await told.promise;
    expect(await rpc.recorded("call")).toMatchObject({ code: "CANCELLED" });
    expect(over).toEqual(["cancelled"]);
    expect(rpc.records.filter((record) => record.level === "error")).toEqual([]);
  });

  test("is INTERNAL when its handler throws, and the handler learns that the call is over", async () => {
    const told = Promise.withResolvers<string>();
    await using rpc = await startRpc({
      pushSessionEvents: () =>
        conversation({
          onMessage: () => {
            throw new RangeError("secret");
          },
          onClose: ({ code }) => told.resolve(code),
        }),
    });
    const call = rpc.client.bidiStream(pushSessionEvents);
    call.send({ frame: { case: "flush", value: {} } });
    await expect(call.next()).rejects.toMatchObject({
      code: "INTERNAL",
      message: "internal error",
    });
    expect(await told.promise).toBe("internal");
    expect(await rpc.recorded("call")).toMatchObject({ err: { message: "secret" } });
  });

  test("tells its handler when a slow reader has unread messages, and when they are read", async () => {
    const taken = Promise.withResolvers<void>();
    let unsentAtOnce = 0;
    await using rpc = await startRpc({
      pushSessionEvents: (caller) =>
        conversation({
          onMessage: () => {
            caller.send(committed(1n));
            unsentAtOnce = caller.unsentBytes;
            return true;
          },
          onDrain: () => {
            if (caller.unsentBytes === 0) taken.resolve();
          },
        }),
    });
    const call = rpc.client.bidiStream(pushSessionEvents);
    call.send({ frame: { case: "flush", value: {} } });
    await taken.promise;
    expect(unsentAtOnce).toBeGreaterThan(0);
    call.cancel();
  });
});
