/**
 * Announces the commits and deletions of this instance to the others.
 *
 *   committed, deleted ──► the news, one head per session ──► one text ──► send
 *
 * The first news after a quiet time is sent at once. News that arrives during that send, or within
 * `intervalMs` after it, shares the next text. So at most one text is being sent. The number of
 * sessions in the collected news is bounded; above the bound, and after a failed send, the next
 * text is `*`. A failed send is tried again with a growing delay. A commit never waits for any of
 * this.
 */
import { type Backoff, backoffMs } from "@session-ledger/base/backoff";
import { Throttle } from "../../base/throttle.ts";
import type { Log } from "../../observability/log.ts";
import { lastSeqOf, type SessionHead, type StoredRow } from "../../store/rows.ts";
import { type Timers, within } from "@session-ledger/base/timers";

interface NotifierParts {
  /** The name of this instance. */
  readonly from: string;
  readonly send: (text: string) => Promise<void>;
  /** Called after each sent text. */
  readonly onSent: () => void;
  readonly timers: Timers;
  readonly log: Log;
}

/** One instance sends at most a hundred texts per second, however many rows it commits. */
export const ANNOUNCE_INTERVAL_MS = 10;
/** More sessions hardly fit one text: the shortest entry takes 6 of its 7,999 bytes. */
export const ANNOUNCED_SESSIONS_MAX = 1_333;
const SEND_RETRY: Backoff = { minMs: 100, maxMs: 5_000 };
/** The limit at stop for the text that is being sent and the last one. */
const STOP_LIMIT_MS = 1_000;

type News = { -readonly [K in keyof SessionHead]: SessionHead[K] };

export class Notifier {
  readonly #parts: NotifierParts;
  readonly #throttle: Throttle;
  readonly #sessions = new Map<string, News>();
  #isAny = false;
  #failures = 0;
  #stopping: Promise<void> | undefined;

  constructor(parts: NotifierParts) {
    this.#parts = parts;
    const act = this.#announce.bind(this);
    this.#throttle = new Throttle(parts.timers, { intervalMs: ANNOUNCE_INTERVAL_MS, act });
  }

  announceCommit(rows: readonly StoredRow[]): void {
    if (rows.length === 0 || this.#stopping !== undefined) return;
    for (const row of rows) {
      const news = this.#newsOf(row.sessionId);
      if (news === undefined) break;
      const seq = lastSeqOf(row);
      const head = row.stream === "messages" ? "messageSeq" : "eventSeq";
      if (seq > news[head]) news[head] = seq;
    }
    this.#throttle.request();
  }

  announceDelete(sessionId: string): void {
    if (this.#stopping !== undefined) return;
    const news = this.#newsOf(sessionId);
    if (news !== undefined) news.deleted = true;
    this.#throttle.request();
  }

  /** Without heads: no row came. */
  announceChange(sessionId: string): void {
    if (this.#stopping !== undefined) return;
    this.#newsOf(sessionId);
    this.#throttle.request();
  }

  /** Sends the collected news first, within a short limit. */
  stop(): Promise<void> {
    this.#stopping ??= this.#finish();
    return this.#stopping;
  }

  /** `undefined` when the next text is `*` anyway. */
  #newsOf(sessionId: string): News | undefined {
    if (this.#isAny) return undefined;
    let news = this.#sessions.get(sessionId);
    if (news === undefined) {
      if (this.#sessions.size === ANNOUNCED_SESSIONS_MAX) {
        this.#announceAny();
        return undefined;
      }
      news = { messageSeq: 0n, eventSeq: 0n, deleted: false };
      this.#sessions.set(sessionId, news);
    }
    return news;
  }

  #announceAny(): void {
    this.#isAny = true;
    this.#sessions.clear();
  }

  #take(): string {
    const { from } = this.#parts;
    const text = encodeAnnouncement({ from, sessions: this.#isAny ? "any" : this.#sessions });
    this.#isAny = false;
    this.#sessions.clear();
    return text;
  }

  /** Resolves with the delay before the next try. */
  async #announce(): Promise<number> {
    const { send, onSent, log } = this.#parts;
    try {
      await send(this.#take());
    } catch (error) {
      this.#announceAny();
      this.#throttle.request();
      this.#failures += 1;
      if (this.#failures === 1) log.warn({ err: error }, "wake_ups_not_sent");
      return backoffMs(SEND_RETRY, this.#failures - 1, Math.random());
    }
    onSent();
    if (this.#failures > 0) log.info({ failures: this.#failures }, "wake_ups_sent_again");
    this.#failures = 0;
    return 0;
  }

  async #finish(): Promise<void> {
    const { timers } = this.#parts;
    // The stop waits no longer: the polls of the other instances find the rest.
    const limit = { limitMs: STOP_LIMIT_MS, onTimeout: () => undefined, timers };
    await within<void>(this.#flush(), limit);
  }

  async #flush(): Promise<void> {
    await this.#throttle.stop();
    if (this.#isAny || this.#sessions.size > 0) await this.#announce();
  }
}

/**
 * The text that one instance sends to the others: sessions and their heads, as one line of ASCII.
 *
 *   1 <the sender> <session>/<messages>/<events> <session>/<messages>/<events>/d …
 *   1 <the sender> *
 *
 * The numbers are heads; 0 means "not stated". `d` is a deletion. `*` means that anything may have
 * happened. The leading 1 is the version of the format. A text that cannot be decoded (for example
 * from a later version) counts as `*`, because its sender wanted to wake watchers.
 */

interface Announcement {
  /** The instance that sent it; empty when the text could not be decoded. */
  readonly from: string;
  readonly sessions: ReadonlyMap<string, SessionHead> | "any";
}

/** PostgreSQL takes a NOTIFY of fewer than 8,000 bytes. */
export const ANNOUNCEMENT_BYTES_MAX = 7_999;

const FORM = "1";
const ANY = "*";
/** Characters of one byte that a session id may have here. The contract allows fewer. */
const ID_FORM = /^[!-.0-~]+$/;
const ENTRY_FORM = /^([!-.0-~]+)\/(\d{1,19})\/(\d{1,19})(\/d)?$/;

export function encodeAnnouncement({ from, sessions }: Announcement): string {
  const any = `${FORM} ${from} ${ANY}`;
  if (sessions === "any") return any;
  let text = `${FORM} ${from}`;
  for (const [sessionId, { messageSeq, eventSeq, deleted }] of sessions) {
    if (!ID_FORM.test(sessionId)) return any;
    text += ` ${sessionId}/${messageSeq}/${eventSeq}${deleted ? "/d" : ""}`;
    if (text.length > ANNOUNCEMENT_BYTES_MAX) return any;
  }
  return text;
}

/** Takes any text; never throws. */
export function decodeAnnouncement(text: string): Announcement {
  if (text.length > ANNOUNCEMENT_BYTES_MAX) return UNREADABLE;
  const [form, from, ...entries] = text.split(" ");
  if (form !== FORM || from === undefined) return UNREADABLE;
  const sessions = new Map<string, SessionHead>();
  for (const entry of entries) {
    const [, sessionId, messages, events, deletion] = ENTRY_FORM.exec(entry) ?? [];
    if (sessionId === undefined || messages === undefined || events === undefined) {
      return { from, sessions: "any" };
    }
    const deleted = deletion !== undefined;
    sessions.set(sessionId, { messageSeq: BigInt(messages), eventSeq: BigInt(events), deleted });
  }
  return { from, sessions };
}

const UNREADABLE: Announcement = { from: "", sessions: "any" };
