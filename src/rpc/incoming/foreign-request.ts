import { constants } from "node:http2";
import { Incoming } from "./incoming.ts";
import type { Arrived, RequestParts } from "./one-request.ts";

/** The longest question of health or reflection is a name; a client of reflection asks many. */
const BYTES_MAX = 64 * 1024;

/**
 * The request of a call that is answered by a package, health or reflection. Anybody may make one, so
 * one that is large, or does not end, is cut; a conversation with reflection too, whose client can begin
 * another. What it held is let go with the end of the request: a watch of health may stay for days.
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
