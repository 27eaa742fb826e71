/**
 * Reading a session with the runner's client from a real service: what the items say, where reading
 * ends, and what it makes of a connection that is lost.
 */
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expand } from "@session-ledger/compressor/index";
import {
  createLedgerClient,
  createSessionWriter,
  fromJsonLines,
  ledger,
  type LedgerClient,
  readSession,
  RpcFailure,
  toJsonLines,
} from "@session-ledger/runner";
import { eventually } from "../support/eventually.ts";
import { fragments, pushMerged } from "../support/merging.ts";
import { ownStreams } from "../support/streams.ts";
import { hostAndPort, startTcpProxy } from "../support/broken-network.ts";
import { useService } from "../support/use-service.ts";

const { service } = useService();
let client: LedgerClient;
let address: string;

beforeAll(() => {
  address = service.grpcAddress;
  client = createLedgerClient({ address });
});

afterAll(() => client.close());

async function all<T>(items: AsyncIterable<T>): Promise<readonly T[]> {
  const list: T[] = [];
  for await (const item of items) list.push(item);
  return list;
}

async function seqs(items: AsyncIterable<{ readonly seq: bigint }>): Promise<readonly bigint[]> {
  return (await all(items)).map(({ seq }) => seq);
}

async function pushCustom(sessionId: string, count: number): Promise<void> {
  for (let at = 0; at < count; at += 1) {
    const payload = `{"type":"CUSTOM","name":"n","value":${at}}`;
    await client.call(ledger.pushSessionEvent, { sessionId, eventType: "CUSTOM", payload });
  }
}

function failureOf(reading: Promise<unknown>): Promise<unknown> {
  return reading.then(
    () => undefined,
    (error: unknown) => error,
  );
}

describe("items", () => {
  test("of events are rows, or raw events with expand", async () => {
    const sessionId = "rows";
    const events = fragments(5);
    await pushMerged(client, sessionId, events.slice(0, 4));
    await client.call(ledger.pushSessionEvent, {
      sessionId,
      eventType: "RUN_STARTED",
      payload: '{"type":"RUN_STARTED","threadId":"t","runId":"r"}',
      createdAt: { seconds: 1_700_000_000n, nanos: 123_456_000 },
    });
    const [merged, started] = await all(readSession({ address, sessionId }));
    expect(merged).toMatchObject({
      kind: "event",
      sessionId,
      seq: 1n,
      lastSeq: 4n,
      eventType: "TEXT_MESSAGE_CONTENT",
      eventCount: 4,
      runId: undefined,
      fragments: { lengths: [3, 3, 3, 3], timestampDeltasMs: [1n, 1n, 1n] },
      event: { messageId: "m", delta: " 0 1 2 3" },
    });
    expect(started).toMatchObject({
      seq: 5n,
      lastSeq: 5n,
      eventCount: 1,
      runId: "r",
      fragments: undefined,
      completedAtMicros: undefined,
      completedAt: undefined,
      createdAtMicros: 1_700_000_000_123_456n,
      createdAt: new Date(1_700_000_000_123),
    });
    const expanded = await all(readSession({ address, sessionId, expand: true }));
    expect(expanded.slice(0, 4).map(({ payload }) => payload)).toEqual(
      events.slice(0, 4).map(({ payload }) => payload),
    );
    expect(expanded.map(({ seq, eventCount }) => [seq, eventCount])).toEqual(
      [1n, 2n, 3n, 4n, 5n].map((seq) => [seq, 1]),
    );
    expect(merged && [...expand(merged)].map(({ payload }) => payload)).toEqual(
      events.slice(0, 4).map(({ payload }) => payload),
    );
  });

  test("are equal to the lines of the command line", async () => {
    await pushCustom("printed", 1);
    const [item] = await all(readSession({ address, sessionId: "printed" }));
    expect(JSON.parse(JSON.stringify(item))).toMatchObject({
      sessionId: "printed",
      seq: "1",
      eventType: "CUSTOM",
      eventCount: 1,
    });
  });

  test("of messages have their sender", async () => {
    await client.call(ledger.pushSessionMessage, {
      sessionId: "said",
      eventType: "user",
      payload: "hi",
      sender: { id: "u1", displayName: "Ana", isBot: false },
      sentAt: { seconds: 1_700_000_000n, nanos: 5_000 },
    });
    await client.call(ledger.pushSessionMessage, { sessionId: "said", eventType: "assistant" });
    const [first, second] = await all(
      readSession({ address, sessionId: "said", stream: "messages" }),
    );
    expect(first).toMatchObject({
      kind: "message",
      eventType: "user",
      payload: "hi",
      sender: { id: "u1", displayName: "Ana" },
      sentAtMicros: 1_700_000_000_000_005n,
      sentAt: new Date(1_700_000_000_000),
    });
    expect(Object.keys(first?.sender ?? {})).toEqual(["id", "displayName"]);
    expect(second).toMatchObject({ seq: 2n, payload: "", sender: undefined, sentAt: undefined });
  });
});

