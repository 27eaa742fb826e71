import {
  type DescMessage,
  fromBinary,
  isMessage,
  type Message,
  type MessageShape,
} from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import {
  BatchSchema,
  type PushSessionEventsRequest,
  PushSessionEventsRequestSchema,
  RawEventSchema,
} from "@session-ledger/proto/ambient/v1/event_stream_pb";
import { invalidArgument } from "@session-ledger/base/errors";
import { FRAME_EVENTS_MAX, readBatchFrame } from "./batch-frame.ts";

/** Unknown fields are skipped: a request from a newer client must work. */
const OPTIONS = { readUnknownFields: false };

/** Readers for messages that protobuf-es alone would read too slowly, or without a limit. */
const READERS: ReadonlyMap<string, (bytes: Uint8Array) => Message | undefined> = new Map([
  [
    PushSessionEventsRequestSchema.typeName,
    (bytes: Uint8Array) => readBatchFrame(bytes) ?? readLargeFrame(bytes),
  ],
]);

/** protobuf-es refuses strings that are not UTF-8 (test/unit/rpc-decode.test.ts). */
export function decoderOf<D extends DescMessage>(desc: D): (bytes: Uint8Array) => MessageShape<D> {
  const read = READERS.get(desc.typeName);
  return (bytes) => {
    try {
      const message = read?.(bytes);
      return isMessage(message, desc) ? message : fromBinary(desc, bytes, OPTIONS);
    } catch (cause) {
      // The decoder's message names lengths and tags, and never content; its stack is useless.
      const why = cause instanceof Error ? cause.message : "broken";
      const description = `the request is not a valid ${desc.typeName} message: ${why}`;
      throw invalidArgument([{ field: "", description }]);
    }
  };
}

/** An event has at least this many bytes in its batch: a tag, and the length 0. */
const EVENT_BYTES_MIN = 2;
/** Field numbers: the batch in its frame, and the events in their batch. */
const BATCH = 2;
const EVENTS = 2;

/**
 * Decodes a large frame event by event, to count them: 4 MiB have room for two million empty events,
 * which take 0.7 s and 260 MiB to decode. Undefined for a frame that is too small for too many.
 * Each part is decoded alone, so that a wrong length in one cannot hide events.
 */
function readLargeFrame(bytes: Uint8Array): PushSessionEventsRequest | undefined {
  if (!canHaveTooMany(bytes)) return undefined;
  const frame = split(bytes, BATCH);
  const batch = split(Buffer.concat(frame.parts), EVENTS);
  if (canHaveTooMany(frame.rest) || canHaveTooMany(batch.rest)) {
    throw new Error(`the other fields have more than ${FRAME_EVENTS_MAX} parts`);
  }
  if (frame.parts.length === 0) return undefined;
  const value = fromBinary(BatchSchema, batch.rest, OPTIONS);
  value.events = batch.parts.map((part) => fromBinary(RawEventSchema, part, OPTIONS));
  return {
    $typeName: "ambient.v1.PushSessionEventsRequest",
    frame: { case: "batch", value },
  };
}

function canHaveTooMany({ length }: Uint8Array): boolean {
  return length > FRAME_EVENTS_MAX * EVENT_BYTES_MIN;
}

/** The values of one field of a message, and the bytes of all other fields. */
function split(
  bytes: Uint8Array,
  wanted: number,
): { readonly parts: readonly Uint8Array[]; readonly rest: Buffer } {
  const reader = new BinaryReader(bytes);
  const parts: Uint8Array[] = [];
  const rest: Uint8Array[] = [];
  while (reader.pos < reader.len) {
    const start = reader.pos;
    const [field, wireType] = reader.tag();
    if (field === wanted && wireType === WireType.LengthDelimited) parts.push(reader.bytes());
    else {
      reader.skip(wireType, field);
      rest.push(bytes.subarray(start, reader.pos));
    }
    if (parts.length + rest.length > FRAME_EVENTS_MAX) {
      throw new Error(`a message has more than ${FRAME_EVENTS_MAX} parts`);
    }
  }
  return { parts, rest: Buffer.concat(rest) };
}
