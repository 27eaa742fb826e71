import type { IncomingHttpHeaders } from "node:http2";

/** Encodings of a message that the server unpacks itself; see unpacking.ts. */
export type Encoding = "gzip" | "deflate";

const AUTHORIZATION = "authorization";
const ENCODING = "grpc-encoding";

/**
 * Puts the headers of a call right before grpc-js reads them, and answers how its messages are packed.
 *
 * Node keeps the first of several `authorization` and nobody sees the others: here they become the list
 * that they are, which grpc-js hands on. Of messages that are packed grpc-js unpacks as many at a time
 * as come, up to the largest request each: it is told that they are not, and hands on the bytes.
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
 * Whether a message came packed: grpc-js gives a view of the frame, and the flag of the frame stands
 * five bytes before the message (test/e2e/rpc-requests.test.ts has one of each in one call).
 */
export function isPacked(message: Buffer): boolean {
  return new Uint8Array(message.buffer, message.byteOffset - FRAME_HEAD_BYTES, 1)[0] === 1;
}

/** The flag, and the length of the message. */
export const FRAME_HEAD_BYTES = 5;