describe("reading", () => {
  test("continues after `after`, also inside a row", async () => {
    const sessionId = "cursors";
    await pushMerged(client, sessionId, fragments(6), { eventsMax: 3 });
    expect(await seqs(readSession({ address, sessionId, after: 3n }))).toEqual([4n]);
    expect(await seqs(readSession({ address, sessionId, after: 2n }))).toEqual([1n, 4n]);
    expect(await seqs(readSession({ address, sessionId, after: 6n }))).toEqual([]);
    // The number that a row itself shows is that of a row that was seen.
    expect(await seqs(readSession({ address, sessionId, after: 1n }))).toEqual([4n]);
    expect(await seqs(readSession({ address, sessionId, after: 4n }))).toEqual([]);
    const first = readSession({ address, sessionId, after: 4n, expand: true });
    expect(await seqs(first)).toEqual([5n, 6n]);
    const raw = readSession({ address, sessionId, after: 2n, expand: true });
    expect(await seqs(raw)).toEqual([3n, 4n, 5n, 6n]);
  });

  test("ends at the head that it saw at its start, however fast the session grows", async () => {
    const sessionId = "growing";
    const rows = 1_001; // One more than a page holds, so that a page is asked for that has more by then.
    await pushCustom(sessionId, rows);
    const read: bigint[] = [];
    for await (const { seq } of readSession({ address, sessionId })) {
      if (read.length === 0) await pushCustom(sessionId, 3);
      read.push(seq);
    }
    expect(read.at(-1)).toBe(BigInt(rows));
    expect(read).toHaveLength(rows);
  });

  test("waits with `follow` for new rows, also of a session that does not exist yet", async () => {
    const sessionId = "later";
    const reading = readSession({ address, sessionId, follow: true, expand: true });
    const first = reading.next();
    await pushMerged(client, sessionId, fragments(3));
    expect((await first).value).toMatchObject({ seq: 1n, event: { delta: " 0" } });
    expect((await reading.next()).value).toMatchObject({ seq: 2n });
    expect((await reading.next()).value).toMatchObject({ seq: 3n });
    const next = reading.next();
    await pushCustom(sessionId, 1);
    expect((await next).value).toMatchObject({ seq: 4n, eventType: "CUSTOM" });
    await reading.return();
  });

  test("follows messages too", async () => {
    const reading = readSession({ address, sessionId: "chat", stream: "messages", follow: true });
    const first = reading.next();
    await client.call(ledger.pushSessionMessage, {
      sessionId: "chat",
      eventType: "user",
      payload: "hi",
    });
    expect((await first).value).toMatchObject({ kind: "message", payload: "hi" });
    await reading.return();
  });

  test("closes its connection when the loop ends", async () => {
    await pushCustom("left", 3);
    const sockets = new Set<Socket>();
    const counted = createServer((socket) => {
      sockets.add(socket);
      socket.once("close", () => sockets.delete(socket)).on("error", () => undefined);
      const upstream = connect(hostAndPort(address)).on("error", () => undefined);
      socket.pipe(upstream).pipe(socket);
    });
    counted.listen(0, "127.0.0.1");
    await once(counted, "listening");
    const bound = counted.address();
    const through = `127.0.0.1:${typeof bound === "object" ? bound?.port : ""}`;
    for (const follow of [true, false]) {
      for await (const { seq } of readSession({ address: through, sessionId: "left", follow })) {
        expect(sockets.size).toBe(1);
        if (seq === 2n) break;
      }
      await eventually(() => expect(sockets.size).toBe(0));
    }
    counted.close();
  });
});

test("survives a connection that is lost again and again, without loss or duplicates", async () => {
  const sessionId = "torn";
  const proxy = await startTcpProxy(hostAndPort(address));
  const total = 60n;
  const retries: string[] = [];
  const read: bigint[] = [];
  const writing = (async () => {
    for (let at = 0; at < 20; at += 1) await pushMerged(client, sessionId, fragments(3));
  })();
  for await (const { seq } of readSession({
    address: `127.0.0.1:${proxy.port}`,
    sessionId,
    follow: true,
    expand: true,
    onRetry: ({ code }) => retries.push(code),
  })) {
    read.push(seq);
    if (seq % 7n === 0n) proxy.cut();
    if (seq === total) break;
  }
  await writing;
  expect(read).toEqual(Array.from({ length: Number(total) }, (_, at) => BigInt(at + 1)));
  expect(retries.length).toBeGreaterThan(0);
  expect(new Set(retries)).toEqual(new Set(["UNAVAILABLE"]));
  await proxy.stop();
});

