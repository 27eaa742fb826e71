/** gRPC's framing, for load generators that read and write it themselves. */
const FRAME_HEAD_BYTES = 5;

/** A message behind its flag and length. */
export function framed(message: Uint8Array): Buffer {
  const body = Buffer.alloc(FRAME_HEAD_BYTES + message.length);
  body.writeUInt32BE(message.length, 1);
  body.set(message, FRAME_HEAD_BYTES);
  return body;
}

/** Cuts what comes into messages, wherever it was cut on the way. */
export function messageCutter(each: (message: Buffer) => void): (chunk: Buffer) => void {
  let rest: Buffer = Buffer.alloc(0);
  return (chunk) => {
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    let at = 0;
    while (rest.length - at >= FRAME_HEAD_BYTES) {
      const end = at + FRAME_HEAD_BYTES + rest.readUInt32BE(at + 1);
      if (end > rest.length) break;
      each(rest.subarray(at + FRAME_HEAD_BYTES, end));
      at = end;
    }
    rest = rest.subarray(at);
  };
}
