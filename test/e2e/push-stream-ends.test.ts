/** Push streams where the service ends them, or would not have them: limits, policies, its own stop. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect } from "node:http2";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { create, toBinary } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { PushSessionEventsRequestSchema } from "@session-ledger/proto/ambient/v1/event_stream_pb";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { RpcClient } from "../support/grpc-client.ts";
import {
  eventsOf,
  fragments,
  PushStreamClient,
  type RequestFrame,
  whole,
} from "../support/push-stream.ts";
import { newSession } from "../support/pushing.ts";
import { frame } from "../support/http2-frames.ts";
import { Random } from "../support/random.ts";
import { StreamSource } from "../support/stream-clients.ts";
import { useService } from "../support/use-service.ts";

const { createSession, watchSessionEvents } = SessionService.method;

/** A caller gets half of them. */
const STREAMS_MAX = 6;
const BYTES_MAX = 65_536;

const { service, client } = useService({
  env: {
    SESSION_POLICY: "strict",
    PUSH_STREAMS_MAX: String(STREAMS_MAX),
    PAYLOAD_BYTES_MAX: String(16 * BYTES_MAX),
    QUEUE_BYTES_MAX: String(64 * BYTES_MAX),
  },
});

async function created(): Promise<string> {
  const session = await client.unary(createSession, { name: newSession() });
  return session.metadata?.id ?? "";
}

function bytesOf(sent: RequestFrame): Buffer {
  const request = create(PushSessionEventsRequestSchema, { frame: sent });
  return frame(toBinary(PushSessionEventsRequestSchema, request));
}

describe("a service with limits", () => {
  test("does not open a stream of an unknown session in strict mode", async () => {
    await expect(PushStreamClient.open(client, { sessionId: newSession() })).rejects.toMatchObject({
      code: "NOT_FOUND",
      reason: "SESSION_NOT_FOUND",
    });
    const { stream } = await PushStreamClient.open(client, { sessionId: await created() });
    stream.batch(1, [whole(1)]);
    await stream.committed(1);
    stream.cancel();
  });

  test("announces its limit of bytes, and accepts a larger frame", async () => {
    const sessionId = await created();
    const { stream, opened } = await PushStreamClient.open(client, { sessionId, maxAgeMs: 5_000 });
    expect(opened.maxUnacknowledgedBytes).toBe(BigInt(BYTES_MAX));
    const events = fragments(Array.from({ length: 60 }, () => "x".repeat(5_000)));
    stream.batch(1, events);
    await stream.committed(55); // By bytes, and before the age.
    stream.end();
    await stream.rest();
    expect(await eventsOf(client, sessionId, { expand: true })).toHaveLength(60);
  });

  test("refuses a stream above half of its limit, and opens the next when one has ended", async () => {
    const sessions = [await created(), await created(), await created()];
    const open: PushStreamClient[] = [];
    for (const sessionId of sessions) open.push(await openedOnce(sessionId));
    const stream = new PushStreamClient(client);
    expect(await stream.failure()).toMatchObject({
      code: "RESOURCE_EXHAUSTED",
      reason: "TOO_MANY_STREAMS",
      retryAfterMs: 1_000,
    });
    open[0]?.end();
    await open[0]?.rest();
    const next = await openedOnce(await created());
    for (const one of [...open, next]) one.cancel();
  });

  test("opens a stream of another caller beside one that has its half", async () => {
    const sessions = [await created(), await created(), await created()];
    const open: PushStreamClient[] = [];
    for (const sessionId of sessions) open.push(await openedOnce(sessionId));
    const other = new RpcClient(service.grpcAddress); // Without tokens a connection is a caller.
    const { stream } = await PushStreamClient.open(other, { sessionId: await created() });
    for (const one of [...open, stream]) {
      one.batch(1, [whole(1)]);
      await one.committed(1);
    }
    const answers = await Promise.all(sessions.map((id) => eventsOf(client, id)));
    expect(answers.map(({ length }) => length)).toEqual([1, 1, 1]);
    for (const one of [...open, stream]) one.cancel();
    other.close();
  });

  /** A stream that was just cancelled may still count. */
  async function openedOnce(sessionId: string): Promise<PushStreamClient> {
    for (;;) {
      try {
        return (await PushStreamClient.open(client, { sessionId })).stream;
      } catch {
        await client.unary(createSession, { name: "meanwhile" });
      }
    }
  }

  test("stores the events of a client that never reads, and keeps one acknowledgement for it", async () => {
    const sessionId = await created();
    const connection = connect(`http://${service.grpcAddress}`);
    const stream = connection.request({
      ":method": "POST",
      ":path": "/ambient.v1.SessionService/PushSessionEvents",
      "content-type": "application/grpc",
      te: "trailers",
    });
    stream.pause(); // It never reads: 64 KiB fill its window, and no more are granted.
    stream.write(bytesOf({ case: "open", value: { sessionId } }));
    const count = 4_000;
    const events = fragments(Array.from({ length: count }, (_, n) => `${n}`.padEnd(250, ".")));
    for (const [index, event] of events.entries()) {
      const value = { firstClientSeq: BigInt(index + 1), events: [event] };
      stream.write(bytesOf({ case: "batch", value }));
    }
    const watch = client.serverStream(watchSessionEvents, { sessionId, expand: true });
    let seen = 0;
    for await (const { payload } of watch) {
      expect(payload).toBe(events[seen]?.payload);
      seen += 1;
      if (seen === count) break;
    }
    stream.close();
    connection.destroy();
  });
});

test("commits received events at a stop, and ends the stream with UNAVAILABLE", async () => {
  const sessionId = await created();
  const open = { sessionId, producerEpoch: 1n, maxAgeMs: 5_000 };
  const { stream } = await PushStreamClient.open(client, open);
  stream.batch(1, [...fragments(["a", "b"]), { payload: "{}" }]);
  await stream.refused(); // So the fragments have come; nothing of them is committed.
  const [failure, exitCode] = await Promise.all([stream.failure(), service.stop()]);
  expect(failure).toMatchObject({ code: "UNAVAILABLE", reason: "SHUTTING_DOWN" });
  expect(exitCode).toBe(0);

  await service.restart();
  const { stream: next, opened } = await PushStreamClient.open(client, open);
  expect(opened).toMatchObject({ lastClientSeq: 3n, refused: 1n });
  expect(await eventsOf(client, sessionId)).toMatchObject([{ seq: 1n, eventCount: 2 }]);
  next.cancel();
});

test("stores the events that a runner sent before it was killed inside a sentence", async () => {
  const [sessionId, count] = [await created(), 50];
  const script = fileURLToPath(new URL("../support/stream-runner.ts", import.meta.url));
  const args = [script, service.grpcAddress, sessionId, String(count)];
  const runner = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  await once(createInterface({ input: runner.stdout }), "line");
  const payloads = async () =>
    (await eventsOf(client, sessionId, { expand: true })).map(({ payload }) => payload);
  // Its START at most: what is merged waits for more.
  expect((await payloads()).length).toBeLessThan(count);
  runner.kill("SIGKILL");
  const sent = new StreamSource(new Random(1)).sentence(count).slice(0, count);
  await expect.poll(payloads).toEqual(sent.map(({ payload }) => payload));
});
