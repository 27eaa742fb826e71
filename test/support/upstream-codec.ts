import {
  type CallOptions,
  Client,
  type ClientReadableStream,
  credentials,
  Metadata,
} from "@grpc/grpc-js";
/**
 * The codec of a runner, written by hand from upstream's messages, without any field of ours: defaults
 * are omitted, as proto3 says, and unknown fields are skipped by wire type. It uses no code of the
 * service, no generated code and no protobuf library.
 */
export interface UpstreamTimestamp {
  readonly seconds: bigint;
  readonly nanos: number;
}

export interface PushMessage {
  readonly sessionId: string;
  readonly eventType: string;
  readonly payload: string;
}

export interface PushEvent extends PushMessage {
  readonly completedAt?: UpstreamTimestamp;
  readonly eventCount?: number;
}

export interface Watch {
  readonly sessionId: string;
  readonly afterSeq: bigint;
}

export interface UpstreamMessage {
  readonly id: string;
  readonly sessionId: string;
  readonly seq: bigint;
  readonly eventType: string;
  readonly payload: string;
  readonly createdAt: UpstreamTimestamp | undefined;
}

export interface UpstreamEvent extends UpstreamMessage {
  readonly completedAt: UpstreamTimestamp | undefined;
  readonly eventCount: number;
}

export function encodePushMessage(push: PushMessage): Buffer {
  return Buffer.concat([
    textField(1, push.sessionId),
    textField(2, push.eventType),
    textField(3, push.payload),
  ]);
}

export function encodePushEvent(push: PushEvent): Buffer {
  return Buffer.concat([
    encodePushMessage(push),
    timestampField(4, push.completedAt),
    numberField(5, BigInt(push.eventCount ?? 0)),
  ]);
}

/** The same for messages and events. */
export function encodeWatch(watch: Watch): Buffer {
  return Buffer.concat([textField(1, watch.sessionId), numberField(2, watch.afterSeq)]);
}

export function encodeEvent(event: UpstreamEvent): Buffer {
  return Buffer.concat([
    textField(1, event.id),
    textField(2, event.sessionId),
    numberField(3, event.seq),
    textField(4, event.eventType),
    textField(5, event.payload),
    timestampField(6, event.createdAt),
    timestampField(7, event.completedAt),
    numberField(8, BigInt(event.eventCount)),
  ]);
}

export function decodeMessage(bytes: Buffer): UpstreamMessage {
  const fields = readFields(bytes);
  return {
    id: textOf(fields.get(1)),
    sessionId: textOf(fields.get(2)),
    seq: BigInt.asIntN(64, numberOf(fields.get(3))),
    eventType: textOf(fields.get(4)),
    payload: textOf(fields.get(5)),
    createdAt: timestampOf(fields.get(6)),
  };
}

export function decodeEvent(bytes: Buffer): UpstreamEvent {
  const fields = readFields(bytes);
  return {
    ...decodeMessage(bytes),
    completedAt: timestampOf(fields.get(7)),
    eventCount: Number(BigInt.asIntN(32, numberOf(fields.get(8)))),
  };
}

/** Numbers of our additional fields, which a client must be able to skip. */
export function unknownFields(bytes: Buffer): readonly number[] {
  return [...readFields(bytes).keys()].filter((number) => number > 8);
}

const VARINT = 0;
const FIXED_64 = 1;
const BYTES = 2;
const FIXED_32 = 5;

type Field = bigint | Buffer;

function textField(number: number, text: string): Buffer {
  return text === "" ? Buffer.alloc(0) : bytesField(number, Buffer.from(text));
}

function bytesField(number: number, bytes: Buffer): Buffer {
  return Buffer.concat([tag(number, BYTES), varint(BigInt(bytes.length)), bytes]);
}

function numberField(number: number, value: bigint): Buffer {
  return value === 0n ? Buffer.alloc(0) : Buffer.concat([tag(number, VARINT), varint(value)]);
}

/** A message has presence: one with only defaults is sent as an empty field. */
function timestampField(number: number, time: UpstreamTimestamp | undefined): Buffer {
  if (time === undefined) return Buffer.alloc(0);
  const parts = [numberField(1, time.seconds), numberField(2, BigInt(time.nanos))];
  return bytesField(number, Buffer.concat(parts));
}

function tag(number: number, wireType: number): Buffer {
  return varint(BigInt(number * 8 + wireType));
}

/** Negative numbers take ten bytes, as two's complement of 64 bits. */
function varint(value: bigint): Buffer {
  const bytes: number[] = [];
  let rest = BigInt.asUintN(64, value);
  while (rest > 127n) {
    bytes.push(Number(rest & 127n) + 128);
    rest >>= 7n;
  }
  return Buffer.from([...bytes, Number(rest)]);
}

