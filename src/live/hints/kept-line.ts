/**
 * Keeps a line of a carrier open until the unit stops: opens a line, waits for its loss, and opens
 * another one. The delay grows while opening fails.
 *
 *   start ─► open ─► connected ─► lost ─┐
 *              ▲ └── refused ──► lost ──┤
 *              └──────── delay ◄────────┘      stop ─► close, from any state
 *
 * `start` resolves after the first try to open a line, and never rejects: without a line the
 * service works by the poll.
 */
import { type Backoff, backoffMs } from "../../base/backoff.ts";
import type { Unit } from "../../base/unit.ts";
import type { Carrier, Line } from "./carrier.ts";
import type { Timers } from "../../base/timers.ts";

interface LineEvents {
  received(text: string): void;
  /** Called after every opening. Texts sent before it may have been lost. */
  connected(): void;
  /** Called after every loss and every failed try. */
  lost(cause: unknown): void;
}

interface KeptLineParts {
  readonly carrier: Pick<Carrier, "open">;
  readonly events: LineEvents;
  readonly timers: Timers;
}

/** All instances lose a server at the same time and must not return to it at the same time. */
const OPEN_RETRY: Backoff = { minMs: 100, maxMs: 5_000 };
/** A line that is lost sooner than this does not reset the delay. */
const STEADY_MS = 10_000;

export class KeptLine implements Unit {
  readonly #parts: KeptLineParts;
  readonly #abort = new AbortController();
  #running: Promise<void> | undefined;
  #endDelay: (() => void) | undefined;

  constructor(parts: KeptLineParts) {
    this.#parts = parts;
  }

  async start(): Promise<void> {
    const { promise: known, resolve } = Promise.withResolvers<void>();
    this.#running ??= this.#run(resolve);
    await known;
  }

  async stop(): Promise<void> {
    this.#abort.abort(new Error("the line was stopped"));
    this.#endDelay?.();
    await this.#running;
  }

  async #run(known: () => void): Promise<void> {
    const { signal } = this.#abort;
    for (let failures = 0; !signal.aborted; failures += 1) {
      const line = await this.#open();
      known();
      if (line !== undefined) {
        let isSteady = false;
        const cancel = this.#parts.timers.after(STEADY_MS, () => (isSteady = true));
        await this.#untilLost(line);
        cancel();
        if (isSteady) failures = 0;
      }
      if (!signal.aborted) await this.#delay(backoffMs(OPEN_RETRY, failures, Math.random()));
    }
    known();
  }

  async #open(): Promise<Line | undefined> {
    const { carrier, events } = this.#parts;
    const { signal } = this.#abort;
    const received = (text: string): void => {
      if (!signal.aborted) events.received(text);
    };
    try {
      return await carrier.open(received, signal);
    } catch (error) {
      if (!signal.aborted) events.lost(error);
      return undefined;
    }
  }

  async #untilLost(line: Line): Promise<void> {
    const { events } = this.#parts;
    const { signal } = this.#abort;
    const close = (): void => void line.close();
    signal.addEventListener("abort", close, { once: true });
    if (signal.aborted) close();
    else events.connected();
    const cause = await line.lost;
    signal.removeEventListener("abort", close);
    if (!signal.aborted) events.lost(cause); // Reported before the close, which may take long.
    await line.close();
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
