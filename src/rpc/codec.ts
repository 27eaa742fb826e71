/**
 * Bytes as messages, and messages as bytes, by protobuf-es. Frames of push streams have their own reader
 * (batch-frame.ts), events their own writer (decision 094), and rows that were read in their wire form
 * (`WrittenEvents`) are sent as they are.
 */
import {
  type DescMessage,
  type DescMethod,
  type DescService,
  fromBinary,
  isMessage,
  type Message,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import { BinaryWriter } from "@bufbuild/protobuf/wire";
import type { MethodDefinition, ServiceDefinition } from "@grpc/grpc-js";
import { FragmentsSchema } from "@session-ledger/proto/ambient/v1/compression_pb";
import { PushSessionEventsRequestSchema } from "@session-ledger/proto/ambient/v1/event_stream_pb";
import { SessionEventSchema } from "@session-ledger/proto/ambient/v1/events_pb";
import { invalidArgument } from "@session-ledger/base/errors";
import type { PooledBuffer } from "../base/buffer-pool.ts";
import { PAGE_ITEMS, WrittenSessionEvent } from "../contract/rows-to-wire.ts";
import { DECODE_OPTIONS, readFrame } from "./batch-frame.ts";

/** protobuf-es refuses strings that are not UTF-8 (test/unit/rpc-decode.test.ts). */
export function decoderOf<D extends DescMessage>(desc: D): (bytes: Uint8Array) => MessageShape<D> {
  // protobuf-es alone would read these too slowly, and without a limit.
  const read = desc.typeName === PushSessionEventsRequestSchema.typeName ? readFrame : undefined;
  return (bytes) => {
    try {
      const message = read?.(bytes);
      return isMessage(message, desc) ? message : fromBinary(desc, bytes, DECODE_OPTIONS);
    } catch (cause) {
      // The decoder's message names lengths and tags, and never content; its stack is useless.
      const why = cause instanceof Error ? cause.message : "broken";
      const description = `the request is not a valid ${desc.typeName} message: ${why}`;
      throw invalidArgument([{ field: "", description }]);
    }
  };
}

type Encode = (message: Message) => Buffer;

export function encoderOf(desc: DescMessage): Encode {
  if (desc === SessionEventSchema) return encodeEvent;
  return (message) => {
    const { buffer, byteOffset, byteLength } = toBinary(desc, message);
    return Buffer.from(buffer, byteOffset, byteLength);
  };
}

/** Its buffer is used again: `toBinary` makes three for each message, which costs more than the fields. */
const eventWriter = new BinaryWriter();
/** A buffer for longer payloads is not kept. */
const KEPT_LENGTH_MAX = 16 * 1024;

/** The bytes of `toBinary`. A tag has the field and its wire type: 0 for a number, 2 for a length and bytes. */
function encodeEvent(event: Message): Buffer {
  if (!isMessage(event, SessionEventSchema)) throw new TypeError("an answer is no SessionEvent");
  const { id, sessionId, seq, eventType, payload, createdAt, completedAt, fragments } = event;
  const out = payload.length > KEPT_LENGTH_MAX ? new BinaryWriter() : eventWriter;
  let bytes: Uint8Array;
  try {
    if (id !== "") out.tag(1, 2).string(id);
    if (sessionId !== "") out.tag(2, 2).string(sessionId);
    if (seq !== 0n) out.tag(3, 0).int64(seq);
    if (eventType !== "") out.tag(4, 2).string(eventType);
    if (payload !== "") out.tag(5, 2).string(payload);
    for (const [field, time] of [
      [6, createdAt],
      [7, completedAt],
    ] as const) {
      if (time === undefined) continue;
      out.tag(field, 2).fork();
      if (time.seconds !== 0n) out.tag(1, 0).int64(time.seconds);
      if (time.nanos !== 0) out.tag(2, 0).int32(time.nanos);
      out.join();
    }
    if (event.eventCount !== 0) out.tag(8, 0).int32(event.eventCount);
    if (fragments) out.tag(103, 2).bytes(toBinary(FragmentsSchema, fragments));
    if (event.nonconformant) out.tag(104, 0).bool(true);
    if (event.deduplicated) out.tag(110, 0).bool(true);
    if (event.runId !== "") out.tag(111, 2).string(event.runId);
    if (event.watchState !== 0) out.tag(113, 0).int32(event.watchState);
  } finally {
    bytes = out.finish(); // Also after an error: it empties the writer.
  }
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** An answer in parts. `onFlushed` releases the buffers of its rows. */
export interface EncodedAnswer {
  readonly parts: readonly Buffer[];
  readonly onFlushed: () => void;
}

/** Rows that were written as the first field of their page are sent as they lie in their chunks. */
export function answerEncoderOf(desc: DescMessage): (message: Message) => EncodedAnswer {
  const encode = encoderOf(desc);
  const [items] = desc.fields;
  const isPage =
    items?.fieldKind === "list" &&
    items.message === SessionEventSchema &&
    items.number === PAGE_ITEMS;
  if (!isPage) return (message) => ({ parts: [encode(message)], onFlushed });
  return (message) => {
    const events: unknown = Reflect.get(message, items.localName);
    if (!areWritten(events)) return { parts: [encode(message)], onFlushed };
    const chunks = new Set(events.map(({ chunk }) => chunk));
    return {
      parts: [...partsOf(events), encode({ ...message, [items.localName]: [] })],
      onFlushed: () => chunks.forEach((chunk) => chunk.release()),
    };
  };
}

function onFlushed(): void {}

function areWritten(events: unknown): events is readonly WrittenSessionEvent[] {
  return Array.isArray(events) && events.every((event) => event instanceof WrittenSessionEvent);
}

/** Rows that follow each other in their chunk are one part. */
function partsOf(events: readonly WrittenSessionEvent[]): readonly Buffer[] {
  const parts: Buffer[] = [];
  let [from, end] = [0, 0];
  let chunk: PooledBuffer | undefined;
  for (const event of events) {
    if (event.chunk !== chunk || event.at.fieldFrom !== end) {
      if (chunk !== undefined) parts.push(chunk.bytes.subarray(from, end));
      chunk = event.chunk;
      from = event.at.fieldFrom;
    }
    end = event.at.end;
  }
  if (chunk !== undefined) parts.push(chunk.bytes.subarray(from, end));
  return parts;
}

/** The number of a method's newest messages whose bytes are cached for its other streams. */
const SHARED_MESSAGES_MAX = 64;

/**
 * For streams. Live delivery sends one object to all watchers of a session, so it is encoded for
 * the first one, and must never change afterwards. A ring with a linear search: a replay of 200,000
 * events, which shares nothing, took 0.75 s of CPU with it, 1.2 s with a WeakMap, 0.7 s without a
 * cache.
 */
export function sharedEncoderOf(desc: DescMessage): Encode {
  const encode = encoderOf(desc);
  const messages: (Message | undefined)[] = Array.from({ length: SHARED_MESSAGES_MAX });
  const encoded: Buffer[] = [];
  let next = 0;
  return (message) => {
    const existing = encoded[messages.indexOf(message)];
    if (existing !== undefined) return existing;
    const bytes = encode(message);
    messages[next] = message;
    encoded[next] = bytes;
    next = (next + 1) % SHARED_MESSAGES_MAX;
    return bytes;
  };
}

/**
 * A generated service for grpc-js, with plain bytes: grpc-js turns an error of a deserializer into
 * INTERNAL, but a broken request is the caller's fault. So the handling code decodes.
 */
export function definitionOf(service: DescService): ServiceDefinition {
  return Object.fromEntries(
    service.methods.map((method) => [method.localName, methodDefinitionOf(method)]),
  );
}

export function methodDefinitionOf(method: DescMethod): MethodDefinition<Buffer, Buffer> {
  return {
    path: `/${method.parent.typeName}/${method.name}`,
    requestStream:
      method.methodKind === "client_streaming" || method.methodKind === "bidi_streaming",
    responseStream:
      method.methodKind === "server_streaming" || method.methodKind === "bidi_streaming",
    requestSerialize: identity,
    requestDeserialize: identity,
    responseSerialize: identity,
    responseDeserialize: identity,
  };
}

function identity(bytes: Buffer): Buffer {
  return bytes;
}