/** The last value of a repeated field number counts. */
function readFields(bytes: Buffer): ReadonlyMap<number, Field> {
  const fields = new Map<number, Field>();
  let at = 0;
  const next = (): bigint => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes.readUInt8(at);
      at += 1;
      value += BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  const take = (length: number): Buffer => {
    at += length;
    if (at > bytes.length) throw new RangeError("a field is longer than its message");
    return bytes.subarray(at - length, at);
  };
  while (at < bytes.length) {
    const header = Number(next());
    const number = Math.floor(header / 8);
    switch (header % 8) {
      case VARINT:
        fields.set(number, next());
        break;
      case FIXED_64:
        fields.set(number, take(8));
        break;
      case BYTES:
        fields.set(number, take(Number(next())));
        break;
      case FIXED_32:
        fields.set(number, take(4));
        break;
      default:
        throw new TypeError(`field ${number} has an unknown wire type`);
    }
  }
  return fields;
}

function textOf(field: Field | undefined): string {
  if (field === undefined) return "";
  if (!Buffer.isBuffer(field)) throw new TypeError("a string field holds a number");
  return new TextDecoder("utf-8", { fatal: true }).decode(field);
}

function numberOf(field: Field | undefined): bigint {
  if (field === undefined) return 0n;
  if (Buffer.isBuffer(field)) throw new TypeError("a number field holds bytes");
  return field;
}

function timestampOf(field: Field | undefined): UpstreamTimestamp | undefined {
  if (field === undefined) return undefined;
  if (!Buffer.isBuffer(field)) throw new TypeError("a timestamp field holds a number");
  const parts = readFields(field);
  return {
    seconds: BigInt.asIntN(64, numberOf(parts.get(1))),
    nanos: Number(BigInt.asIntN(32, numberOf(parts.get(2)))),
  };
}

// A runner as deployed today: upstream's messages and methods, its own codec (upstream-codec.ts), no
// channel options, five seconds for a push, and a token that this service may not know.

const PUSH_DEADLINE_MS = 5_000;
const SERVICE = "/ambient.v1.SessionService";

export class UpstreamClient {
  /** Numbers of received unknown fields. */
  readonly skipped = new Set<number>();
  readonly #client: Client;

  constructor(address: string) {
    this.#client = new Client(address, credentials.createInsecure());
  }

  async pushMessage(push: PushMessage): Promise<UpstreamMessage> {
    return decodeMessage(await this.#push("PushSessionMessage", encodePushMessage(push)));
  }

  async pushEvent(push: PushEvent): Promise<UpstreamEvent> {
    return decodeEvent(await this.#push("PushSessionEvent", encodePushEvent(push)));
  }

  watchMessages(watch: Watch): UpstreamWatch<UpstreamMessage> {
    return this.#watch("WatchSessionMessages", watch, decodeMessage);
  }

  watchEvents(watch: Watch): UpstreamWatch<UpstreamEvent> {
    return this.#watch("WatchSessionEvents", watch, decodeEvent);
  }

  close(): void {
    this.#client.close();
  }

  #push(method: string, request: Buffer): Promise<Buffer> {
    const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
    const options: CallOptions = { deadline: Date.now() + PUSH_DEADLINE_MS };
    this.#client.makeUnaryRequest(
      `${SERVICE}/${method}`,
      identity,
      identity,
      request,
      bearer(),
      options,
      (error, response = Buffer.alloc(0)) => {
        if (error !== null) return reject(error);
        for (const number of unknownFields(response)) this.skipped.add(number);
        resolve(response);
      },
    );
    return promise;
  }

  #watch<Row>(method: string, watch: Watch, decode: (bytes: Buffer) => Row): UpstreamWatch<Row> {
    const call = this.#client.makeServerStreamRequest(
      `${SERVICE}/${method}`,
      identity,
      identity,
      encodeWatch(watch),
      bearer(),
    );
    return new UpstreamWatch(call, (bytes) => {
      for (const number of unknownFields(bytes)) this.skipped.add(number);
      return decode(bytes);
    });
  }
}

/** Rows in the order they arrive; its status is an error even when the client itself ended it. */
export class UpstreamWatch<Row> {
  readonly #call: ClientReadableStream<Buffer>;
  readonly #rows: AsyncIterator<Buffer>;
  readonly #decode: (bytes: Buffer) => Row;
  /** Resolves when the headers of the server arrive: it has accepted the watch. */
  readonly attached: Promise<void>;

  constructor(call: ClientReadableStream<Buffer>, decode: (bytes: Buffer) => Row) {
    this.#call = call;
    this.#decode = decode;
    this.attached = new Promise((resolve) => call.once("metadata", () => resolve()));
    this.#rows = call[Symbol.asyncIterator]();
  }

  /** The next rows, however late they arrive. */
  async take(count: number): Promise<readonly Row[]> {
    const rows: Row[] = [];
    while (rows.length < count) {
      const next = await this.#rows.next();
      if (next.done === true) throw new Error("the watch ended");
      rows.push(this.#decode(next.value));
    }
    return rows;
  }

  /** Rejects with the status when the server ends the watch. */
  async ended(): Promise<never> {
    for (;;) {
      const next = await this.#rows.next();
      if (next.done === true) throw new Error("the watch ended without a status");
    }
  }

  cancel(): void {
    this.#call.on("error", () => undefined);
    this.#call.cancel();
  }
}

function bearer(): Metadata {
  const metadata = new Metadata();
  metadata.set("authorization", "Bearer of-the-platform");
  return metadata;
}

function identity(bytes: Buffer): Buffer {
  return bytes;
}
