/** A body of lines that a test sends as it likes, and the answer to it. */
import { type ClientRequest, type IncomingMessage, request } from "node:http";
import { text } from "node:stream/consumers";

export interface UploadAnswer {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  /** The body, parsed. */
  readonly told: Readonly<Record<string, unknown>>;
}

export class LinesUpload {
  /** Rejects when the connection ends without an answer. */
  readonly answer: Promise<UploadAnswer>;
  readonly #request: ClientRequest;

  constructor(address: string, path: string, headers: Readonly<Record<string, string>> = {}) {
    this.#request = request(`http://${address}${path}`, {
      method: "POST",
      agent: false,
      headers: { "content-type": "application/x-ndjson", ...headers },
    });
    this.answer = this.#answer();
    this.answer.catch(() => undefined); // A test that kills the upload does not wait for it.
    this.#request.flushHeaders();
  }

  async #answer(): Promise<UploadAnswer> {
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    this.#request.once("error", reject).once("response", resolve);
    const response = await promise;
    const told = { ...Object(JSON.parse(await text(response))) };
    return { status: response.statusCode ?? 0, headers: response.headers, told };
  }

  /** Sends bytes unchanged. */
  write(bytes: string | Uint8Array): void {
    this.#request.write(bytes);
  }

  line(...events: readonly object[]): void {
    this.write(events.map((event) => `${JSON.stringify(event)}\n`).join(""));
  }

  end(): Promise<UploadAnswer> {
    this.#request.end();
    return this.answer;
  }

  /** As a host that dies. */
  kill(): void {
    this.#request.destroy();
  }
}
