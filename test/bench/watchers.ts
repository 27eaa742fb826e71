/** Many watchers of events, run by a thread; see watchers-worker.ts. */
import { Worker } from "node:worker_threads";
import type { Bench } from "./bench.ts";

/** How a watcher reads: as it comes, not at all for a while, or slowly until it is told to hurry. */
export type Pace =
  | "fast"
  | { readonly kind: "stops"; readonly forMs: number }
  | { readonly kind: "sips"; readonly bytesPerSecond: number };

export type Command =
  | {
      readonly kind: "attach";
      readonly address: string;
      /** One watcher each. */
      readonly sessionIds: readonly string[];
      readonly connections: number;
      readonly pace: Pace;
      readonly timed: boolean;
    }
  | { readonly kind: "await"; readonly rowsEach: number }
  | { readonly kind: "fast" }
  | { readonly kind: "reset" }
  | { readonly kind: "close" };

export type Answer = { readonly kind: "attached" } | ({ readonly kind: "complete" } & Delivered);

export interface Delivered {
  /** Of all watchers. */
  readonly rows: number;
  readonly firstMs: number;
  readonly lastMs: number;
  /** Of every row that says when it was sent. */
  readonly tookMs: readonly number[];
}

export class Watchers {
  readonly #worker: Worker;
  readonly #signal: AbortSignal;

  constructor(bench: Bench) {
    this.#worker = new Worker(new URL("./watchers-worker.ts", import.meta.url));
    this.#signal = bench.signal;
    bench.undo.defer(async () => {
      await this.#worker.terminate();
    });
  }

  /** Resolves when the service has taken every watch. */
  async attach(attach: Omit<Extract<Command, { kind: "attach" }>, "kind">): Promise<void> {
    await this.#ask({ kind: "attach", ...attach });
  }

  /** Resolves when every watcher has seen this number of rows since the last reset. */
  async complete(rowsEach: number): Promise<Delivered> {
    const answer = await this.#ask({ kind: "await", rowsEach });
    if (answer.kind !== "complete") throw new Error("the watchers lost count");
    return answer;
  }

  /** Slow ones read as fast as they can from here on. */
  hurry(): void {
    this.#worker.postMessage({ kind: "fast" } satisfies Command);
  }

  async reset(): Promise<void> {
    await this.#ask({ kind: "reset" });
  }

  async close(): Promise<void> {
    await this.#ask({ kind: "close" });
  }

  #ask(command: Command): Promise<Answer> {
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    const abort = (): void => reject(this.#signal.reason);
    this.#signal.addEventListener("abort", abort, { once: true });
    this.#worker.once("error", reject);
    this.#worker.once("message", resolve);
    this.#worker.postMessage(command);
    return promise.finally(() => {
      this.#signal.removeEventListener("abort", abort);
      this.#worker.off("error", reject);
    });
  }
}
