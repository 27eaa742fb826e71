/**
 * Integers in protobuf's encoding; signed ones with their sign in the lowest bit. An index mostly
 * takes one byte per token, so integers that fit a JavaScript number stay numbers.
 */
const MORE = 0x80;
const SEVEN_BITS = 0x7f;
const UINT32_MAX = 0xffff_ffff;
/** Integers below it, doubled, are still exact in 32-bit arithmetic. */
const SMALL = 2 ** 30;

export class VarintWriter {
  readonly bytes: number[] = [];

  uint32(value: number): void {
    if (!Number.isInteger(value) || value < 0 || value > UINT32_MAX)
      throw new RangeError(`${value} is no unsigned number of 32 bits`);
    let rest = value;
    while (rest >= MORE) {
      this.bytes.push((rest & SEVEN_BITS) | MORE);
      rest >>>= 7;
    }
    this.bytes.push(rest);
  }

  sint64(value: bigint): void {
    const small = Number(value);
    if (small > -SMALL && small < SMALL) {
      this.uint32((small << 1) ^ (small >> 31));
      return;
    }
    if (BigInt.asIntN(64, value) !== value)
      throw new RangeError(`${value} is no signed number of 64 bits`);
    let rest = BigInt.asUintN(64, (value << 1n) ^ (value >> 63n));
    while (rest >= BigInt(MORE)) {
      this.bytes.push(Number(rest & BigInt(SEVEN_BITS)) | MORE);
      rest >>= 7n;
    }
    this.bytes.push(Number(rest));
  }
}

export class VarintReader {
  readonly #bytes: Uint8Array;
  #at: number;
  readonly #end: number;

  constructor(bytes: Uint8Array, { start = 0, end = bytes.length } = {}) {
    this.#bytes = bytes;
    this.#at = start;
    this.#end = end;
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#end;
  }

  uint32(): number {
    const value = this.#varint();
    if (value <= UINT32_MAX) return Number(value);
    throw new RangeError("a number of the fragment index is larger than 32 bits");
  }

  /** A bigint only when a number would be inexact. */
  sint64(): number | bigint {
    const value = this.#varint();
    if (typeof value === "number") return (value >>> 1) ^ -(value & 1);
    return BigInt.asIntN(64, (value >> 1n) ^ -(value & 1n));
  }

  /** Another reader from here on. */
  copy(): VarintReader {
    return new VarintReader(this.#bytes, { start: this.#at, end: this.#end });
  }

  /** The bytes that are not read yet. */
  get rest(): Uint8Array {
    return this.#bytes.subarray(this.#at, this.#end);
  }

  /** A reader for the next `bytes` bytes. */
  part(bytes: number): VarintReader {
    const start = this.#at;
    if (bytes > this.#end - start) throw cutShort();
    this.#at = start + bytes;
    return new VarintReader(this.#bytes, { start, end: this.#at });
  }

  /** A number below 2^28, or a bigint. */
  #varint(): number | bigint {
    let value = 0;
    for (let shift = 0; shift < 28; shift += 7) {
      const byte = this.#byte();
      value |= (byte & SEVEN_BITS) << shift;
      if (byte < MORE) return value;
    }
    let wide = BigInt(value);
    for (let shift = 28n; shift < 70n; shift += 7n) {
      const byte = this.#byte();
      wide |= BigInt(byte & SEVEN_BITS) << shift;
      if (byte < MORE && wide >> 64n === 0n) return wide;
    }
    throw new RangeError("a number of the fragment index is larger than 64 bits");
  }

  #byte(): number {
    const byte = this.#at < this.#end ? this.#bytes[this.#at] : undefined;
    if (byte === undefined) throw cutShort();
    this.#at += 1;
    return byte;
  }
}

function cutShort(): RangeError {
  return new RangeError("the fragment index is cut short");
}
