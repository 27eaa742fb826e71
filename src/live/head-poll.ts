/**
 * The backstop of all wake-ups: asks where the watched sessions stand, all in one query, again and
 * again while anything is watched. What it finds is a hint like any other, and it is how a deletion
 * by another replica is noticed. It never asks twice at once.
 */
import type { Log } from "../observability/log.ts";
import type { SessionHead } from "../store/rows.ts";
import type { Reads } from "./reads.ts";
import type { Timers } from "./timers.ts";

/** What is watched, and who hears of it. */
export interface Watched {
  sessionIds(): readonly string[];
  hinted(sessionId: string, head: SessionHead): void;
  /** Whether the poll is `failing` has changed. */
  pollTurned(): void;
}

export interface HeadPollParts {
  readonly reads: Reads;
  readonly timers: Timers;
  readonly log: Log;
  readonly watched: Watched;
}

export class HeadPoll {
  readonly #parts: HeadPollParts;
  readonly #intervalMs: number;
  #cancel: (() => void) | undefined;
  #polling = false;
  #again = false;
  #stopped = false;
  #failing = false;

  constructor(parts: HeadPollParts, limits: { readonly headPollIntervalMs: number }) {
    this.#parts = parts;
    this.#intervalMs = limits.headPollIntervalMs;
  }

  /** The last poll failed: what other replicas commit is not seen at present. */
  get failing(): boolean {
    return this.#failing;
  }

  /** Something is watched: polls from now on, until nothing is. */
  keepGoing(): void {
    if (this.#stopped || this.#polling || this.#cancel !== undefined) return;
    this.#cancel = this.#parts.timers.after(this.#intervalMs, () => this.now());
  }

  /** Polls at once; once more if it polls already, because that one may have looked too early. */
  now(): void {
    if (this.#stopped) return;
    this.#again = true;
    if (!this.#polling) void this.#poll();
  }

  stop(): void {
    this.#stopped = true;
    this.#cancel?.();
    this.#cancel = undefined;
  }

  async #poll(): Promise<void> {
    this.#cancel?.();
    this.#cancel = undefined;
    this.#polling = true;
    while (this.#again && !this.#stopped) {
      this.#again = false;
      const sessionIds = this.#parts.watched.sessionIds();
      if (sessionIds.length > 0) await this.#ask(sessionIds);
    }
    this.#polling = false;
    if (this.#parts.watched.sessionIds().length > 0) this.keepGoing();
  }

  async #ask(sessionIds: readonly string[]): Promise<void> {
    try {
      const heads = await this.#parts.reads.heads(sessionIds);
      for (const [sessionId, head] of heads) this.#parts.watched.hinted(sessionId, head);
      this.reached();
    } catch (error) {
      if (this.#stopped) return;
      if (!this.#failing) this.#parts.log.warn({ err: error }, "live poll failed");
      this.#turn(true);
    }
  }

  /** The heads could be read, by this poll or by somebody else. */
  reached(): void {
    this.#turn(false);
  }

  #turn(failing: boolean): void {
    if (failing === this.#failing) return;
    this.#failing = failing;
    if (!failing) this.#parts.log.info({}, "live poll recovered");
    this.#parts.watched.pollTurned();
  }
}
