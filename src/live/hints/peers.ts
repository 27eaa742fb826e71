/**
 * The other instances on the database, and the shards that each of them wants announced. An instance sends
 * nothing for a shard that no other one wants.
 *
 *   connected, first watch of a shard ──► LISTEN ──► question to all, with all own shards
 *                                                        │
 *   lookup of the watched sessions ◄── known ◄── a reply of each peer, or REPLY_LIMIT_MS
 *
 * A peer announces what it commits after its reply, and the lookup finds what it committed before. Until the
 * first question is answered, and while the connection is lost, peers may want anything: all is announced.
 * A shard without watches stays subscribed until the second refresh, because watches come and go.
 *
 *   2 <instance> <number> <shards>              these shards are wanted; `-`: the instance has stopped
 *   2 <instance> <number> <shards> <question>   the same, as a question to all
 *   3 <instance> <number> <shards> <question>   the reply to this question, for its instance alone; 0: to a
 *                                               text without a question that came late, with new shards
 *
 * Shards are a number in hexadecimal, with one bit each. An instance numbers its texts: they go over several
 * connections, and an older one may come later.
 */
import { type Backoff, backoffMs } from "@session-ledger/base/backoff";
import { BoundedMap } from "@session-ledger/base/bounded-map";
import type { Clock } from "@session-ledger/base/clock";
import { type Timers, within } from "@session-ledger/base/timers";
import { Throttle } from "../../base/throttle.ts";
import { SHARDS, type Subscriptions } from "./subscriptions.ts";
import { PEERS_TOPIC, type Transport } from "./transport.ts";

interface PeersParts {
  readonly instance: string;
  readonly subscriptions: Subscriptions;
  /** Rejects without a connection. */
  readonly subscribe: (topics: readonly string[]) => Promise<void>;
  readonly unsubscribe: (topics: readonly string[]) => Promise<void>;
  readonly send: Transport["send"];
  /** The peers know the shards of this instance. */
  readonly onKnown: () => void;
  readonly clock: Clock;
  readonly timers: Timers;
}

interface Peer {
  readonly number: number;
  readonly shards: ReadonlySet<number>;
  readonly seenMs: number;
}

export const ASK_INTERVAL_MS = 10;
const ASK_RETRY: Backoff = { minMs: 100, maxMs: 5_000 };
export const REPLY_LIMIT_MS = 1_000;
/** A peer without a text for longer has died. */
export const PEER_TTL_MS = 60_000;
export const REFRESH_MS = 20_000;
const PEERS_MAX = 1_000;
const STOP_LIMIT_MS = 1_000;
const GOODBYE = "-";
const LATE = "0";

export class Peers {
  readonly #parts: PeersParts;
  readonly #peers = new BoundedMap<string, Peer>(PEERS_MAX);
  readonly #asking: Throttle;
  /** Shards of this instance whose channels it listens on. */
  readonly #subscribed = new Set<number>();
  /** Those that had a watch since the last refresh. */
  #recent = new Set<number>();
  #wanted: ReadonlySet<number> = new Set();
  #isKnown = false;
  #texts = 0;
  #question = 0;
  #unanswered = new Set<string>();
  #isOpen = false;
  #mustAsk = false;
  #mustRefresh = false;
  #failures = 0;
  #cancelReplies: (() => void) | undefined;
  #cancelRefresh: (() => void) | undefined;

  constructor(parts: PeersParts) {
    this.#parts = parts;
    const act = (): Promise<number> => this.#act();
    this.#asking = new Throttle(parts.timers, { intervalMs: ASK_INTERVAL_MS, act });
    parts.subscriptions.onAdd = () => this.#asking.request();
  }

