/** Followers of a session over HTTP: an EventSource that records its events, and a raw socket. */
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { ErrorEvent, EventSource } from "eventsource";
import { eventually } from "./eventually.ts";

export const API = "/api/ambient/v1";

export interface Given {
  readonly id: string;
  readonly data: string;
}

/** Reconnects by itself when it loses the stream, as a page in a browser does. */
export class Following {
  /** Events without a name. */
  readonly given: Given[] = [];
  /** Events with a name. */
  readonly named: (Given & { readonly name: string })[] = [];
  /** The number of accepted connections. */
  opened = 0;
  /** The status of its last refusal. */
  refusedWith: number | undefined;
  readonly #source: EventSource;

  constructor(url: string) {
    this.#source = new EventSource(url);
    this.#source.addEventListener("open", () => (this.opened += 1));
    this.#source.addEventListener("message", ({ data, lastEventId: id }) => {
      this.given.push({ id, data: String(data) });
    });
    for (const name of ["error", "watch_state"]) {
      this.#source.addEventListener(name, (event: Event) => {
        if (event instanceof MessageEvent) {
          this.named.push({ name, data: String(event.data), id: event.lastEventId });
        } else if (event instanceof ErrorEvent) {
          this.refusedWith = event.code;
        }
      });
    }
  }

  get ids(): readonly string[] {
    return this.given.map(({ id }) => id);
  }

  /** True after it has given up. */
  get isClosed(): boolean {
    return this.#source.readyState === this.#source.CLOSED;
  }

  async untilOpened(times = 1): Promise<void> {
    await eventually(() => {
      if (this.opened < times) throw new Error(`opened ${this.opened} of ${times} times`);
    });
  }

  async until(count: number): Promise<void> {
    await eventually(() => {
      if (this.given.length < count) throw new Error(`${this.given.length} of ${count} events`);
    });
  }

  close(): void {
    this.#source.close();
  }
}

/** A request on a raw socket, of which nothing is read at first. */
export async function ask(
  address: string,
  path: string,
  { version = "1.1", headers = [] as readonly string[] } = {},
): Promise<Socket> {
  const url = new URL(`http://${address}`);
  const socket = connect(Number(url.port), url.hostname);
  await once(socket, "connect");
  socket.on("error", () => undefined);
  const lines = [`GET ${path} HTTP/${version}`, `Host: ${address}`, ...headers, "", ""];
  socket.write(lines.join("\r\n"));
  return socket;
}
