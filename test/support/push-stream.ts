/** A client of PushSessionEvents that sends any frames of a test, valid or not, and records the answers. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  type Committed,
  type Opened,
  type OpenSchema,
  type PushSessionEventsRequestSchema,
  type PushSessionEventsResponse,
  type RawEventSchema,
  type Refused,
} from "@session-ledger/proto/ambient/v1/event_stream_pb";
import type { SessionEvent } from "@session-ledger/proto/ambient/v1/events_pb";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { type RpcClient, RpcFailure } from "./grpc-client.ts";

const { pushSessionEvents, listSessionEvents } = SessionService.method;

export type RequestFrame = NonNullable<
  MessageInitShape<typeof PushSessionEventsRequestSchema>["frame"]
>;
export type ResponseFrame = PushSessionEventsResponse["frame"];
export type OpenFields = MessageInitShape<typeof OpenSchema>;
export type RawEventFields = MessageInitShape<typeof RawEventSchema>;

type Call = ReturnType<typeof callOf>;

function callOf(client: RpcClient) {
  return client.bidiStream(pushSessionEvents);
}

export class PushStreamClient {
  readonly #call: Call;
  /** Every received frame, in order. */
  readonly frames: ResponseFrame[] = [];

  constructor(client: RpcClient) {
    this.#call = callOf(client);
  }

  /** Sends `open` and waits for the answer. */
  static async open(
    client: RpcClient,
    open: OpenFields,
  ): Promise<{ readonly stream: PushStreamClient; readonly opened: Opened }> {
    const stream = new PushStreamClient(client);
    stream.send({ case: "open", value: open });
    const frame = await stream.next();
    if (frame?.case !== "opened") throw new Error(`expected opened, got ${frame?.case}`);
    return { stream, opened: frame.value };
  }

  send(frame: RequestFrame): void {
    this.#call.send({ frame });
  }

  sendBytes(bytes: Uint8Array): void {
    this.#call.sendBytes(bytes);
  }

  batch(firstClientSeq: bigint | number, events: readonly RawEventFields[]): void {
    const value = { firstClientSeq: BigInt(firstClientSeq), events: [...events] };
    this.send({ case: "batch", value });
  }

  flush(): void {
    this.send({ case: "flush", value: {} });
  }

  end(): void {
    this.#call.end();
  }

  cancel(): void {
    this.#call.cancel();
  }

  /** Undefined when the call has ended with OK. */
  async next(): Promise<ResponseFrame | undefined> {
    const { value, done } = await this.#call.next();
    if (done === true) return undefined;
    const { frame }: PushSessionEventsResponse = value;
    this.frames.push(frame);
    return frame;
  }

  /** Waits until the number is acknowledged. */
  async committed(lastClientSeq: bigint | number): Promise<Committed> {
    for (;;) {
      const frame = await this.next();
      if (frame === undefined) throw new Error("the stream ended before");
      if (frame.case === "committed" && frame.value.lastClientSeq >= lastClientSeq)
        return frame.value;
    }
  }

  async refused(): Promise<Refused> {
    const frame = await this.next();
    if (frame?.case !== "refused") throw new Error(`expected refused, got ${frame?.case}`);
    return frame.value;
  }

  /** The frames up to the end, which is OK. */
  async rest(): Promise<readonly ResponseFrame[]> {
    const before = this.frames.length;
    while ((await this.next()) !== undefined);
    return this.frames.slice(before);
  }

  /** The error that ends it. */
  async failure(): Promise<RpcFailure> {
    try {
      await this.rest();
    } catch (error) {
      if (error instanceof RpcFailure) return error;
      throw error;
    }
    throw new Error("the stream ended with OK");
  }
}

/** All rows of a session's events, or all of its raw events. */
export async function eventsOf(
  client: RpcClient,
  sessionId: string,
  { expand }: { readonly expand: boolean } = { expand: false },
): Promise<readonly SessionEvent[]> {
  const all: SessionEvent[] = [];
  for (let afterSeq = 0n; ; ) {
    const request = { sessionId, pageSize: 1_000, afterSeq, expand };
    const { items, nextAfterSeq, hasMore } = await client.unary(listSessionEvents, request);
    all.push(...items);
    if (!hasMore) return all;
    afterSeq = nextAfterSeq;
  }
}

/** Fragments of one message, one for each text. */
export function fragments(texts: readonly string[], messageId = "m1"): RawEventFields[] {
  return texts.map((delta) => ({
    payload: JSON.stringify({ type: "TEXT_MESSAGE_CONTENT", messageId, delta }),
  }));
}

/** An event that merges with no other. */
export function whole(value: unknown): RawEventFields {
  return { payload: JSON.stringify({ type: "CUSTOM", name: "n", value }) };
}
