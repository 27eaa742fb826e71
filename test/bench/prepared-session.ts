/** What a load generator sends of one session, encoded before the clock runs; the same for every session. */
import { create, toBinary } from "@bufbuild/protobuf";
import { PushSessionEventsRequestSchema } from "@session-ledger/proto/ambient/v1/event_stream_pb";
import { PushSessionEventRequestSchema } from "@session-ledger/proto/ambient/v1/events_pb";
import type { StreamEvent } from "../support/streams.ts";
import { framed } from "./grpc-messages.ts";

/** What HTTP/2 lets a client send before it hears anything; a longer frame would wait for ever. */
const FRAME_BYTES_MAX = 65_535;

export interface PreparedFrame {
  readonly bytes: Buffer;
  /** Number of its last event. */
  readonly lastSeq: number;
}

export interface PreparedSession {
  readonly frames: readonly PreparedFrame[];
  /** Bytes of payload up to the event with this number; of number 0 there are none. */
  readonly payloadBytes: readonly number[];
}

/** `Batch` frames of PushSessionEvents, in order. */
export function batchFrames(
  events: readonly StreamEvent[],
  { eventsPerFrame }: { readonly eventsPerFrame: number },
): PreparedSession {
  const frames: PreparedFrame[] = [];
  for (let from = 0; from < events.length; from += eventsPerFrame) {
    const batch = events.slice(from, from + eventsPerFrame);
    const value = { firstClientSeq: BigInt(from + 1), events: batch };
    const request = create(PushSessionEventsRequestSchema, { frame: { case: "batch", value } });
    const bytes = framed(toBinary(PushSessionEventsRequestSchema, request));
    if (bytes.length > FRAME_BYTES_MAX) throw new RangeError("a frame is too long");
    frames.push({ bytes, lastSeq: from + batch.length });
  }
  let sum = 0;
  const payloadBytes = [0, ...events.map(({ payload }) => (sum += Buffer.byteLength(payload)))];
  return { frames, payloadBytes };
}

export function openFrame(sessionId: string): Buffer {
  const frame = { case: "open", value: { sessionId } } as const;
  return framed(
    toBinary(PushSessionEventsRequestSchema, create(PushSessionEventsRequestSchema, { frame })),
  );
}

/** Requests of PushSessionEvent but for the session: two encodings in a row are one of both. */
export function unaryBodies(events: readonly StreamEvent[]): readonly Uint8Array[] {
  return events.map((event) =>
    toBinary(PushSessionEventRequestSchema, create(PushSessionEventRequestSchema, { ...event })),
  );
}

export function sessionField(sessionId: string): Uint8Array {
  return toBinary(
    PushSessionEventRequestSchema,
    create(PushSessionEventRequestSchema, { sessionId }),
  );
}
