/**
 * A runner as deployed today: upstream's messages and methods, its own codec (upstream-codec.ts), no
 * channel options, five seconds for a push, and a token that this service may not know.
 */
import {
  type CallOptions,
  Client,
  type ClientReadableStream,
  credentials,
  Metadata,
} from "@grpc/grpc-js";
import {
  decodeEvent,
  decodeMessage,
  encodePushEvent,
  encodePushMessage,
  encodeWatch,
  type PushEvent,
  type PushMessage,
  unknownFields,
  type UpstreamEvent,
  type UpstreamMessage,
  type Watch,
} from "./upstream-codec.ts";

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
