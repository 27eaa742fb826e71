/**
 * Keeps a connection open until the unit stops: opens one, waits for its loss, and opens another
 * one. The delay grows while opening fails.
 *
 *   start ─► open ─► connected ─► lost ─┐
 *              ▲ └── refused ──► lost ──┤
 *              └──────── delay ◄────────┘      stop ─► close, from any state
 *
 * `start` resolves after the first try: without a connection the service works by the poll. It
 * rejects only for a setting that is wrong.
 */
import { type Backoff, backoffMs } from "@session-ledger/base/backoff";
import { ServiceError } from "@session-ledger/base/errors";
import type { Unit } from "../../base/unit.ts";
import type { Timers } from "@session-ledger/base/timers";
import type { ListenerConnection } from "../../store/listen.ts";
import type { Receiver, Transport } from "./transport.ts";

interface ConnectionParts {
  readonly transport: Pick<Transport, "open">;
  readonly timers: Timers;
  /** Asked for each connection. */
  readonly receiver: () => Receiver;
  /** Texts that were sent before may have been lost. */
  onOpen(): void;
  /** Called after every loss and every failed try. */
  onLoss(cause: unknown): void;
}

/** All instances lose a server at the same time and must not return to it at the same time. */
const OPEN_RETRY: Backoff = { minMs: 100, maxMs: 1_000 };
/** A connection that is lost sooner than this does not reset the delay. */
const STEADY_MS = 10_000;

export class ReconnectingConnection implements Unit {
  readonly #parts: ConnectionParts;
  readonly #abort = new AbortController();
  #running: Promise<void> | undefined;
  #endDelay: (() => void) | undefined;
  /** The open connection. */
  current: ListenerConnection | undefined;

  constructor(parts: ConnectionParts) {
    this.#parts = parts;
  }

  async start(): Promise<void> {
    const tried = Promise.withResolvers<void>();
    this.#running ??= this.#run(tried);
    await tried.promise;
  }

  async stop(): Promise<void> {
    this.#abort.abort(new Error("the connection was stopped"));
    this.#endDelay?.();
    await this.#running;
  }

  async #run(tried: PromiseWithResolvers<void>): Promise<void> {
    const { signal } = this.#abort;
    for (let failures = 0; !signal.aborted; failures += 1) {
      const connection = await this.#open(tried);
      tried.resolve();
      if (connection !== undefined) {
        let isSteady = false;
        const cancel = this.#parts.timers.after(STEADY_MS, () => (isSteady = true));
        await this.#untilLost(connection);
        cancel();
        if (isSteady) failures = 0;
      }
      if (!signal.aborted) await this.#delay(backoffMs(OPEN_RETRY, failures, Math.random()));
    }
    tried.resolve();
  }

  async #open(tried: PromiseWithResolvers<void>): Promise<ListenerConnection | undefined> {
    const { signal } = this.#abort;
    try {
      return await this.#parts.transport.open(this.#parts.receiver(), signal);
    } catch (error) {
      if (error instanceof ServiceError && error.code === "invalid_argument") tried.reject(error);
      if (!signal.aborted) this.#parts.onLoss(error);
      return undefined;
    }
  }

  async #untilLost(connection: ListenerConnection): Promise<void> {
    const { signal } = this.#abort;
    const close = (): void => void connection.close();
    signal.addEventListener("abort", close, { once: true });
    this.current = connection;
    if (signal.aborted) close();
    else this.#parts.onOpen();
    const cause = await connection.lost;
    this.current = undefined;
    signal.removeEventListener("abort", close);
    if (!signal.aborted) this.#parts.onLoss(cause); // Reported before the close, which may take long.
    await connection.close();
  }

  #delay(delayMs: number): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.#parts.timers.after(delayMs, resolve);
      this.#endDelay = () => {
        cancel();
        resolve();
      };
    });
  }
}
