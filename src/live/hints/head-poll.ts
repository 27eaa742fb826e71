/**
 * The backstop of all wake-ups. While any session is watched, the poll reads the heads of all
 * watched sessions in one query, at an interval. The poll also finds deletions by other replicas.
 * Two polls never run at the same time.
 *
 * `isLate` is true while rows of other replicas arrive late. It is set when the last poll failed.
 * It is also true from the loss of the hints until the hints are back and a poll that began after
 * that has found the rows of the gap.
 *
 *   live ── onHintsLost ──► lost ── onHintsRestored ──► restored ── a poll begins ──► polling
 *    ▲                       ▲                             ▲                            │ │
 *    │                       └── onHintsLost, whenever     └──── onHintsRestored ────────┘ │
 *    └─────────────────────────────────── a poll is answered ─────────────────────────────┘
 */
import type { ServiceError } from "@session-ledger/base/errors";
import { defectOf } from "../../store/failure.ts";
import type { Log } from "../../observability/log.ts";
import type { Timers } from "@session-ledger/base/timers";

/** The watched sessions and their watchers. */
export interface WatchedSessions {
  sessionIds(): readonly string[];
  /** Reads the heads of these sessions and wakes their watchers. */
  look(sessionIds: readonly string[]): Promise<void>;
  /** Called when the poll's `isLate` has changed. */
  onLatenessChange(): void;
  /** The heads cannot be read, and another try would not mend it. */
  onDefect(defect: ServiceError): void;
}

type Hints = "live" | "lost" | "restored" | "polling";

interface HeadPollParts {
  readonly timers: Timers;
  readonly log: Log;
  readonly watched: WatchedSessions;
}

export class HeadPoll {
  readonly #parts: HeadPollParts;
  readonly #intervalMs: number;
  #cancel: (() => void) | undefined;
  #polling = false;
  #again = false;
  #stopped = false;
  #failing = false;
  /** Without other hints the poll is the usual way, so it does not count as late at first. */
  #hints: Hints = "live";

  constructor(parts: HeadPollParts, limits: { readonly headPollIntervalMs: number }) {
    this.#parts = parts;
    this.#intervalMs = limits.headPollIntervalMs;
  }

  get isLate(): boolean {
    return this.#failing || this.#hints !== "live";
  }

  onHintsLost(): void {
    this.#set({ hints: "lost" });
    this.now();
  }

  onHintsRestored(): void {
    if (this.#hints !== "live") this.#set({ hints: "restored" });
    this.now();
  }

  /** A session is watched: polls from now on, until no session is watched. */
  schedule(): void {
    if (this.#stopped || this.#polling || this.#cancel !== undefined) return;
    this.#cancel = this.#parts.timers.after(this.#intervalMs, () => this.now());
  }

  /** During a poll, requests one more, because the running one may have read too early. */
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
      if (this.#hints === "restored") this.#set({ hints: "polling" });
      if (sessionIds.length > 0) await this.#ask(sessionIds);
      else if (this.#hints === "polling") this.#set({ hints: "live" });
    }
    this.#polling = false;
    if (this.#parts.watched.sessionIds().length > 0) this.schedule();
  }

  async #ask(sessionIds: readonly string[]): Promise<void> {
    try {
      await this.#parts.watched.look(sessionIds);
      this.onAnswer();
      if (this.#hints === "polling") this.#set({ hints: "live" });
    } catch (error) {
      if (this.#stopped) return;
      if (!this.#failing) this.#parts.log.warn({ err: error }, "live poll failed");
      const defect = defectOf(error);
      if (defect === undefined) this.#set({ failing: true });
      else this.#parts.watched.onDefect(defect);
    }
  }

  /** The heads could be read, by this poll or by another reader. */
  onAnswer(): void {
    if (this.#failing) this.#parts.log.info({}, "live poll recovered");
    this.#set({ failing: false });
  }

  #set(change: { readonly failing?: boolean; readonly hints?: Hints }): void {
    const wasLate = this.isLate;
    this.#failing = change.failing ?? this.#failing;
    this.#hints = change.hints ?? this.#hints;
    if (this.isLate !== wasLate) this.#parts.watched.onLatenessChange();
  }
}
