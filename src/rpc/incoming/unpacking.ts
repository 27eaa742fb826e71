import { gunzip, inflate } from "node:zlib";
import { invalidArgument, ServiceError } from "../../base/errors.ts";
import type { Encoding } from "./request-headers.ts";

/**
 * Requests that are decompressed at once. Four kilobytes can become as many megabytes, so
 * decompression takes at most this number times the largest request; and two of libuv's four
 * threads stay free for other work.
 */
const AT_ONCE_MAX = 2;

const UNPACK = { gzip: gunzip, deflate: inflate } as const satisfies Record<
  Encoding,
  typeof gunzip
>;

export interface Packed {
  readonly bytes: Buffer;
  readonly encoding: Encoding;
  /** True when no caller waits for the message any more. */
  readonly isUnwanted: () => boolean;
  readonly done: (unpacked: Buffer) => void;
  readonly failed: (error: ServiceError) => void;
}

/**
 * Decompresses messages in the order of their arrival, a few at a time; the others wait compressed.
 */
export class Unpacking {
  readonly #bytesMax: number;
  readonly #waiting: Packed[] = [];
  #running = 0;

  /** `bytesMax` is the limit of one message. */
  constructor({ bytesMax }: { readonly bytesMax: number }) {
    this.#bytesMax = bytesMax;
  }

  unpack(packed: Packed): void {
    this.#waiting.push(packed); // Each entry belongs to a different call, and calls are limited.
    this.#next();
  }

  #next(): void {
    while (this.#running < AT_ONCE_MAX) {
      const packed = this.#waiting.shift();
      if (packed === undefined) return;
      if (!packed.isUnwanted()) this.#run(packed);
    }
  }

  #run(packed: Packed): void {
    this.#running += 1;
    const options = { maxOutputLength: this.#bytesMax };
    UNPACK[packed.encoding](packed.bytes, options, (error, unpacked) => {
      this.#running -= 1;
      this.#next();
      if (packed.isUnwanted()) return;
      if (error === null) packed.done(unpacked);
      else packed.failed(this.#refusal(error));
    });
  }

  #refusal(error: NodeJS.ErrnoException): ServiceError {
    if (error.code === "ERR_BUFFER_TOO_LARGE") {
      const message = `the request decompresses to more than ${this.#bytesMax} bytes`;
      return new ServiceError("overloaded", "REQUEST_TOO_LARGE", message);
    }
    return invalidArgument([
      { field: "", description: "the request cannot be decompressed by its grpc-encoding" },
    ]);
  }
}
