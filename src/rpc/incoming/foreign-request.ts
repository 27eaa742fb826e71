import { constants } from "node:http2";
import { Incoming } from "./incoming.ts";
import type { Arrived, RequestParts } from "./one-request.ts";

/** The longest question to health or reflection is a name; a reflection client asks many. */
const BYTES_MAX = 64 * 1024;

/**
 * The request of a call that a package answers: health or reflection. Anyone may make such a call,
 * so a request that is large, or does not end, is cut; so is a long conversation with reflection,
 * whose client can begin another. The memory of the request is freed at its end: a watch of health
 * may stay for days.
 */
export class ForeignRequest {
  readonly #incoming: Incoming;
  #bytes = 0;

  constructor(parts: RequestParts, { stream }: Arrived) {
    this.#incoming = new Incoming(parts, stream, {
      came: (chunk) => this.#came(chunk),
      ended: () => {
        parts.arriving.requests.end(this);
        this.#incoming.memory.release();
      },
      cut: () => stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM),
    });
    parts.arriving.requests.begin(this);
    stream.once("close", () => {
      parts.arriving.requests.end(this);
      this.#incoming.memory.release();
    });
  }

  late(): void {
    this.#incoming.stream.close(constants.NGHTTP2_CANCEL);
  }

  #came(chunk: Buffer): boolean {
    this.#bytes += chunk.length;
    if (this.#bytes <= BYTES_MAX) return true;
    this.#incoming.stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    return false;
  }
}
