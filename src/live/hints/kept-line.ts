/**
 * Keeps a line of a carrier open: opens it, waits for its loss, opens another, later and later while
 * that fails, for as long as the unit is not stopped.
 *
 *   start ─► open ─► connected ─► lost ─┐
 *              ▲ └── refused ──► lost ──┤
 *              └──────── delay ◄────────┘      stop ─► close, from wherever it is
 *
 * `start` resolves when it is known whether the line can be opened, and never rejects: without one
 * the service works, by the poll.
 */
import { type Backoff, backoffMs } from "../../base/backoff.ts";
import type { Unit } from "../../base/unit.ts";
import type { Carrier, Line } from "./carrier.ts";
import type { Timers } from "../../base/timers.ts";

export interface LineEvents {
  received(text: string): void;
  /** After every opening; what was sent before may not have been heard. */
  connected(): void;
  /** After every loss, and every try that failed. */
  lost(cause: unknown): void;
}

export interface KeptLineParts {
  readonly carrier: Pick<Carrier, "open">;
  readonly events: LineEvents;
  readonly timers: Timers;
}

/** All instances lose a server at the same time, and must not come back to it at the same time. */
const OPEN_RETRY: Backoff = { minMs: 100, maxMs: 5_000 };
/** A line that was lost sooner is no reason to hurry. */
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
    if (!signal.aborted) events.lost(cause); // Before the goodbye, which may take its time.
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
