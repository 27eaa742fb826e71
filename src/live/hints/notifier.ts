/**
 * Announces the commits and deletions of this instance to the others.
 *
 *   committed, deleted ──► wanted by another instance? ──► the news, one head per session
 *                                              send ◄── one text for each shard ◄──┘
 *
 * The first news after a quiet time is sent at once. News that arrives during that send, or within
 * `intervalMs` after it, shares the next text. So at most one statement is being sent. The number of
 * sessions in the collected news is bounded; above the bound, and after a failed send, the next
 * text of each wanted shard is `*`. A failed send is tried again with a growing delay. A commit never waits for any of
 * this.
 */
import { type Backoff, backoffMs } from "@session-ledger/base/backoff";
import { Throttle } from "../../base/throttle.ts";
import type { Log } from "../../observability/log.ts";
import { lastSeqOf, type SessionHead, type StoredRow } from "../../store/rows.ts";
import { type Timers, within } from "@session-ledger/base/timers";
import { SHARDS, shardOf } from "./subscriptions.ts";
import type { Message } from "./transport.ts";

interface NotifierParts {
  /** The name of this instance. */
  readonly from: string;
  /** True when another instance may want the news of a shard. */
  readonly wants: (shard: number) => boolean;
  readonly send: (messages: readonly Message[]) => Promise<void>;
  /** Called with the number of sent texts. */
  readonly onSent: (texts: number) => void;
  readonly timers: Timers;
  readonly log: Log;
}

/** One instance sends at most a hundred statements per second, however many rows it commits. */
export const ANNOUNCE_INTERVAL_MS = 10;
/** More sessions hardly fit one text: the shortest entry takes 6 of its 7,999 bytes. */
export const ANNOUNCED_SESSIONS_MAX = 1_333;
const SEND_RETRY: Backoff = { minMs: 100, maxMs: 5_000 };
/** The limit at stop for the text that is being sent and the last one. */
const STOP_LIMIT_MS = 1_000;

type News = { -readonly [K in keyof SessionHead]: SessionHead[K] } & { readonly shard: number };

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
    if (rows.length === 0) return;
    for (const row of rows) {
      const news = this.#newsOf(row.sessionId);
      if (news === undefined) continue;
      const seq = lastSeqOf(row);
      const head = row.stream === "messages" ? "messageSeq" : "eventSeq";
      if (seq > news[head]) news[head] = seq;
    }
    this.#request();
  }

  announceDelete(sessionId: string): void {
    const news = this.#newsOf(sessionId);
    if (news !== undefined) news.deleted = true;
    this.#request();
  }

  /** Without heads: no row came. */
  announceChange(sessionId: string): void {
    this.#newsOf(sessionId);
    this.#request();
  }

  /** Sends the collected news first, within a short limit. */
  stop(): Promise<void> {
    this.#stopping ??= this.#finish();
    return this.#stopping;
  }

  #request(): void {
    if (this.#isAny || this.#sessions.size > 0) this.#throttle.request();
  }

  /** `undefined` after a stop, when nobody wants it, and when the next text is `*` anyway. */
  #newsOf(sessionId: string): News | undefined {
    if (this.#isAny || this.#stopping !== undefined) return undefined;
    let news = this.#sessions.get(sessionId);
    if (news === undefined) {
      const shard = shardOf(sessionId);
      if (!this.#parts.wants(shard)) return undefined;
      if (this.#sessions.size === ANNOUNCED_SESSIONS_MAX) {
        this.#announceAny();
        return undefined;
      }
      news = { shard, messageSeq: 0n, eventSeq: 0n, deleted: false };
      this.#sessions.set(sessionId, news);
    }
    return news;
  }

  #announceAny(): void {
    this.#isAny = true;
    this.#sessions.clear();
  }

  #take(): readonly Message[] {
    const { from, wants } = this.#parts;
    const shards = new Map<number, Announcement["sessions"]>();
    if (this.#isAny) {
      for (let shard = 0; shard < SHARDS; shard += 1) if (wants(shard)) shards.set(shard, "any");
    } else {
      const all = Map.groupBy(this.#sessions, ([, { shard }]) => shard);
      for (const [shard, sessions] of all) shards.set(shard, new Map(sessions));
    }
    this.#isAny = false;
    this.#sessions.clear();
    return Array.from(shards, ([shard, sessions]) => ({
      topic: String(shard),
      text: encodeAnnouncement({ from, sessions }),
    }));
  }

  /** Resolves with the delay before the next try. */
  async #announce(): Promise<number> {
    const { send, onSent, log } = this.#parts;
    const messages = this.#take();
    try {
      if (messages.length > 0) await send(messages);
    } catch (error) {
      this.#announceAny();
      this.#throttle.request();
      this.#failures += 1;
      if (this.#failures === 1) log.warn({ err: error }, "wake_ups_not_sent");
      return backoffMs(SEND_RETRY, this.#failures - 1, Math.random());
    }
    onSent(messages.length);
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
