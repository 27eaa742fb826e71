/** Raw HTTP/2, for frames that no client would send: RFC 9113, and literals of RFC 7541 for headers. */
import { connect, type Socket } from "node:net";
import { connect as connectTls, type TLSSocket } from "node:tls";
import { connect as connectHttp2, constants, type IncomingHttpHeaders } from "node:http2";
import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { ErrorInfoSchema } from "@session-ledger/proto/google/rpc/error_details_pb";
import { StatusSchema } from "@session-ledger/proto/google/rpc/status_pb";

export const FRAME = {
  data: 0,
  headers: 1,
  reset: 3,
  settings: 4,
  ping: 6,
  goAway: 7,
  windowUpdate: 8,
  continuation: 9,
} as const;

export const FLAG = { ack: 1, endStream: 1, endHeaders: 4 } as const;

export const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "latin1");
const HEAD_BYTES = 9;

export interface FrameHead {
  readonly type: number;
  readonly flags?: number;
  readonly stream?: number;
}

export interface ReceivedFrame {
  readonly type: number;
  readonly flags: number;
  readonly stream: number;
  readonly payload: Buffer;
}

export function http2Frame(
  { type, flags = 0, stream = 0 }: FrameHead,
  payload: Buffer = NOTHING,
): Buffer {
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

const NOTHING = Buffer.alloc(0);

/** Names and values in plain text, each a literal outside of the table. */
export function headerBlock(headers: readonly (readonly [string, string])[]): Buffer {
  return Buffer.concat(
    headers.map(([name, value]) => Buffer.concat([LITERAL, text(name), text(value)])),
  );
}

const LITERAL = Buffer.from([0]);

/** The length in seven bits, or those full and the rest in groups of seven. */
function text(value: string): Buffer {
  const bytes = Buffer.from(value, "latin1");
  if (bytes.length < 127) return Buffer.concat([Buffer.from([bytes.length]), bytes]);
  const length = [127];
  let rest = bytes.length - 127;
  for (; rest >= 128; rest >>= 7) length.push((rest & 127) | 128);
  return Buffer.concat([Buffer.from([...length, rest]), bytes]);
}

export function callHeaders(
  path: string,
  more: readonly (readonly [string, string])[] = [],
): Buffer {
  return headerBlock([
    [":method", "POST"],
    [":scheme", "http"],
    [":path", path],
    [":authority", "localhost"],
    ["content-type", "application/grpc"],
    ["te", "trailers"],
    ...more,
  ]);
}

/** A connection that sends given frames and reads all others; it answers nothing by itself. */
export class RawConnection implements Disposable {
  readonly socket: Socket;
  readonly frames: ReceivedFrame[] = [];
  /** Resolves when either end has closed it. */
  readonly closed: Promise<void>;
  #rest: Buffer = NOTHING;
  #came = Promise.withResolvers<void>();

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.on("error", () => undefined);
    socket.on("data", (chunk) => this.#read(chunk));
    this.closed = new Promise((resolve) => {
      socket.once("close", () => {
        this.#came.resolve();
        resolve();
      });
    });
  }

  static async to(address: string, tls?: { readonly ca: string }): Promise<RawConnection> {
    const [host = "", port] = address.split(":");
    const socket: Socket | TLSSocket =
      tls === undefined
        ? connect({ host, port: Number(port) })
        : connectTls({ host, port: Number(port), ca: tls.ca, ALPNProtocols: ["h2"] });
    await new Promise<void>((resolve, reject) => {
      socket.once(tls === undefined ? "connect" : "secureConnect", resolve);
      socket.once("error", reject);
    });
    return new RawConnection(socket);
  }

  /** The preface and empty SETTINGS of a client. */
  begin(): this {
    this.write(PREFACE, http2Frame({ type: FRAME.settings }));
    return this;
  }

  /** False: the other end reads too slowly. */
  write(...chunks: readonly Buffer[]): boolean {
    if (this.socket.destroyed) return false;
    return this.socket.write(Buffer.concat(chunks));
  }

  /** The first matching frame, also an earlier one; undefined: the connection ended before. */
  async frame(fits: (frame: ReceivedFrame) => boolean): Promise<ReceivedFrame | undefined> {
    for (;;) {
      const found = this.frames.find(fits);
      if (found !== undefined || this.socket.destroyed) return found;
      await this.#came.promise;
    }
  }

  [Symbol.dispose](): void {
    this.socket.destroy();
  }

  #read(chunk: Buffer): void {
    let bytes = Buffer.concat([this.#rest, chunk]);
    while (bytes.length >= HEAD_BYTES) {
      const end = HEAD_BYTES + bytes.readUIntBE(0, 3);
      if (bytes.length < end) break;
      this.frames.push({
        type: bytes.readUInt8(3),
        flags: bytes.readUInt8(4),
        stream: bytes.readUInt32BE(5),
        payload: bytes.subarray(HEAD_BYTES, end),
      });
      bytes = bytes.subarray(end);
    }
    this.#rest = bytes;
    this.#came.resolve();
    this.#came = Promise.withResolvers();
  }
}

/** One frame of gRPC over HTTP/2: the compressed flag, the length, the message. */
export function frame(message: Uint8Array, isCompressed = false): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt8(isCompressed ? 1 : 0, 0);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}

export interface RawAnswer {
  /** gRPC's number of the status. */
  readonly status: number;
  readonly message: string;
  readonly reason: string | undefined;
  readonly body: Buffer;
}

/** A call in raw bytes, for calls that no gRPC client would make. */
export async function rawCall(
  address: string,
  call: {
    readonly path: string;
    readonly body: Uint8Array;
    readonly headers?: Readonly<Record<string, string>>;
  },
): Promise<RawAnswer> {
  const session = connectHttp2(`http://${address}`);
  try {
    const stream = session.request({
      [constants.HTTP2_HEADER_METHOD]: "POST",
      [constants.HTTP2_HEADER_PATH]: call.path,
      [constants.HTTP2_HEADER_CONTENT_TYPE]: "application/grpc",
      [constants.HTTP2_HEADER_TE]: "trailers",
      ...call.headers,
    });
    let last: IncomingHttpHeaders = {};
    stream.on("response", (headers) => {
      last = headers;
    });
    stream.on("trailers", (trailers) => {
      last = trailers;
    });
    stream.end(call.body);
    const body: Buffer[] = [];
    for await (const chunk of stream) body.push(chunk);
    const details = last["grpc-status-details-bin"];
    const status =
      typeof details === "string"
        ? fromBinary(StatusSchema, Buffer.from(details, "base64"))
        : undefined;
    return {
      status: Number(last["grpc-status"]),
      message: decodeURI(String(last["grpc-message"])),
      reason: status?.details.map((any) => anyUnpack(any, ErrorInfoSchema)?.reason).find(Boolean),
      body: Buffer.concat(body),
    };
  } finally {
    session.close();
  }
}