  /** Of an opening connection. */
  topics(): readonly string[] {
    for (const shard of this.#parts.subscriptions.shards) this.#subscribed.add(shard);
    return [...this.#subscribed].map(String);
  }

  onOpen(): void {
    this.#isOpen = true;
    this.#mustAsk = true;
    this.#asking.request();
    if (this.#cancelRefresh === undefined) this.#refreshLater();
  }

  onLoss(): void {
    this.#isOpen = false;
    this.#isKnown = false;
    this.#cancelReplies?.();
  }

  /** True when another instance may want the news of a shard. */
  wants(shard: number): boolean {
    return !this.#isKnown || this.#wanted.has(shard);
  }

  /** The other instances of the last minute. */
  get count(): number {
    const sinceMs = this.#parts.clock.monotonicMs() - PEER_TTL_MS;
    return [...this.#peers.values()].filter(({ seenMs }) => seenMs > sinceMs).length;
  }

  onText(text: string): void {
    const [form, from = "", numeral, shards = "", question] = text.split(" ");
    const number = Number(numeral);
    const last = this.#peers.get(from);
    let isNews = false;
    if (shards === GOODBYE) this.#peers.delete(from);
    else if (last === undefined || number > last.number) {
      const seenMs = this.#parts.clock.monotonicMs();
      const wanted = shardsIn(shards);
      isNews = [...wanted].some((shard) => last?.shards.has(shard) !== true);
      this.#peers.set(from, { number, shards: wanted, seenMs });
    }
    this.#sumUp();
    const asked = form === "2" ? question : undefined;
    // What was committed since the answers came was not announced to a peer that answers later.
    const reply = asked ?? (isNews && this.#isKnown ? LATE : undefined);
    if (reply !== undefined) {
      // A reply that is lost makes its instance late, until the next refresh.
      this.#tell(from, this.#textOf("3", { question: reply })).catch(() => undefined);
    }
    if (form === "3" && question === LATE) this.#parts.onKnown();
    if (form !== "3" || question !== String(this.#question)) return;
    const { size } = this.#unanswered;
    this.#unanswered.delete(from);
    if (size > 0 && this.#unanswered.size === 0 && this.#isKnown) this.#known();
  }

  /** The connection is closed by now. */
  async stop(): Promise<void> {
    this.#isOpen = false;
    this.#cancelRefresh?.();
    const { timers } = this.#parts;
    const limit = { limitMs: STOP_LIMIT_MS, onTimeout: () => undefined, timers };
    await within<void>(this.#finish(), limit);
    this.#cancelReplies?.();
  }

  async #finish(): Promise<void> {
    await this.#asking.stop();
    if (this.#question === 0) return;
    const goodbye = this.#tell(PEERS_TOPIC, this.#textOf("2", { shards: GOODBYE }));
    await goodbye.catch(() => undefined); // The others forget it after a minute.
  }

  /** Resolves with the delay before the next try. */
  async #act(): Promise<number> {
    if (!this.#isOpen) return 0; // The next connection asks.
    try {
      if (this.#mustRefresh) await this.#refresh();
      await this.#ask();
    } catch {
      this.#failures += 1;
      this.#asking.request();
      return backoffMs(ASK_RETRY, this.#failures - 1, Math.random());
    }
    this.#failures = 0;
    return 0;
  }

  async #ask(): Promise<void> {
    const { subscriptions, subscribe, timers } = this.#parts;
    const { shards } = subscriptions;
    const added = shards.filter((shard) => !this.#subscribed.has(shard));
    for (const shard of shards) this.#recent.add(shard);
    if (added.length === 0 && !this.#mustAsk) return;
    this.#mustAsk = true;
    if (added.length > 0) await subscribe(added.map(String));
    for (const shard of added) this.#subscribed.add(shard);
    if (!this.#isOpen) return;
    this.#question += 1;
    this.#unanswered = new Set(this.#peers.keys());
    this.#cancelReplies?.();
    this.#cancelReplies = timers.after(REPLY_LIMIT_MS, () => this.#known());
    await this.#tell(PEERS_TOPIC, this.#textOf("2", { question: String(this.#question) }));
    this.#mustAsk = false;
  }

  #known(): void {
    this.#cancelReplies?.();
    this.#isKnown = true;
    this.#parts.onKnown();
  }

  #refreshLater(): void {
    this.#cancelRefresh = this.#parts.timers.after(REFRESH_MS, () => {
      this.#refreshLater();
      this.#mustRefresh = true;
      this.#asking.request();
    });
  }

  async #refresh(): Promise<void> {
    const { subscriptions, unsubscribe, clock } = this.#parts;
    const sinceMs = clock.monotonicMs() - PEER_TTL_MS;
    for (const [from, { seenMs }] of this.#peers) if (seenMs <= sinceMs) this.#peers.delete(from);
    this.#sumUp();
    const { shards } = subscriptions;
    const left = [...this.#subscribed].filter(
      (shard) => !this.#recent.has(shard) && !shards.includes(shard),
    );
    this.#recent = new Set(shards);
    for (const shard of left) this.#subscribed.delete(shard);
    await this.#tell(PEERS_TOPIC, this.#textOf("2"));
    if (left.length > 0) await unsubscribe(left.map(String));
    this.#mustRefresh = false;
  }

  #sumUp(): void {
    this.#wanted = new Set([...this.#peers.values()].flatMap(({ shards }) => [...shards]));
  }

  #textOf(form: "2" | "3", words: { question?: string; shards?: string } = {}): string {
    const { question, shards = this.#shards } = words;
    this.#texts += 1;
    const text = `${form} ${this.#parts.instance} ${this.#texts} ${shards}`;
    return question === undefined ? text : `${text} ${question}`;
  }

  get #shards(): string {
    const bits = [...this.#subscribed].reduce((sum, shard) => sum | (1n << BigInt(shard)), 0n);
    return bits.toString(16);
  }

  #tell(topic: string, text: string): Promise<void> {
    return this.#parts.send([{ topic, text }]);
  }
}

/** A text that is no number wants all. */
function shardsIn(hexadecimal: string): ReadonlySet<number> {
  const isNumber = /^[0-9a-f]{1,16}$/.test(hexadecimal);
  const bits = isNumber ? BigInt(`0x${hexadecimal}`) : -1n;
  const shards = Array.from({ length: SHARDS }, (_, shard) => shard);
  return new Set(shards.filter((shard) => ((bits >> BigInt(shard)) & 1n) === 1n));
}
