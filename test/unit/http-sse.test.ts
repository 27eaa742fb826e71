/**
 * Server-sent events: existing parsers read back what is written, and a stream is opened, kept
 * alive, paused and ended as its head comment says. Streams run over a real HTTP server and client,
 * joined by a pair of streams in place of a port.
 */
import { text } from "node:stream/consumers";
import { setImmediate as turn } from "node:timers/promises";
import * as agui1 from "@ag-ui/client";
import * as agui0 from "agui-client-0";
import { EventSource } from "eventsource";
import * as fc from "fast-check";
import { afterEach, describe, expect, test, vi } from "vitest";
import { ServiceError } from "@session-ledger/base/errors";
import { frameParts, openingText, type SseFrame, UnsentFrames } from "../../src/http/sse.ts";
import { Budget, CALL_BYTES } from "../../src/base/budget.ts";
import { answerTo, Received, Source, streaming } from "../support/http-clients.ts";
import { properties } from "../support/random.ts";

const NAMES = ["message", "watch_state", "with space", ":colon", "ünï"];

/** Texts with many characters that could break the framing. */
const anyText = fc
  .array(
    fc.oneof(
      fc.constantFrom(
        "\n",
        "\r",
        "\r\n",
        "\n\n",
        "data:",
        ": ",
        " ",
        "id: 9\n",
        "\u2028",
        "\0",
        "﻿",
      ),
      fc.string({ unit: "grapheme" }),
    ),
    { maxLength: 8 },
  )
  .map((parts) => parts.join("").toWellFormed());
const oneLine = anyText.map((line) => line.replaceAll(/[\r\n\0]/g, ""));
const anyFrame: fc.Arbitrary<SseFrame> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({ data: anyText, id: oneLine, event: fc.constantFrom(...NAMES) }),
  },
  { weight: 2, arbitrary: fc.record({ data: anyText }) },
  fc.record({ data: oneLine.map((line) => Buffer.from(line)), id: oneLine }),
  fc.record({ comment: anyText }),
  fc.record({ id: oneLine }),
);

interface Read {
  readonly name: string;
  readonly data: string;
  readonly id: string;
}

/** The events that an EventSource reads from the stream, with its bytes cut in pieces. */
async function readBack(stream: string, pieceBytes: number): Promise<readonly Read[]> {
  const bytes = Buffer.from(stream);
  const pieces = function* () {
    for (let at = 0; at < bytes.length; at += pieceBytes) yield bytes.subarray(at, at + pieceBytes);
  };
  const headers = { "content-type": "text/event-stream" };
  const source = new EventSource("http://ledger.test/", {
    fetch: () => Promise.resolve(new Response(ReadableStream.from(pieces()), { headers })),
  });
  const read: Read[] = [];
  for (const name of NAMES) {
    source.addEventListener(name, ({ data, lastEventId: id }) => {
      read.push({ name, data: String(data), id });
    });
  }
  const ended = Promise.withResolvers<void>();
  source.addEventListener("error", () => ended.resolve());
  await ended.promise;
  source.close();
  return read;
}

/**
 * The events among the frames, with the breaks and ids that a reader of this format has to give
 * them.
 */
function readable(frames: readonly SseFrame[]): readonly Read[] {
  let id = "";
  return frames.flatMap((frame) => {
    if ("comment" in frame) return [];
    id = frame.id ?? id;
    if (frame.data === undefined) return [];
    return [
      { name: frame.event ?? "message", data: String(frame.data).replaceAll(/\r\n|\r/g, "\n"), id },
    ];
  });
}

function written(frames: readonly SseFrame[]): string {
  return openingText(1_000) + frames.map((frame) => textOf(frame)).join("");
}

function textOf(frame: SseFrame): string {
  return frameParts(frame)
    .map((part) => String(typeof part === "string" ? part : Buffer.from(part)))
    .join("");
}

