/**
 * Limits of requests in memory and time: bytes are counted from the first one to the answer, calls
 * without room are refused or wait, and requests that never end are cut.
 */
import { once } from "node:events";
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from "node:http2";
import { setInterval } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { create, toBinary } from "@bufbuild/protobuf";
import { afterEach, describe, expect, test } from "vitest";
import {
  PushSessionEventsRequestSchema,
  type PushSessionEventsRequest,
} from "@session-ledger/proto/ambient/v1/event_stream_pb";
import {
  PushSessionEventRequestSchema,
  SessionEventSchema,
} from "@session-ledger/proto/ambient/v1/events_pb";
import { SessionSchema, SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import type { BidiCaller } from "../../src/contract/context.ts";
import type { SessionHandlers } from "../../src/rpc/answers.ts";
import {
  callHeaders,
  FLAG,
  FRAME,
  frame,
  http2Frame,
  RawConnection,
} from "../support/http2-frames.ts";
import { conversation, type RpcFixture, startRpc } from "../support/rpc-fixture.ts";

const MIB = 1_048_576;
const SERVICE = "/ambient.v1.SessionService";
const { pushSessionEvent, getSession } = SessionService.method;
const LIMITS = { connectionsMax: 100, callsPerConnectionMax: 1_000, receivedBytesMax: 8 * MIB };
/** Of a second: what is late after a minute is so after the sixtieth of these. */
const TICK = { tickMs: 5 };
const SLOW_TICK = { tickMs: 500 };

const sessions: ClientHttp2Session[] = [];
afterEach(() => {
  for (const session of sessions.splice(0)) session.destroy();
});

function sessionTo(rpc: RpcFixture): ClientHttp2Session {
  const session = connect(`http://${rpc.server.address}`);
  session.on("error", () => undefined);
  sessions.push(session);
  return session;
}

/** A call without a body: the test writes it. */
function begin(
  session: ClientHttp2Session,
  method: string,
  headers: Readonly<Record<string, string>> = {},
): ClientHttp2Stream {
  const stream = session.request(
    {
      ":method": "POST",
      ":path": method.startsWith("/") ? method : `${SERVICE}/${method}`,
      "content-type": "application/grpc",
      te: "trailers",
      ...headers,
    },
    { endStream: false },
  );
  stream.on("error", () => undefined);
  return stream;
}

interface End {
  readonly status: string | undefined;
  readonly rstCode: number;
}

async function endOf(stream: ClientHttp2Stream): Promise<End> {
  let status: string | undefined;
  stream.on("response", (headers) => {
    status = headers["grpc-status"]?.toString();
  });
  stream.on("trailers", (headers) => {
    status = headers["grpc-status"]?.toString();
  });
  await new Promise((resolve) => stream.resume().once("close", resolve));
  return { status, rstCode: stream.rstCode ?? -1 };
}

function pushBytes(payload: string): Uint8Array {
  const request = { sessionId: "s1", eventType: "RAW", payload };
  return toBinary(PushSessionEventRequestSchema, create(PushSessionEventRequestSchema, request));
}

function batchBytes(payload: string): Uint8Array {
  const value = { firstClientSeq: 1n, events: [{ eventType: "RAW", payload }] };
  const request = { frame: { case: "batch", value } } as const;
  return toBinary(PushSessionEventsRequestSchema, create(PushSessionEventsRequestSchema, request));
}

const echo: SessionHandlers = {
  pushSessionEvent: async ({ payload }) =>
    create(SessionEventSchema, { seq: BigInt(payload.length) }),
  getSession: async () => create(SessionSchema, { name: "there" }),
};

async function gauge(rpc: RpcFixture, name: string): Promise<number> {
  const found = new RegExp(`^session_ledger_${name} (\\S+)`, "m").exec(await rpc.metrics.text());
  return Number(found?.[1]);
}

async function heldBytes(rpc: RpcFixture, isRight: (bytes: number) => boolean): Promise<void> {
  const look = async (): Promise<boolean> => isRight(await gauge(rpc, "received_bytes"));
  await expect.poll(look).toBe(true);
}

describe("unary requests", () => {
  test("reserve their stated size, and a caller with half of the memory gets no more", async () => {
    await using rpc = await startRpc(echo, { limits: LIMITS, ...SLOW_TICK });
    const session = sessionTo(rpc);
    const whole = frame(pushBytes("x".repeat(3 * MIB)));
    const half = whole.subarray(0, 100_000);
    const held = begin(session, "PushSessionEvent");
    held.write(half);
    await heldBytes(rpc, (bytes) => bytes >= 3 * MIB);

    // One more of the same connection does not fit; what it has brought does not stay.
    const more = begin(session, "PushSessionEvent");
    more.write(half);
    expect(await endOf(more)).toEqual({ status: "8", rstCode: constants.NGHTTP2_NO_ERROR });
    await heldBytes(rpc, (bytes) => bytes < 3.1 * MIB);
    expect(await gauge(rpc, 'refused_total{reason="SERVER_BUSY"}')).toBe(1);

    // Another caller is answered, and so is the first call.
    const large = await rpc.client.unary(pushSessionEvent, { payload: "y".repeat(2 * MIB) });
    expect(large).toMatchObject({ seq: BigInt(2 * MIB) });
    held.end(whole.subarray(100_000));
    expect(await endOf(held)).toMatchObject({ status: "0" });
    await heldBytes(rpc, (bytes) => bytes === 0);
  });

  test("are counted until they are answered, even after their caller left", async () => {
    const may = Promise.withResolvers<void>();
    const all = Promise.withResolvers<void>();
    let entered = 0;
    await using rpc = await startRpc(
      {
        pushSessionEvent: async () => {
          entered += 1;
          if (entered === 2) all.resolve();
          await may.promise;
          return create(SessionEventSchema);
        },
      },
      { limits: LIMITS, ...TICK },
    );
    const session = sessionTo(rpc);
    const left = [1, 2].map(() => begin(session, "PushSessionEvent"));
    for (const stream of left) stream.end(frame(pushBytes("x".repeat(1.9 * MIB))));
    await all.promise;
    for (const stream of left) stream.close(constants.NGHTTP2_CANCEL);
    await rpc.recorded("call"); // That they left is known.
    const another = rpc.client.unary(pushSessionEvent, { payload: "y".repeat(100) });
    await heldBytes(rpc, (bytes) => bytes > 3.8 * MIB);
    may.resolve();
    await expect(another).resolves.toBeDefined();
    await heldBytes(rpc, (bytes) => bytes === 0);
  });

  /** A request in pieces of `pieceBytes`. */
  async function inPieces(rpc: RpcFixture, pieceBytes: number): Promise<RawConnection> {
    const raw = (await RawConnection.to(rpc.server.address)).begin();
    const headers = callHeaders(`${SERVICE}/PushSessionEvent`);
    raw.write(http2Frame({ type: FRAME.headers, flags: FLAG.endHeaders, stream: 1 }, headers));
    const whole = frame(pushBytes("x".repeat(3 * MIB)));
    const pieces: Buffer[] = [];
    for (let at = 0; at < 60_000; at += pieceBytes) {
      const piece = whole.subarray(at, at + pieceBytes);
      pieces.push(http2Frame({ type: FRAME.data, stream: 1 }, piece));
    }
    raw.write(...pieces);
    return raw;
  }

  test("in small pieces are counted with the memory of each piece", async () => {
    await using rpc = await startRpc(echo, { limits: LIMITS, ...TICK });
    using _ = await inPieces(rpc, 80);
    await heldBytes(rpc, (bytes) => bytes > 3 * MIB + 700 * 256);
    expect(await rpc.metrics.text()).not.toContain('why="flood"');
  });

  test("in pieces of a few bytes end the connection", async () => {
    await using rpc = await startRpc(echo, { limits: LIMITS, ...TICK });
    using raw = await inPieces(rpc, 10);
    await raw.closed;
    expect(raw.frames.filter(({ type }) => type === FRAME.goAway)).toHaveLength(1);
    expect(await rpc.metrics.text()).toContain(
      'connections_closed_total{server="grpc",why="flood"} 1',
    );
    await rpc.client.unary(getSession, {}); // Another one is as it was.
  });

  test.each([
    ["one in one frame", [[0, 38]], "OK"],
    [
      "one in two frames",
      [
        [0, 20],
        [20, 38],
      ],
      "OK",
    ],
    [
      "one whose head is in two frames",
      [
        [0, 3],
        [3, 38],
      ],
      "OK",
    ],
    ["two in one frame", [[0, 76]], "UNIMPLEMENTED"],
    [
      "two in a frame each",
      [
        [0, 38],
        [38, 76],
      ],
      "UNIMPLEMENTED",
    ],
    [
      "two in three frames",
      [
        [0, 20],
        [20, 38],
        [38, 76],
      ],
      "UNIMPLEMENTED",
    ],
  ] as const)("are read from any frames: %s", async (_, parts, code) => {
    await using rpc = await startRpc(echo);
    using raw = (await RawConnection.to(rpc.server.address)).begin();
    const headers = callHeaders(`${SERVICE}/PushSessionEvent`);
    const one = frame(pushBytes("x".repeat(22)));
    expect(one.length).toBe(38);
    const bytes = Buffer.concat([one, one]);
    raw.write(
      http2Frame({ type: FRAME.headers, flags: FLAG.endHeaders, stream: 1 }, headers),
      ...parts.map(([start, end]) =>
        http2Frame({ type: FRAME.data, stream: 1 }, bytes.subarray(start, end)),
      ),
      http2Frame({ type: FRAME.data, flags: FLAG.endStream, stream: 1 }, Buffer.alloc(0)),
    );
    expect(await rpc.recorded("call")).toMatchObject({ code });
  });

  test("that are compressed are counted by unpacked size, and unpacked two at a time", async () => {
    await using rpc = await startRpc(echo, { limits: LIMITS, ...TICK });
    const session = sessionTo(rpc);
    const packed = frame(gzipSync(pushBytes("x".repeat(3 * MIB))), true);
    expect(packed.length).toBeLessThan(8_192);
    const calls = Array.from({ length: 50 }, () => {
      const stream = begin(session, "PushSessionEvent", { "grpc-encoding": "gzip" });
      stream.end(packed);
      return endOf(stream);
    });
    const ends = await Promise.all(calls);
    expect(ends.every(({ status }) => status === "0" || status === "8")).toBe(true);
    expect(ends.some(({ status }) => status === "0")).toBe(true);
    await heldBytes(rpc, (bytes) => bytes === 0);
  });

  test("may be compressed or plain within the encoding of one call", async () => {
    await using rpc = await startRpc(echo);
    for (const isPacked of [true, false]) {
      const bytes = pushBytes("é");
      const stream = begin(sessionTo(rpc), "PushSessionEvent", { "grpc-encoding": "gzip" });
      stream.end(isPacked ? frame(gzipSync(bytes), true) : frame(bytes));
      expect(await endOf(stream)).toMatchObject({ status: "0" });
    }
  });

  test("without an end are DEADLINE_EXCEEDED after a time limit", async () => {
    await using rpc = await startRpc(echo, TICK);
    const session = sessionTo(rpc);
    const nothing = begin(session, "PushSessionEvent");
    const half = begin(session, "PushSessionEvent");
    half.write(frame(pushBytes("hello")).subarray(0, 7));
    const whole = begin(session, "PushSessionEvent");
    whole.write(frame(pushBytes("hello"))); // And no end of the stream.
    const ends = await Promise.all([nothing, half, whole].map(endOf));
    expect(ends).toEqual(
      Array.from({ length: 3 }, () => ({ status: "4", rstCode: constants.NGHTTP2_NO_ERROR })),
    );
    expect(await rpc.recorded("call")).toMatchObject({ reason: "DEADLINE_EXCEEDED" });
  });
});

describe("requests of a stream", () => {
  test("share the limit of all callers, and every stream is read", async () => {
    let mostBytes = 0;
    let heard = 0;
    const open = new Set<BidiCaller<unknown>>();
    await using rpc = await startRpc(
      {
        pushSessionEvents: (caller) => {
          open.add(caller);
          return conversation({
            onMessage: (request: PushSessionEventsRequest) => {
              const value = request.frame.case === "batch" ? request.frame.value : undefined;
              expect(value?.events[0]?.payload).toHaveLength(3 * MIB);
              heard += 1;
              caller.end();
              return false;
            },
          });
        },
      },
      { limits: LIMITS, ...TICK },
    );
    const done = new AbortController();
    const look = async (): Promise<void> => {
      for await (const _ of setInterval(1, undefined, { signal: done.signal })) {
        mostBytes = Math.max(mostBytes, await gauge(rpc, "received_bytes"));
      }
    };
    const looking = look().catch(() => undefined);
    const whole = frame(batchBytes("x".repeat(3 * MIB)));
    const streams = Array.from({ length: 20 }, () => begin(sessionTo(rpc), "PushSessionEvents"));
    for (const stream of streams) stream.write(whole);
    const ends = await Promise.all(streams.map(endOf));
    done.abort();
    await looking;
    expect(ends.map(({ status }) => status)).toEqual(streams.map(() => "0"));
    expect(heard).toBe(20);
    // The limit, one frame more, and for each of them a window with what it holds for free.
    expect(mostBytes).toBeLessThan(8 * MIB + 4 * MIB + 20 * 4 * 65_536);
    expect(mostBytes).toBeGreaterThan(4 * MIB);
    await heldBytes(rpc, (bytes) => bytes === 0);
  });

  test("are counted while the handler keeps them", async () => {
    let kept = 0;
    const heard = Promise.withResolvers<void>();
    await using rpc = await startRpc(
      {
        pushSessionEvents: () => ({
          ...conversation({
            onMessage: () => {
              kept = 5 * MIB;
              heard.resolve();
              return true;
            },
          }),
          get bufferedBytes() {
            return kept;
          },
        }),
      },
      { limits: LIMITS, ...TICK },
    );
    const stream = begin(sessionTo(rpc), "PushSessionEvents");
    stream.write(frame(batchBytes("x")));
    await heard.promise;
    await heldBytes(rpc, (bytes) => bytes > 5 * MIB && bytes < 5.1 * MIB);
    kept = 0;
    await heldBytes(rpc, (bytes) => bytes < 0.1 * MIB);
    stream.write(frame(batchBytes("x")));
    await heldBytes(rpc, (bytes) => bytes > 5 * MIB && bytes < 5.1 * MIB);
    stream.close();
    await heldBytes(rpc, (bytes) => bytes === 0);
    expect(kept).toBe(5 * MIB); // The server reads `bufferedBytes` by itself.
  });

  test("are held back, one message and one window, while the handler does not read", async () => {
    const heard = Promise.withResolvers<void>();
    await using rpc = await startRpc(
      {
        pushSessionEvents: () =>
          conversation({
            onMessage: () => {
              heard.resolve();
              return false;
            },
          }),
      },
      TICK,
    );
    const stream = begin(sessionTo(rpc), "PushSessionEvents");
    const whole = frame(batchBytes("x".repeat(MIB)));
    for (let count = 0; count < 6; count += 1) stream.write(whole);
    await heard.promise;
    await heldBytes(rpc, (bytes) => bytes > MIB);
    await rpc.client.unary(getSession, {}).catch(() => undefined);
    expect(await gauge(rpc, "received_bytes")).toBeLessThan(MIB + 4 * 65_536);
  });

  test("that are compressed are unpacked one after the other", async () => {
    const lengths: number[] = [];
    await using rpc = await startRpc(
      {
        pushSessionEvents: (caller) =>
          conversation({
            onMessage: (request: PushSessionEventsRequest) => {
              const value = request.frame.case === "batch" ? request.frame.value : undefined;
              lengths.push(value?.events[0]?.payload.length ?? -1);
              return true;
            },
            onHalfClose: () => caller.end(),
          }),
      },
      { limits: LIMITS, ...TICK },
    );
    const stream = begin(sessionTo(rpc), "PushSessionEvents", { "grpc-encoding": "gzip" });
    const sizes = [3 * MIB, 1, 2 * MIB, 5];
    const frames = sizes.map((size, at) => {
      const bytes = batchBytes("x".repeat(size));
      return at === 3 ? frame(bytes) : frame(gzipSync(bytes), true);
    });
    stream.end(Buffer.concat(frames));
    expect(await endOf(stream)).toMatchObject({ status: "0" });
    expect(lengths).toEqual(sizes);
    await heldBytes(rpc, (bytes) => bytes === 0);
  });

  test("end the stream when half a request waits too long for its rest", async () => {
    const over = Promise.withResolvers<unknown>();
    await using rpc = await startRpc(
      { pushSessionEvents: () => conversation({ onClose: over.resolve }) },
      TICK,
    );
    const [idle, stuck] = [1, 2].map(() => begin(sessionTo(rpc), "PushSessionEvents"));
    stuck?.write(frame(batchBytes("x".repeat(100))).subarray(0, 20));
    expect(stuck === undefined ? undefined : await endOf(stuck)).toMatchObject({ status: "4" });
    expect(await over.promise).toMatchObject({ reason: "DEADLINE_EXCEEDED" });
    expect(idle?.closed).toBe(false); // It owes nothing.
  });
});

describe("unread answers", () => {
  /** A caller that takes nothing: its window is closed. */
  function deaf(rpc: RpcFixture): ClientHttp2Session {
    const session = connect(`http://${rpc.server.address}`, { settings: { initialWindowSize: 0 } });
    session.on("error", () => undefined);
    sessions.push(session);
    return session;
  }

  test("to unary calls are counted, and above half of the memory they are refused", async () => {
    const name = "n".repeat(MIB);
    await using rpc = await startRpc(
      { ...echo, getSession: async () => create(SessionSchema, { name }) },
      { limits: LIMITS, ...SLOW_TICK },
    );
    const session = deaf(rpc);
    let refused = 0;
    const calls = Array.from({ length: 30 }, () => {
      const stream = begin(session, "GetSession");
      stream.on("response", (headers) => (refused += headers["grpc-status"] === "8" ? 1 : 0));
      stream.end(frame(Buffer.alloc(0)));
      return stream;
    });
    await expect.poll(() => refused).toBe(27);
    await heldBytes(rpc, (bytes) => bytes > 3 * MIB && bytes < 4 * MIB);
    await rpc.client.unary(pushSessionEvent, { payload: "y".repeat(MIB) });
    for (const stream of calls) stream.close();
    await heldBytes(rpc, (bytes) => bytes === 0);
  });

  test("of streams are counted, and a stream without room for them ends", async () => {
    const payload = "p".repeat(MIB);
    await using rpc = await startRpc(
      {
        ...echo,
        async *watchSessionEvents() {
          for (;;) yield create(SessionEventSchema, { payload });
        },
      },
      { limits: LIMITS, ...SLOW_TICK },
    );
    const watches = [1, 2, 3, 4].map(() => {
      const stream = begin(deaf(rpc), "WatchSessionEvents");
      stream.end(frame(Buffer.alloc(0)));
      return stream;
    });
    const ended = () => watches.filter(({ closed }) => closed).length;
    await expect.poll(ended).toBeGreaterThanOrEqual(2);
    await rpc.client.unary(pushSessionEvent, { payload: "y".repeat(MIB) });
    for (const stream of watches) stream.close();
    await heldBytes(rpc, (bytes) => bytes === 0);
  });

  test("end their call when the caller takes nothing for the time limit", async () => {
    const payload = "p".repeat(MIB);
    await using rpc = await startRpc(
      {
        getSession: async () => create(SessionSchema, { name: payload }),
        async *watchSessionEvents() {
          for (;;) yield create(SessionEventSchema, { payload });
        },
      },
      TICK,
    );
    for (const method of ["GetSession", "WatchSessionEvents"]) {
      const stream = begin(deaf(rpc), method);
      stream.end(frame(Buffer.alloc(0)));
      await expect.poll(() => stream.closed).toBe(true);
    }
    await heldBytes(rpc, (bytes) => bytes === 0);
  });
});

describe("calls outside of the service", () => {
  const HEALTH = "/grpc.health.v1.Health/Check";

  test("may send few bytes, and have a time limit", async () => {
    await using rpc = await startRpc({}, TICK);
    const large = begin(sessionTo(rpc), HEALTH);
    large.write(frame(Buffer.alloc(MIB)));
    expect(await endOf(large)).toMatchObject({ rstCode: constants.NGHTTP2_ENHANCE_YOUR_CALM });
    const slow = begin(sessionTo(rpc), HEALTH);
    slow.write(Buffer.from([0]));
    expect(await endOf(slow)).toMatchObject({ rstCode: constants.NGHTTP2_CANCEL });
    const packed = begin(sessionTo(rpc), HEALTH, { "grpc-encoding": "gzip" });
    packed.end(frame(gzipSync(Buffer.alloc(4 * MIB)), true));
    expect((await endOf(packed)).status).not.toBe("0");
    await heldBytes(rpc, (bytes) => bytes === 0);
  });

  test("a reflection stream ends although its client does not end it", async () => {
    await using rpc = await startRpc({}, TICK);
    const path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    const stream = begin(sessionTo(rpc), path);
    stream.write(frame(Buffer.alloc(60_000)).subarray(0, 30_000)); // For ever half there.
    expect(await endOf(stream)).toMatchObject({ rstCode: constants.NGHTTP2_CANCEL });
    await heldBytes(rpc, (bytes) => bytes === 0);
  });

  test("are few per connection, and their requests are not kept", async () => {
    await using rpc = await startRpc({}, TICK);
    const session = sessionTo(rpc);
    const watches = Array.from({ length: 17 }, () =>
      begin(session, "/grpc.health.v1.Health/Watch"),
    );
    for (const watch of watches) watch.end(frame(Buffer.alloc(0)));
    const [seventeenth] = watches.slice(16);
    expect(seventeenth && (await endOf(seventeenth))).toMatchObject({ status: "8" });
    expect(watches.slice(0, 16).filter(({ closed }) => closed)).toEqual([]);
    await heldBytes(rpc, (bytes) => bytes === 0);
    watches[0]?.close();
    const next = begin(sessionTo(rpc), "/grpc.health.v1.Health/Check");
    next.end(frame(Buffer.alloc(0)));
    expect(await endOf(next)).toMatchObject({ status: "0" });
  });

  test("to unknown methods do not wait for their bodies", async () => {
    await using rpc = await startRpc({}, TICK);
    const stream = begin(sessionTo(rpc), `${SERVICE}/Nothing`);
    stream.write(Buffer.alloc(100));
    expect(await endOf(stream)).toMatchObject({ status: "12" });
  });
});

test("connections above the limit are closed", async () => {
  await using rpc = await startRpc(echo, { limits: { ...LIMITS, connectionsMax: 1 } });
  await rpc.client.unary(getSession, {});
  using other = await RawConnection.to(rpc.server.address);
  await other.closed;
  expect(await rpc.metrics.text()).toContain(
    'connections_closed_total{server="grpc",why="limit"} 1',
  );
  await rpc.client.unary(getSession, {});
});

test("calls above the limit of a connection wait at their caller", async () => {
  await using rpc = await startRpc(echo, { limits: { ...LIMITS, callsPerConnectionMax: 2 } });
  const session = sessionTo(rpc);
  const [settings] = await once(session, "remoteSettings");
  expect(settings).toMatchObject({ maxConcurrentStreams: 2, maxHeaderListSize: 16_384 });
});

test("headers above 16 KiB reset the call before the client has confirmed our SETTINGS, and many of them close the connection", async () => {
  await using rpc = await startRpc(echo);
  // It confirms no SETTINGS, and until then Node has no limit of its own.
  using raw = (await RawConnection.to(rpc.server.address)).begin();
  const call = (stream: number, largeBytes: number): void => {
    const large = "y".repeat(largeBytes / 2);
    const headers = callHeaders(`${SERVICE}/GetSession`, [
      ["x-large", large],
      ["x-larger", large],
    ]);
    const frames = headersIn(stream, headers);
    raw.write(...frames, http2Frame({ type: FRAME.data, flags: FLAG.endStream, stream }, EMPTY));
  };
  const firstOf = (stream: number) => raw.frame((came) => came.stream === stream);
  call(1, 80_000);
  const refused = await firstOf(1);
  expect(refused).toMatchObject({ type: FRAME.reset });
  expect(refused?.payload.readUInt32BE()).toBe(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  call(3, 15_000);
  expect(await firstOf(3)).toMatchObject({ type: FRAME.headers });
  for (let stream = 5; stream < 5 + 2 * 100; stream += 2) call(stream, 20_000);
  await raw.closed;
  expect(await rpc.metrics.text()).toContain('closed_total{server="grpc",why="flood"} 1');
});

const EMPTY = frame(Buffer.alloc(0));
/** HTTP/2's default for the largest frame. */
const FRAME_BYTES_MAX = 16_384;

function headersIn(stream: number, block: Buffer): Buffer[] {
  const frames: Buffer[] = [];
  for (let at = 0; at < block.length; at += FRAME_BYTES_MAX) {
    const type = at === 0 ? FRAME.headers : FRAME.continuation;
    const flags = at + FRAME_BYTES_MAX >= block.length ? FLAG.endHeaders : 0;
    frames.push(http2Frame({ type, flags, stream }, block.subarray(at, at + FRAME_BYTES_MAX)));
  }
  return frames;
}
