/**
 * Bytes as messages, and messages as bytes, by protobuf-es. Frames of push streams have their own reader
 * (batch-frame.ts), and rows that were read in their wire form (`WrittenEvents`) are sent as they are.
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
import type { MethodDefinition, ServiceDefinition } from "@grpc/grpc-js";
import { PushSessionEventsRequestSchema } from "@session-ledger/proto/ambient/v1/event_stream_pb";
import { SessionEventSchema } from "@session-ledger/proto/ambient/v1/events_pb";
import { invalidArgument } from "@session-ledger/base/errors";
import type { PooledBuffer } from "../base/buffer-pool.ts";
import { encodedEvent, PAGE_ITEMS, WrittenSessionEvent } from "../contract/rows-to-wire.ts";
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
  return (message) => {
    if (isMessage(message, SessionEventSchema)) return encodedEvent(message);
    const { buffer, byteOffset, byteLength } = toBinary(desc, message);
    return Buffer.from(buffer, byteOffset, byteLength);
  };
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