/** The JSON values that AG-UI's clients take from a stream. */
function readBy0(stream: string): Promise<readonly unknown[]> {
  return all(agui0.parseSSEStream(agui0.runHttpRequest(() => responseOf(stream))));
}

function readBy1(stream: string): Promise<readonly unknown[]> {
  return all(agui1.parseSSEStream(agui1.runHttpRequest(() => responseOf(stream))));
}

function responseOf(stream: string): Promise<Response> {
  return Promise.resolve(new Response(stream));
}

function all(values: ReturnType<typeof agui1.parseSSEStream>): Promise<readonly unknown[]> {
  const read: unknown[] = [];
  return new Promise((resolve, reject) => {
    values.subscribe({
      next: (value) => read.push(value),
      error: reject,
      complete: () => resolve(read),
    });
  });
}

describe("frames", () => {
  test("are read back by a parser as written, with any content and cut anywhere", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(anyFrame, { maxLength: 6 }),
        fc.integer({ min: 1, max: 64 }),
        async (frames, pieceBytes) => {
          expect(await readBack(written(frames), pieceBytes)).toEqual(readable(frames));
        },
      ),
      properties({ runs: 300 }),
    );
  });

  test("are separated by an empty line, and contain no CR", () => {
    fc.assert(
      fc.property(fc.array(anyFrame), (frames) => {
        const stream = written(frames);
        expect(stream).not.toContain("\r");
        expect(stream.split("\n\n")).toHaveLength(frames.length + 2);
      }),
      properties({ runs: 300 }),
    );
  });

  test.each([
    ["0.0.59", readBy0],
    ["1.0.0", readBy1],
  ])("are read by AG-UI's client %s with line breaks between JSON tokens", async (_, readBy) => {
    const event = { type: "CUSTOM", name: "n\n\n\r", value: { a: [1, "data: x\n\nid: 7"] } };
    const json = JSON.stringify(event, undefined, 2);
    const frames = ["\n", "\r\n", "\r\r", "\n\n"].flatMap((lineBreak): SseFrame[] => [
      { id: "1", data: json.replaceAll("\n", lineBreak) },
      { comment: "ping" },
      { id: "2" },
    ]);
    expect(await readBy(written(frames))).toEqual([event, event, event, event]);
  });

  test("with an id or a name of two lines are a defect", () => {
    for (const wrong of ["1\n", "1\r2", "\0"]) {
      expect(() => frameParts({ id: wrong, data: "" })).toThrow(TypeError);
      expect(() => frameParts({ id: wrong })).toThrow(TypeError);
      expect(() => frameParts({ event: wrong, data: "" })).toThrow(TypeError);
    }
  });
});

const ROW: SseFrame = { id: "7", data: '{"a":1}' };
const ROW_TEXT = 'id: 7\ndata: {"a":1}\n\n';
const OPENING = /^retry: \d+\n\n/;

function openingLength(stream: string): number {
  return OPENING.exec(stream)?.[0].length ?? 0;
}

/** Sends the frames, and then waits like a watch until its signal aborts. */
function thenWaiting(signal: () => AbortSignal, ...frames: readonly SseFrame[]): Source {
  return new Source(async (at) => {
    const frame = frames[at];
    if (frame !== undefined) return frame;
    await new Promise((resolve) => signal().addEventListener("abort", resolve, { once: true }));
    const { reason } = signal();
    if (reason instanceof ServiceError && reason.code !== "cancelled") throw reason;
    return undefined;
  });
}

async function waitingStream(options: Parameters<typeof streaming>[1] = {}, frame: SseFrame = ROW) {
  const source = thenWaiting(() => served.controller.signal, frame);
  const served = await streaming(source, options);
  return { ...served, source };
}

