import { connect, constants, type IncomingHttpHeaders } from "node:http2";
import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";
import { StatusSchema } from "../../gen/google/rpc/status_pb.ts";

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
  const session = connect(`http://${address}`);
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
