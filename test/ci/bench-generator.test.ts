/**
 * The load generator of push streams, which speaks HTTP/2 and gRPC in bytes of its own: a server of
 * grpc-js that counts what comes must have seen what the generator says that it sent, each event once
 * and in order, and never more unacknowledged than it allowed.
 */
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  Server,
  ServerCredentials,
  type ServerDuplexStream,
  type ServerUnaryCall,
} from "@grpc/grpc-js";
import { afterEach, expect, test } from "vitest";
import { z } from "zod";
import {
  type PushSessionEventsRequest,
  PushSessionEventsRequestSchema,
  PushSessionEventsResponseSchema,
} from "../../gen/ambient/v1/event_stream_pb.ts";
import {
  PushSessionEventRequestSchema,
  SessionEventSchema,
} from "../../gen/ambient/v1/events_pb.ts";
import { type PushLoad, pushOutcomeSchema } from "../bench/push-load.ts";

const WINDOW_BYTES = 2_000;
/** Shorter than the test, so that it does not outlive it. */
const GENERATOR_LIMIT_MS = 90_000;
const LOAD = { connections: 2, lanesEach: 3, sessionEvents: 120, events: 1_500, run: "test" };

const servers: Server[] = [];

afterEach(() => {
  for (const server of servers.splice(0)) server.forceShutdown();
});

/** What a server has seen of one session. */
interface Seen {
  events: number;
  payloadBytes: number;
  unacknowledgedMax: number;
}

const pass = (bytes: Buffer): Buffer => bytes;

async function countingServer(sessions: Map<string, Seen>): Promise<string> {
  const server = new Server();
  servers.push(server);
  const codec = {
    requestSerialize: pass,
    requestDeserialize: pass,
    responseSerialize: pass,
    responseDeserialize: pass,
  };
  const service = "/ambient.v1.SessionService";
  server.addService(
    {
      stream: {
        path: `${service}/PushSessionEvents`,
        requestStream: true,
        responseStream: true,
        ...codec,
      },
      unary: {
        path: `${service}/PushSessionEvent`,
        requestStream: false,
        responseStream: false,
        ...codec,
      },
    },
    {
      stream: (call: ServerDuplexStream<Buffer, Buffer>) => countStream(call, sessions),
      unary: (
        { request }: ServerUnaryCall<Buffer, Buffer>,
        answer: (error: null, bytes: Buffer) => void,
      ) => {
        const { sessionId } = fromBinary(PushSessionEventRequestSchema, request);
        seenOf(sessions, sessionId).events += 1;
        answer(null, Buffer.from(toBinary(SessionEventSchema, create(SessionEventSchema))));
      },
    },
  );
  const port = await promisify(server.bindAsync.bind(server))(
    "127.0.0.1:0",
    ServerCredentials.createInsecure(),
  );
  return `127.0.0.1:${port}`;
}

function seenOf(sessions: Map<string, Seen>, sessionId: string): Seen {
  const seen = sessions.get(sessionId) ?? { events: 0, payloadBytes: 0, unacknowledgedMax: 0 };
  sessions.set(sessionId, seen);
  return seen;
}

/** Acknowledges when nothing has come for a turn of the loop, so that windows fill. */
function countStream(call: ServerDuplexStream<Buffer, Buffer>, sessions: Map<string, Seen>): void {
  let seen: Seen | undefined;
  let acknowledgedBytes = 0;
  let waiting: NodeJS.Immediate | undefined;
  const send = (frame: Parameters<typeof create<typeof PushSessionEventsResponseSchema>>[1]) =>
    call.write(
      Buffer.from(
        toBinary(PushSessionEventsResponseSchema, create(PushSessionEventsResponseSchema, frame)),
      ),
    );
  const acknowledge = (): void => {
    waiting = undefined;
    acknowledgedBytes = seen?.payloadBytes ?? 0;
    const value = { lastClientSeq: BigInt(seen?.events ?? 0) };
    send({ frame: { case: "committed", value } });
  };
  const take = ({ frame }: PushSessionEventsRequest): void => {
    if (frame.case === "open") {
      seen = seenOf(sessions, frame.value.sessionId);
      const value = { maxUnacknowledgedBytes: BigInt(WINDOW_BYTES) };
      send({ frame: { case: "opened", value } });
    }
    if (frame.case !== "batch" || seen === undefined) return;
    expect(frame.value.firstClientSeq).toBe(BigInt(seen.events + 1));
    seen.events += frame.value.events.length;
    for (const { payload } of frame.value.events) seen.payloadBytes += Buffer.byteLength(payload);
    const unacknowledged = seen.payloadBytes - acknowledgedBytes;
    seen.unacknowledgedMax = Math.max(seen.unacknowledgedMax, unacknowledged);
    waiting ??= setImmediate(acknowledge);
  };
  call.on("data", (bytes: Buffer) => take(fromBinary(PushSessionEventsRequestSchema, bytes)));
  call.on("end", () => {
    clearImmediate(waiting);
    acknowledge();
    call.end();
  });
}

async function generate(load: PushLoad) {
  const script = new URL("../bench/stream-generator.ts", import.meta.url).pathname;
  const { stdout } = await promisify(execFile)(process.execPath, [script, JSON.stringify(load)], {
    env: { ...process.env, CORPUS: "" },
    timeout: GENERATOR_LIMIT_MS,
  });
  return z.object({ outcome: pushOutcomeSchema }).parse(JSON.parse(stdout)).outcome;
}

test.each([
  ["one event a frame", 1, { least: WINDOW_BYTES / 2, most: WINDOW_BYTES }],
  ["seven events a frame", 7, { least: WINDOW_BYTES / 2, most: WINDOW_BYTES }],
  ["unary pushes", "unary", { least: 0, most: 0 }],
] as const)(
  "%s: every event arrived once, in order, and the window was used and kept",
  { timeout: 120_000 },
  async (_name, eventsPerFrame, unacknowledgedBytes) => {
    const sessions = new Map<string, Seen>();
    const address = await countingServer(sessions);
    const outcome = await generate({ ...LOAD, address, eventsPerFrame });
    const all = [...sessions.values()];
    const events = all.reduce((sum, seen) => sum + seen.events, 0);
    expect(events).toBe(outcome.events);
    expect(events).toBeGreaterThanOrEqual(LOAD.events);
    expect(outcome.refused).toBe(0);
    expect(outcome.sessionIds).toEqual(expect.arrayContaining([...sessions.keys()]));
    // Sessions that are full are followed by new ones.
    expect(Math.max(...all.map((seen) => seen.events))).toBe(LOAD.sessionEvents);
    const unacknowledged = Math.max(...all.map((seen) => seen.unacknowledgedMax));
    expect(unacknowledged).toBeGreaterThanOrEqual(unacknowledgedBytes.least);
    expect(unacknowledged).toBeLessThanOrEqual(unacknowledgedBytes.most);
  },
);
