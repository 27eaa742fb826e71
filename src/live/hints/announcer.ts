/**
 * Tells the other instances what this one has committed and deleted.
 *
 *   committed, deleted ──► what is new, one head a session ──► one text ──► send
 *
 * The first news after a quiet time goes at once; what comes while it is on its way, or sooner than
 * `intervalMs` after it, goes together in the next. So there is at most one text on its way, and what
 * is collected meanwhile is bounded in sessions: beyond that, and after a text that was not sent, the
 * next one says `*`. A carrier that does not take it is tried again, later and later. Nothing of this
 * is heard by whoever commits.
 */
import { type Backoff, backoffMs } from "../../base/backoff.ts";
import type { Log } from "../../observability/log.ts";
import { lastSeqOf, type SessionHead, type StoredRow } from "../../store/rows.ts";
import { encodeAnnouncement } from "./announcement.ts";
import { Paced } from "./paced.ts";
import type { Timers } from "../../base/timers.ts";

export interface AnnouncerParts {
  /** Who this instance is. */
  readonly from: string;
  readonly send: (text: string) => Promise<void>;
  /** Counts one that was sent. */
  readonly sent: () => void;
  readonly timers: Timers;
  readonly log: Log;
}

/** One instance sends no more than a hundred a second, however many rows it commits. */
export const ANNOUNCE_INTERVAL_MS = 10;
/** More would hardly fit one text: the shortest entry takes 6 of its 7,999 bytes. */
export const ANNOUNCED_SESSIONS_MAX = 1_333;
const SEND_RETRY: Backoff = { minMs: 100, maxMs: 5_000 };
/** At the end, for the text on its way and the last one. */
const STOP_LIMIT_MS = 1_000;

type News = { -readonly [K in keyof SessionHead]: SessionHead[K] };

export class Announcer {
  readonly #parts: AnnouncerParts;
  readonly #paced: Paced;
  readonly #sessions = new Map<string, News>();
  #anything = false;
  #failures = 0;
  #stopping: Promise<void> | undefined;

  constructor(parts: AnnouncerParts) {
    this.#parts = parts;
    const act = (): Promise<number> => this.#announce();
    this.#paced = new Paced(parts.timers, { intervalMs: ANNOUNCE_INTERVAL_MS, act });
  }

  committed(rows: readonly StoredRow[]): void {
    if (rows.length === 0 || this.#stopping !== undefined) return;
    for (const row of rows) {
      const news = this.#newsOf(row.sessionId);
      if (news === undefined) break;
      const seq = lastSeqOf(row);
      if (row.stream === "messages") news.messageSeq = larger(news.messageSeq, seq);
      else news.eventSeq = larger(news.eventSeq, seq);
    }
    this.#paced.ask();
  }

  deleted(sessionId: string): void {
    if (this.#stopping !== undefined) return;
    const news = this.#newsOf(sessionId);
    if (news !== undefined) news.deleted = true;
    this.#paced.ask();
  }

  /** What is collected is still sent, if that takes no time to speak of. */
  stop(): Promise<void> {
    this.#stopping ??= this.#finish();
    return this.#stopping;
  }

  /** `undefined` when the next text says `*` anyway. */
  #newsOf(sessionId: string): News | undefined {
    if (this.#anything) return undefined;
    let news = this.#sessions.get(sessionId);
    if (news === undefined) {
      if (this.#sessions.size === ANNOUNCED_SESSIONS_MAX) {
        this.#sayAnything();
        return undefined;
      }
      news = { messageSeq: 0n, eventSeq: 0n, deleted: false };
      this.#sessions.set(sessionId, news);
    }
    return news;
  }

  #sayAnything(): void {
    this.#anything = true;
    this.#sessions.clear();
  }

  #take(): string {
    const { from } = this.#parts;
    const text = encodeAnnouncement({ from, sessions: this.#anything ? "any" : this.#sessions });
    this.#anything = false;
    this.#sessions.clear();
    return text;
  }

  /** Resolves with how long to rest. */
  async #announce(): Promise<number> {
    const { send, sent, log } = this.#parts;
    try {
      await send(this.#take());
    } catch (error) {
      this.#sayAnything();
      this.#paced.ask();
      this.#failures += 1;
      if (this.#failures === 1) log.warn({ err: error }, "wake_ups_not_sent");
      return backoffMs(SEND_RETRY, this.#failures - 1, Math.random());
    }
    sent();
    if (this.#failures > 0) log.info({ failures: this.#failures }, "wake_ups_sent_again");
    this.#failures = 0;
    return 0;
  }

  async #finish(): Promise<void> {
    const { timers } = this.#parts;
    const { promise: late, resolve } = Promise.withResolvers<void>();
    const cancel = timers.after(STOP_LIMIT_MS, resolve);
    // Not longer: the others find by their poll what they were not told.
    await Promise.race([this.#sayTheRest(), late]);
    cancel();
  }

  async #sayTheRest(): Promise<void> {
    await this.#paced.stop();
    if (this.#anything || this.#sessions.size > 0) await this.#announce();
  }
}

function larger(one: bigint, other: bigint): bigint {
  return one > other ? one : other;
}