describe("a stream", () => {
  afterEach(() => void vi.useRealTimers());

  test("that has lost rows returns to the beginning within 600 ms", async () => {
    const { get, controller } = await waitingStream();
    const received = new Received(await answerTo(get()));
    controller.abort(new ServiceError("out_of_range", "CURSOR_BEYOND_HEAD", "rows were lost"));
    await expect.poll(() => received.text).toContain("event: error");
    const [, retryMs] = /event: error\nid: 0\nretry: (\d+)\n/.exec(received.text) ?? [];
    expect(Number(retryMs)).toBeGreaterThanOrEqual(100);
    expect(Number(retryMs)).toBeLessThanOrEqual(600);
  });

  test("sends its headers and first frame at once, and is counted while it is open", async () => {
    const { get, source, openStreams, controller } = await waitingStream();
    const answer = await answerTo(get());
    const received = new Received(answer);
    expect(answer.statusCode).toBe(200);
    expect(answer.headers).toMatchObject({
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache",
      "x-accel-buffering": "no",
      "transfer-encoding": "chunked",
      "x-of-a-hook": "kept",
    });
    await expect.poll(() => received.text.replace(OPENING, "")).toBe(ROW_TEXT);
    expect(received.text).toMatch(OPENING);
    expect(await openStreams()).toBe(1);
    controller.abort();
    await expect.poll(() => received.hasEnded).toBe(true);
    await expect.poll(() => source.left).toBe(true);
    expect(await openStreams()).toBe(0);
  });

  // Regression: three hundred clients of one large snapshot that did not read held two copies each.
  test("writes the given bytes without a copy", async () => {
    const data = Buffer.alloc(1_000_000, "a");
    const { connect, source } = await waitingStream({}, { id: "7", data });
    const client = connect();
    client.write("GET /stream/1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await expect.poll(() => source.pulled).toBe(1);
    await turn();
    data.fill("b"); // Shows that the bytes under way are not a copy.
    const received = new Received(client);
    await expect.poll(() => received.text.length).toBeGreaterThan(data.length);
    expect(received.text).toContain(`id: 7\ndata: `);
    expect(received.text.replaceAll(/[^ab]/g, "")).toContain("b".repeat(data.length));
  });

  test("that hangs with a frame that has no room is cut, and those that hang already are not", async () => {
    const unsent = new UnsentFrames();
    const memory = new Budget({ max: 2_200_000 });
    const stalled = async (data: string | Uint8Array) => {
      const stream = await waitingStream({ unsent, memory }, { data });
      const client = stream.connect();
      client.write("GET /stream/1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
      await expect.poll(() => stream.source.pulled).toBe(1);
      for (let waits = 0; waits < 5; waits += 1) await turn();
      return stream;
    };
    const shared = Buffer.alloc(1_000_000, "a");
    const old = [await stalled(shared), await stalled(shared)];
    expect(memory.used).toBeGreaterThan(1_000_000);
    expect(memory.used).toBeLessThanOrEqual(1_000_000 + 2 * CALL_BYTES);
    const newer = await stalled(Buffer.alloc(1_000_000, "b"));
    await expect.poll(() => newer.source.left).toBe(true);
    expect(old.map(({ source }) => source.left)).toEqual([false, false]);
    for (const { controller } of old) controller.abort();
  });

  test("lets other work run while its caller keeps up", async () => {
    let others = 0;
    const count = (): void => void setImmediate(() => ((others += 1), others < 3 && count()));
    const frames = 2_000_000;
    const source = new Source((at) => (at < frames && others < 3 ? ROW : undefined));
    const { get } = await streaming(source);
    const answer = await answerTo(get());
    count();
    await text(answer);
    expect(source.pulled).toBeLessThan(frames);
  });

  test("stops its source while the caller does not read, and continues afterwards", async () => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    const frames = 2_000;
    const data = "x".repeat(1_000);
    const source = new Source((at) => (at < frames ? { data } : undefined));
    const { get } = await streaming(source, { heartbeatMs: 1_000 });
    const answer = await answerTo(get());
    for (let still = 0, pulled = 0; still < 20; still = source.pulled === pulled ? still + 1 : 0) {
      ({ pulled } = source);
      await turn();
    }
    // Two buffers of each of the two ends, of 64 KiB at most, and not the two million.
    expect(source.pulled * data.length).toBeLessThan(6 * 64 * 1024);
    vi.advanceTimersByTime(60_000);
    const body = await text(answer);
    expect(body.match(/^data: /gm)).toHaveLength(frames);
    expect(body).not.toContain("ping"); // A heartbeat would have had no room.
    expect(source.left).toBe(true);
  });

  test("hides the cause of a defect from the caller, and logs it", async () => {
    const source = new Source((at) => (at === 0 ? ROW : Promise.reject(new Error("secret"))));
    const { get, log } = await streaming(source);
    const body = await text(await answerTo(get()));
    expect(body).toContain('"reason":"INTERNAL"');
    expect(body).not.toContain("secret");
    expect(log.join()).toContain("secret");
  });

  test("reports an error in the form of its route", async () => {
    const source = new Source((at) => (at === 0 ? ROW : Promise.reject(new Error("x"))));
    const failure = ({ reason }: ServiceError): SseFrame => ({ comment: `ended ${reason}` });
    const { get } = await streaming(source, { failure });
    const body = await text(await answerTo(get()));
    expect(body.endsWith(`${ROW_TEXT}: ended INTERNAL\n\n`)).toBe(true);
  });

  test("sends a heartbeat after a silence, measured from its last frame", async () => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    const more = [0, 1].map(() => Promise.withResolvers<SseFrame>());
    const source = new Source((at) =>
      at === 0 ? ROW : (more[at - 1]?.promise ?? new Promise(() => {})),
    );
    const { get } = await streaming(source, { heartbeatMs: 1_000 });
    const received = new Received(await answerTo(get()));
    // Waiting by a timer would advance the fake time.
    const shows = async (body: string): Promise<void> => {
      while (received.text.length < openingLength(received.text) + body.length) await turn();
      expect(received.text.replace(OPENING, "")).toBe(body);
    };
    await shows(ROW_TEXT);
    for (const [at, row] of more.entries()) {
      vi.advanceTimersByTime(999);
      row.resolve(ROW);
      await shows(ROW_TEXT.repeat(at + 2));
    }
    vi.advanceTimersByTime(999 + 1 + 2_000);
    await shows(`${ROW_TEXT.repeat(3)}${": ping\n\n".repeat(3)}`);
  });

  test("cannot delay a stop when its caller does not read", async () => {
    const source = new Source(() => ({ data: "x".repeat(10_000) }));
    const { connect, controller, openStreams } = await streaming(source);
    const socket = connect();
    socket.write("GET /stream/1 HTTP/1.1\r\nHost: ledger\r\n\r\n");
    // Full: of the rows behind it nothing can be sent.
    await expect
      .poll(() => socket.readableLength)
      .toBeGreaterThanOrEqual(socket.readableHighWaterMark);
    controller.abort(new ServiceError("unavailable", "SHUTTING_DOWN", "stopping"));
    await expect.poll(openStreams).toBe(0);
    expect(source.left).toBe(true);
    const received = new Received(socket);
    await expect.poll(() => received.hasEnded).toBe(true);
    expect(received.text.endsWith("0\r\n\r\n")).toBe(false); // The client sees that it is cut off.
  });

  test("is sent without chunks to HTTP/1.0, until the connection ends", async () => {
    const { app, connect } = await streaming(new Source((at) => (at < 2 ? ROW : undefined)));
    const socket = connect();
    socket.write("GET /stream/1 HTTP/1.0\r\n\r\n");
    const [head = "", ...body] = (await text(socket)).split("\r\n\r\n");
    expect(head).toMatch(/^HTTP\/1\.1 200/);
    expect(head.toLowerCase()).not.toContain("chunked");
    expect(body.join("").replace(OPENING, "")).toBe(ROW_TEXT + ROW_TEXT);
    await app.close();
  });
});
