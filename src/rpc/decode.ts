import {
  type DescField,
  type DescMessage,
  fromBinary,
  isMessage,
  type Message,
  type MessageShape,
  ScalarType,
} from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { PushSessionEventsRequestSchema } from "@session-ledger/proto/ambient/v1/event_stream_pb";
import { invalidArgument } from "@session-ledger/base/errors";
import { readBatchFrame } from "./batch-frame.ts";

/**
 * Fast readers of the plain encoding, for messages that arrive by the hundred thousand per second.
 */
const PLAIN_READERS: ReadonlyMap<string, (bytes: Uint8Array) => Message | undefined> = new Map([
  [PushSessionEventsRequestSchema.typeName, readBatchFrame],
]);

/**
 * Unknown fields are skipped: a request from a newer client must work. protobuf-es itself refuses
 * strings that are not UTF-8 (test/unit/rpc-decode.test.ts).
 */
export function decoderOf<D extends DescMessage>(desc: D): (bytes: Uint8Array) => MessageShape<D> {
  const options = { readUnknownFields: false };
  const checkForm = formCheckOf(desc);
  const readPlain = PLAIN_READERS.get(desc.typeName);
  return (bytes) => {
    const plain = readPlain?.(bytes);
    if (isMessage(plain, desc)) return plain;
    try {
      checkForm(bytes);
      return fromBinary(desc, bytes, options);
    } catch (cause) {
      // The decoder's message names lengths and tags, and never content; its stack is useless.
      const why = cause instanceof Error ? cause.message : "broken";
      const description = `the request is not a valid ${desc.typeName} message: ${why}`;
      throw invalidArgument([{ field: "", description }]);
    }
  };
}

/**
 * Strings and messages in one message. A frame of 4 MiB has room for two million empty events,
 * which take 0.7 s and 260 MiB to decode before they can be counted.
 */
const PARTS_MAX = 131_072;

interface FieldForm {
  readonly wireType: WireType;
  /** The elements of the list may also be packed into one field. */
  readonly isPackable: boolean;
  readonly message: MessageForm | undefined;
}

type MessageForm = ReadonlyMap<number, FieldForm>;

/**
 * Throws when a known field does not have the wire type of its kind, or a nested message or list
 * does not end at its stated length. protobuf-es checks neither: it reads `22 02 0a 05`, a
 * Timestamp whose seconds are a string, as five seconds, and lets a nested message continue into
 * the bytes after it. The walk takes a tenth of the time for decoding a push; the decoder makes all
 * other checks.
 */
export function formCheckOf(desc: DescMessage): (bytes: Uint8Array) => void {
  const form = formOf(desc);
  return (bytes) => checkMessage(new BinaryReader(bytes), bytes.length, form);
}

function checkMessage(reader: BinaryReader, end: number, form: MessageForm): void {
  let parts = 0;
  while (reader.pos < end) {
    const [number, wireType] = reader.tag();
    const field = form.get(number);
    if (wireType !== WireType.LengthDelimited) {
      if (field !== undefined && field.wireType !== wireType) throw wrongType(number, wireType);
      skip(reader, wireType, number);
      continue;
    }
    parts += 1;
    if (parts > PARTS_MAX) throw new Error(`a message has more than ${PARTS_MAX} parts`);
    const length = reader.uint32();
    const stop = reader.pos + length;
    if (stop > end) throw new Error(`field ${number} is longer than what it is in`);
    if (field?.message !== undefined) checkMessage(reader, stop, field.message);
    else if (field?.isPackable) {
      while (reader.pos < stop) skip(reader, field.wireType, number);
      if (reader.pos !== stop) throw new Error(`an element of field ${number} has no end`);
    } else if (field !== undefined && field.wireType !== wireType) {
      throw wrongType(number, wireType);
    } else reader.pos = stop;
  }
  if (reader.pos !== end) throw new Error("a field continues after the end of its message");
}

/** A group can only be an unknown field: our messages have none. */
function skip(reader: BinaryReader, wireType: WireType, number: number): void {
  if (wireType === WireType.Varint) reader.uint32();
  else reader.skip(wireType, number);
}

function wrongType(number: number, wireType: WireType): Error {
  return new Error(`field ${number} cannot have wire type ${wireType}`);
}

// Messages of the contract do not contain themselves, so this ends.
function formOf(desc: DescMessage): MessageForm {
  return new Map(desc.fields.map((field) => [field.number, fieldFormOf(field)]));
}

function fieldFormOf(field: DescField): FieldForm {
  const { fieldKind, message } = field;
  if (fieldKind === "map" || message !== undefined) {
    const nested = fieldKind === "map" ? undefined : message;
    const form = nested === undefined ? undefined : formOf(nested);
    return { wireType: WireType.LengthDelimited, isPackable: false, message: form };
  }
  const wireType = wireTypeOf(field.scalar);
  const isPackable = fieldKind === "list" && wireType !== WireType.LengthDelimited;
  return { wireType, isPackable, message: undefined };
}

/** A type that is not listed is a varint; an enum is one too, and has no scalar type. */
const WIRE_TYPES: Partial<Record<ScalarType, WireType>> = {
  [ScalarType.STRING]: WireType.LengthDelimited,
  [ScalarType.BYTES]: WireType.LengthDelimited,
  [ScalarType.DOUBLE]: WireType.Bit64,
  [ScalarType.FIXED64]: WireType.Bit64,
  [ScalarType.SFIXED64]: WireType.Bit64,
  [ScalarType.FLOAT]: WireType.Bit32,
  [ScalarType.FIXED32]: WireType.Bit32,
  [ScalarType.SFIXED32]: WireType.Bit32,
};

function wireTypeOf(scalar: ScalarType | undefined): WireType {
  return (scalar === undefined ? undefined : WIRE_TYPES[scalar]) ?? WireType.Varint;
}
