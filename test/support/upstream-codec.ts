import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
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
 * service and no generated code; test/unit/wire-vectors.test.ts has its exact bytes.
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
  return encoded(pushFields(push));
}

export function encodePushEvent(push: PushEvent): Buffer {
  return encoded([...pushFields(push), [4, push.completedAt], [5, push.eventCount ?? 0]]);
}

function pushFields({ sessionId, eventType, payload }: PushMessage): readonly Sent[] {
  return [
    [1, sessionId],
    [2, eventType],
    [3, payload],
  ];
}

/** The same for messages and events. */
export function encodeWatch(watch: Watch): Buffer {
  return encoded([
    [1, watch.sessionId],
    [2, watch.afterSeq],
  ]);
}

export function encodeEvent(event: UpstreamEvent): Buffer {
  return encoded([
    [1, event.id],
    [2, event.sessionId],
    [3, event.seq],
    [4, event.eventType],
    [5, event.payload],
    [6, event.createdAt],
    [7, event.completedAt],
    [8, event.eventCount],
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

type Sent = readonly [
  number: number,
  value: string | bigint | number | UpstreamTimestamp | undefined,
];

/** A message has presence: a time with only defaults is sent as an empty field. */
function encoded(fields: readonly Sent[]): Buffer {
  const writer = new BinaryWriter();
  for (const [number, value] of fields) {
    if (value === undefined || value === "" || value === 0 || value === 0n) continue;
    if (typeof value === "string") writer.tag(number, WireType.LengthDelimited).string(value);
    else if (typeof value !== "object") writer.tag(number, WireType.Varint).int64(value);
    else {
      const { seconds, nanos } = value;
      writer.tag(number, WireType.LengthDelimited).bytes(
        encoded([
          [1, seconds],
          [2, nanos],
        ]),
      );
    }
  }
  return Buffer.from(writer.finish());
}

type Field = bigint | Buffer;

/** The last value of a repeated field number counts. Fields that upstream does not have are skipped. */
function readFields(bytes: Buffer): ReadonlyMap<number, Field> {
  const fields = new Map<number, Field>();
  const reader = new BinaryReader(bytes);
  while (reader.pos < reader.len) {
    const [number, type] = reader.tag();
    if (type === WireType.Varint) fields.set(number, BigInt(reader.int64()));
    else if (type === WireType.LengthDelimited) fields.set(number, Buffer.from(reader.bytes()));
    else fields.set(number, Buffer.from(reader.skip(type, number)));
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
