import { promisify } from "node:util";
import { gunzip, inflate } from "node:zlib";
import { ServiceError } from "@session-ledger/base/errors";
import { Semaphore } from "../base/semaphore.ts";
import { HEAD_BYTES } from "./incoming.ts";
import { notDecompressed } from "./status.ts";

/** Message encodings that the server decompresses itself. */
export type Encoding = keyof typeof DECOMPRESS;

/**
 * grpc-js gives a view of the frame, whose flag is five bytes before the message
 * (test/e2e/rpc-requests.test.ts).
 */
export function isCompressed(message: Buffer): boolean {
  return new Uint8Array(message.buffer, message.byteOffset - HEAD_BYTES, 1)[0] === 1;
}

/**
 * Requests that are decompressed at once: four kilobytes can become as many megabytes, and two of
 * libuv's four threads stay free. grpc-js would decompress the messages of all calls at once.
 */
const DECOMPRESSED_AT_ONCE = 2;

const DECOMPRESS = { gzip: promisify(gunzip), deflate: promisify(inflate) };

interface DecompressingCall {
  readonly hasEnded: boolean;
  fail(error: ServiceError): void;
}

/** Decompresses messages in the order of their arrival; the others wait compressed. */
export class Decompressor {
  readonly #bytesMax: number;
  // Each waiting message belongs to a different call, and calls are limited.
  readonly #slots = new Semaphore({ atOnce: DECOMPRESSED_AT_ONCE });

  /** `bytesMax` is the limit of one message. */
  constructor({ bytesMax }: { readonly bytesMax: number }) {
    this.#bytesMax = bytesMax;
  }

  /** Calls `done`, unless the call has ended; fails the call when the message is broken. */
  async decompress(
    message: Buffer,
    { encoding, call }: { readonly encoding: Encoding; readonly call: DecompressingCall },
    done: (decompressed: Buffer) => void,
  ): Promise<void> {
    const decompressed = await this.#slots.run(async () => {
      if (call.hasEnded) return undefined;
      try {
        return await DECOMPRESS[encoding](message, { maxOutputLength: this.#bytesMax });
      } catch (error) {
        return call.fail(this.#refusal(error));
      }
    });
    if (decompressed !== undefined && !call.hasEnded) done(decompressed);
  }

  #refusal(error: unknown): ServiceError {
    if (error instanceof Error && "code" in error && error.code === "ERR_BUFFER_TOO_LARGE") {
      const message = `the request decompresses to more than ${this.#bytesMax} bytes`;
      return new ServiceError("overloaded", "REQUEST_TOO_LARGE", message);
    }
    return notDecompressed();
  }
}