test("a call with a key and time to repeat stores once although its answer was lost", async () => {
  const proxy = await startTcpProxy(hostAndPort(address));
  const torn = createLedgerClient({ address: `127.0.0.1:${proxy.port}` });
  const retries: string[] = [];
  proxy.holdAnswers();
  const event = { eventType: "CUSTOM", payload: '{"type":"CUSTOM","name":"n","value":1}' };
  const request = { sessionId: "repeated", ...event, idempotencyKey: "k" };
  const row = await torn.call(ledger.pushSessionEvent, request, {
    deadlineMs: 2_000,
    retryForMs: 60_000,
    onRetry({ code }) {
      retries.push(code);
      proxy.cut();
    },
  });
  expect(retries.length).toBeGreaterThan(0);
  expect(row.seq).toBe(1n);
  expect(await seqs(readSession({ address, sessionId: "repeated" }))).toEqual([1n]);
  torn.close();
  await proxy.stop();
});

describe("a final failure is a typed error:", () => {
  test.each([false, true])("a cursor above the head (follow: %s)", async (follow) => {
    await pushCustom("short", 1);
    const reading = all(readSession({ address, sessionId: "short", after: 9n, follow }));
    expect(await failureOf(reading)).toMatchObject({
      name: "RpcFailure",
      code: "OUT_OF_RANGE",
      reason: "CURSOR_BEYOND_HEAD",
    });
  });

  test("an unknown session", async () => {
    const failure = await failureOf(all(readSession({ address, sessionId: "nowhere" })));
    expect(failure).toBeInstanceOf(RpcFailure);
    expect(failure).toMatchObject({ code: "NOT_FOUND", reason: "SESSION_NOT_FOUND" });
  });

  test("an invalid session id", async () => {
    const failure = await failureOf(all(readSession({ address, sessionId: "a b" })));
    expect(failure).toMatchObject({ code: "INVALID_ARGUMENT" });
  });

  test("a session that is deleted during the follow", async () => {
    await pushCustom("gone", 1);
    const reading = readSession({ address, sessionId: "gone", follow: true });
    await reading.next();
    const next = failureOf(reading.next());
    await client.call(ledger.deleteSession, { id: "gone" });
    expect(await next).toMatchObject({ code: "NOT_FOUND", reason: "SESSION_DELETED" });
  });

  test.each([false, true])("no service at the address (follow: %s)", async (follow) => {
    const server = createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    const bound = server.address();
    server.close();
    const nobody = `127.0.0.1:${typeof bound === "object" ? bound?.port : ""}`;
    const options = { address: nobody, sessionId: "any", follow, retryForMs: 0 };
    expect(await failureOf(all(readSession(options)))).toMatchObject({ code: "UNAVAILABLE" });
  });

  test("an abort before the start, in a wait, between two items, between two attempts", async () => {
    await pushCustom("aborted", 2);
    const reason = new Error("enough");
    const cancelled = { name: "RpcFailure", code: "CANCELLED", cause: reason };
    const options = { address, sessionId: "aborted", follow: true };

    const early = AbortSignal.abort(reason);
    expect(await failureOf(all(readSession({ ...options, signal: early })))).toMatchObject(
      cancelled,
    );

    const waiting = new AbortController();
    const reading = readSession({ ...options, after: 2n, signal: waiting.signal });
    const next = failureOf(reading.next());
    waiting.abort(reason);
    expect(await next).toMatchObject(cancelled);

    const between = new AbortController();
    const held = readSession({ ...options, follow: false, signal: between.signal });
    await held.next();
    between.abort(reason);
    expect(await failureOf(held.next())).toMatchObject(cancelled);

    const pausing = new AbortController();
    const retrying = readSession({
      ...options,
      address: "127.0.0.1:1",
      signal: pausing.signal,
      onRetry: () => pausing.abort(reason),
    });
    expect(await failureOf(retrying.next())).toMatchObject(cancelled);
  });
});

test.each(ownStreams())(
  "$scenario: a session is equal after it was read, printed and written again",
  async (stream) => {
    const { scenario, events } = stream;
    const [one, two] = [`one-${scenario}`, `two-${scenario}`];
    const writer = createSessionWriter({ address, sessionId: one });
    for (const { payload } of events) writer.event(payload);
    expect(await writer.close()).toMatchObject({ complete: true });

    const lines = await all(toJsonLines(readSession({ address, sessionId: one, expand: true })));
    const copy = createSessionWriter({ address, sessionId: two });
    async function* bytes(): AsyncGenerator<Uint8Array> {
      const whole = Buffer.from(lines.join(""));
      for (let at = 0; at < whole.length; at += 7) yield whole.subarray(at, at + 7);
    }
    for await (const { text } of fromJsonLines(bytes())) copy.event(text);
    expect(await copy.close()).toMatchObject({ complete: true });

    expect(lines).toHaveLength(events.length);
    const again = toJsonLines(readSession({ address, sessionId: two, expand: true }));
    expect(await all(again)).toEqual(lines);
    const said = async (sessionId: string): Promise<readonly string[]> => {
      const messages = await all(readSession({ address, sessionId, stream: "messages" }));
      return messages.map(({ eventType, payload }) => `${eventType} ${payload}`);
    };
    expect(await said(two)).toEqual(await said(one));
    expect((await said(one)).length).toBeGreaterThan(2);
  },
);
