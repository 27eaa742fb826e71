import type { IncomingHttpHeaders } from "node:http2";

/** Message encodings that the server decompresses itself; see unpacking.ts. */
export type Encoding = "gzip" | "deflate";

const AUTHORIZATION = "authorization";
const ENCODING = "grpc-encoding";

/**
 * Corrects the headers of a call before grpc-js reads them, and returns the compression of its
 * messages.
 *
 * Node keeps the first of several `authorization` headers and drops the others. Here they become a
 * list, which grpc-js passes on. grpc-js decompresses any number of messages at once, each up to
 * the largest request. So the headers tell it that the messages are not compressed, and it passes
 * on the bytes.
 */
export function preparedHeaders(
  headers: IncomingHttpHeaders,
  rawHeaders: readonly string[],
): Encoding | undefined {
  let values: string[] | undefined;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    if (rawHeaders[at] !== AUTHORIZATION) continue;
    const value = rawHeaders[at + 1] ?? "";
    if (values === undefined) values = [value];
    else if (!values.includes(value)) values.push(value);
  }
  if (values !== undefined && values.length > 1) Reflect.set(headers, AUTHORIZATION, values);
  const encoding = headers[ENCODING];
  if (encoding !== "gzip" && encoding !== "deflate") return undefined;
  headers[ENCODING] = "identity";
  return encoding;
}

/**
 * Whether a message arrived compressed: grpc-js gives a view of the frame, and the flag of the
 * frame is five bytes before the message (test/e2e/rpc-requests.test.ts has one of each in one
 * call).
 */
export function isPacked(message: Buffer): boolean {
  return new Uint8Array(message.buffer, message.byteOffset - FRAME_HEAD_BYTES, 1)[0] === 1;
}

/** The flag, and the length of the message. */
export const FRAME_HEAD_BYTES = 5;
