/**
 * Lines as bytes. They are cut before anything is decoded, so a character that came in two chunks
 * stays one character; LF cannot be a part of another in UTF-8. What is held is one line and one
 * chunk: a longer line is let go of as it comes, and only its number is told.
 */
export interface Line {
  /** From 1, as editors count. */
  readonly number: number;
  /** The line without its end (LF or CR LF); undefined when it was too long. */
  readonly bytes: Buffer | undefined;
  /** How many bytes of the input are done with after this line. */
  readonly endByte: number;
}

export async function* readLines(
  chunks: AsyncIterable<Uint8Array>,
  { bytesMax }: { readonly bytesMax: number },
): AsyncGenerator<Line, void, undefined> {
  let number = 0;
  let endByte = 0;
  let pieces: Uint8Array[] = [];
  let held = 0;
  let isTooLong = false;

  const hold = (piece: Uint8Array): void => {
    endByte += piece.length;
    held += piece.length;
    isTooLong ||= held > bytesMax + 1; // A CR at the end does not count.
    if (isTooLong) pieces = [];
    else pieces.push(piece);
  };
  const close = (): Line => {
    const bytes = isTooLong ? undefined : withoutReturn(Buffer.concat(pieces, held));
    number += 1;
    pieces = [];
    held = 0;
    isTooLong = false;
    return {
      number,
      bytes: bytes !== undefined && bytes.length > bytesMax ? undefined : bytes,
      endByte,
    };
  };

  for await (const chunk of chunks) {
    let start = 0;
    for (;;) {
      const end = chunk.indexOf(LF, start);
      if (end === -1) break;
      hold(chunk.subarray(start, end));
      endByte += 1;
      yield close();
      start = end + 1;
    }
    if (start < chunk.length) hold(chunk.subarray(start));
  }
  if (held > 0) yield close(); // The last line needs no end.
}

const LF = 0x0a;
const CR = 0x0d;

function withoutReturn(bytes: Buffer): Buffer {
  return bytes.at(-1) === CR ? bytes.subarray(0, -1) : bytes;
}
