/**
 * Encodes messages with one reused writer of protobuf-es, which otherwise makes one per message
 * whose buffer doubles from 128 bytes: 1.7 µs instead of 5.4 for a SessionEvent of 700 bytes (Node
 * 24.21, protobuf-es 2.17), and a replay is little else than encoding. Handles the kinds of field
 * in the contract; a message with a map or a oneof goes through toBinary.
 * test/unit/rpc-encode.test.ts compares both.
 */
import {
  type DescField,
  type DescMessage,
  type Message,
  ScalarType,
  toBinary,
} from "@bufbuild/protobuf";
import { SessionEventSchema } from "@session-ledger/proto/ambient/v1/events_pb";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";

import { ReadSessionEvent } from "../contract/rows-to-wire.ts";

type Encode = (message: Message) => Buffer;
type Write = (writer: BinaryWriter, value: unknown) => void;

/** Above this size the writer is dropped with its buffer, which is three times as large or more. */
const WRITER_BYTES_MAX = 64 * 1024;

// One for all messages: encoding is synchronous, so it never holds two messages.
let writer = new BinaryWriter();

export function encoderOf(desc: DescMessage): Encode {
  const encode = fieldsEncoderOf(desc);
  const [items] = desc.fields;
  if (items?.fieldKind !== "list" || items.message !== SessionEventSchema) return encode;
  return (message) => {
    const rows: unknown = Reflect.get(message, items.localName);
    if (!isRead(rows)) return encode(message);
    const rest = encode({ ...message, [items.localName]: [] });
    return pageOf(rows, { field: items.number, rest });
  };
}

function isRead(rows: unknown): rows is readonly ReadSessionEvent[] {
  return Array.isArray(rows) && rows.every((row) => row instanceof ReadSessionEvent);
}

/** Rows as the first field of their page. The page has one buffer, and nothing is moved in it. */
function pageOf(
  rows: readonly ReadSessionEvent[],
  { field, rest }: { readonly field: number; readonly rest: Buffer },
): Buffer {
  const bytesMax = rows.reduce((sum, row) => sum + row.bytesMax, rest.length);
  const page = Buffer.allocUnsafeSlow(bytesMax);
  const end = rows.reduce((at, row) => row.writeField(field, page, at), 0);
  rest.copy(page, end);
  return page.subarray(0, end + rest.length);
}

function fieldsEncoderOf(desc: DescMessage): Encode {
  const write = messageWriter(desc);
  if (write === undefined) return (message) => bufferOver(toBinary(desc, message));
  return (message) => {
    try {
      write(writer, message);
      const bytes = writer.finish();
      if (bytes.length > WRITER_BYTES_MAX) writer = new BinaryWriter();
      return bufferOver(bytes);
    } catch (error) {
      writer = new BinaryWriter(); // Half a message must not become the beginning of the next one.
      throw error;
    }
  };
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

function bufferOver(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Undefined when the message has a kind of field that this file cannot write. */
function messageWriter(desc: DescMessage): Write | undefined {
  const fields: { readonly name: string; readonly write: Write }[] = [];
  for (const field of desc.fields.toSorted((a, b) => a.number - b.number)) {
    const write = fieldWriter(field);
    if (write === undefined) return undefined;
    fields.push({ name: field.localName, write });
  }
  return (out, message) => {
    if (!isObject(message)) throw new TypeError(`${desc.typeName} expected`);
    for (const { name, write } of fields) write(out, message[name]);
  };
}

function fieldWriter(field: DescField): Write | undefined {
  if (field.oneof !== undefined) return undefined;
  switch (field.fieldKind) {
    case "message":
      return field.delimitedEncoding ? undefined : singular(childWriter(field, field.message));
    case "enum":
      return singular(scalarWriter(field, ScalarType.INT32), zeroOf(field, ScalarType.INT32));
    case "scalar":
      return field.longAsString
        ? undefined
        : singular(scalarWriter(field, field.scalar), zeroOf(field, field.scalar));
    case "list":
      return listWriter(field);
    case "map":
      return undefined;
  }
}

function listWriter(field: DescField & { readonly fieldKind: "list" }): Write | undefined {
  if (field.listKind === "message") {
    return field.delimitedEncoding ? undefined : repeated(childWriter(field, field.message));
  }
  const type = field.listKind === "enum" ? ScalarType.INT32 : field.scalar;
  if (!field.packed) return repeated(scalarWriter(field, type));
  const scalar = SCALARS[type];
  if (scalar === undefined) return undefined;
  return (out, value) => {
    if (!Array.isArray(value) || value.length === 0) return;
    out.tag(field.number, WireType.LengthDelimited).fork();
    for (const item of value) scalar.write(out, item);
    out.join();
  };
}

function childWriter(field: DescField, desc: DescMessage): Write | undefined {
  const write = messageWriter(desc);
  if (write === undefined) return undefined;
  return (out, value) => {
    out.tag(field.number, WireType.LengthDelimited).fork();
    write(out, value);
    out.join();
  };
}

function scalarWriter(field: DescField, type: ScalarType): Write | undefined {
  const scalar = SCALARS[type];
  if (scalar === undefined) return undefined;
  return (out, value) => {
    out.tag(field.number, scalar.wireType);
    scalar.write(out, value);
  };
}

/** `zero` is not sent: the type's default, unless the field has presence. */
function singular(write: Write | undefined, zero?: unknown): Write | undefined {
  if (write === undefined) return undefined;
  return (out, value) => {
    if (value !== undefined && value !== zero) write(out, value);
  };
}

function repeated(write: Write | undefined): Write | undefined {
  if (write === undefined) return undefined;
  return (out, value) => {
    if (!Array.isArray(value)) return;
    for (const item of value) write(out, item);
  };
}

function zeroOf(field: DescField, type: ScalarType): unknown {
  const isOptional = field.proto.proto3Optional;
  return isOptional ? undefined : SCALARS[type]?.zero;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}

interface Scalar {
  readonly wireType: WireType;
  readonly zero: unknown;
  /** The value has the type of the scalar: the message is a generated one. */
  write(out: BinaryWriter, value: unknown): unknown;
}

/** The scalar types of the contract. */
const SCALARS: Partial<Record<ScalarType, Scalar>> = {
  [ScalarType.STRING]: {
    wireType: WireType.LengthDelimited,
    zero: "",
    write: (out, value: string) => out.string(value),
  },
  [ScalarType.BOOL]: varint(false, (out, value: boolean) => out.bool(value)),
  [ScalarType.INT32]: varint(0, (out, value: number) => out.int32(value)),
  [ScalarType.UINT32]: varint(0, (out, value: number) => out.uint32(value)),
  [ScalarType.INT64]: varint(0n, (out, value: bigint) => out.int64(value)),
  [ScalarType.UINT64]: varint(0n, (out, value: bigint) => out.uint64(value)),
  [ScalarType.SINT64]: varint(0n, (out, value: bigint) => out.sint64(value)),
};

function varint(zero: unknown, write: Scalar["write"]): Scalar {
  return { wireType: WireType.Varint, zero, write };
}
