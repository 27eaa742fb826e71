/** gRPC's framing, for load generators that read and write it themselves. */
const FRAME_HEAD_BYTES = 5;

/** A message behind its flag and length. */
export function framed(message: Uint8Array): Buffer {
  const body = Buffer.alloc(FRAME_HEAD_BYTES + message.length);
  body.writeUInt32BE(message.length, 1);
  body.set(message, FRAME_HEAD_BYTES);
  return body;
}

/**
 * Cuts what comes into messages, wherever it was cut on the way. The chunks of a message are put together
 * once: with each chunk, the client took a third of the time of a page of 700 kB.
 */
export function messageCutter(each: (message: Buffer) => void): (chunk: Buffer) => void {
  let waiting: Buffer[] = [];
  let bytes = 0;
  let neededBytes = FRAME_HEAD_BYTES;
  return (chunk) => {
    waiting.push(chunk);
    bytes += chunk.length;
    if (bytes < neededBytes) return;
    const all = waiting.length === 1 ? chunk : Buffer.concat(waiting, bytes);
    let at = 0;
    neededBytes = FRAME_HEAD_BYTES;
    while (all.length - at >= FRAME_HEAD_BYTES) {
      const end = at + FRAME_HEAD_BYTES + all.readUInt32BE(at + 1);
      neededBytes = end - at;
      if (end > all.length) break;
      each(all.subarray(at + FRAME_HEAD_BYTES, end));
      neededBytes = FRAME_HEAD_BYTES;
      at = end;
    }
    waiting = at === all.length ? [] : [all.subarray(at)];
    bytes = all.length - at;
  };
}
