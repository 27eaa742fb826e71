/**
 * Live delivery: which sessions are watched, by how many watchers, and which watchers a commit
 * wakes. The design is in docs/reading.md; this file keeps the registry.
 *
 *   ingest ── committed ──►  Tail (window) ◄── one read ── table
 *   delete ── deleted ────►    │  wakes                      ▲ a page each
 *   poll ────── found ──────►  ▼                             │
 *   others ──── hinted ────► Watcher (cursor) ───────────────┘──► handler
 *
 * A session is in the registry while it has a watcher. Each of its two streams has its own tail
 * while that stream has a watcher. A commit of a session without watchers costs one look-up.
 */
import type { Clock } from "@session-ledger/base/clock";
import type { ServiceError } from "@session-ledger/base/errors";
import type { Reservation } from "../base/budget.ts";
import type { Unit } from "../base/unit.ts";
import type { Log } from "../observability/log.ts";
import type { LedgerReader } from "../store/reader.ts";
import { historyLost, sessionDeleted } from "../store/failure.ts";
import {
  type EventRow,
  headOf,
  type MessageRow,
  type SessionHead,
  type StoredRow,
  type StreamName,
} from "../store/rows.ts";
import { HeadPoll } from "./hints/head-poll.ts";
import { Reads, sharedHeads, shuttingDown } from "./reads.ts";
import { checkLiveLimits, type LiveLimits } from "./limits.ts";
import { WatchLimits, type Acquire } from "./watch-limits.ts";
import { Tail, type TailParts, WindowMemory } from "./tail.ts";
import { limitTimers, systemTimers, type Timers } from "@session-ledger/base/timers";
import type { WakeUps } from "./hints/hint-bus.ts";
import { Subscriptions } from "./hints/subscriptions.ts";
import { type LiveMetrics, Watcher, type WatcherParts } from "./watcher.ts";

export interface WatchRequest<S extends StreamName> {
  readonly stream: S;
  readonly sessionId: string;
  /** An abort ends the watch; nothing else can end it from the caller's side while it waits. */
  readonly signal: AbortSignal;
  /** Reserves a watch, or throws the refusal. When absent, the service itself watches. */
  readonly acquire?: Acquire;
}

interface LiveDependencies {
  readonly reader: LedgerReader;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics?: LiveMetrics;
  readonly timers?: Timers;
  /** Called for each session whose newest rows the database has lost. */
  readonly onLost?: (sessionId: string) => void;
  readonly subscriptions?: Subscriptions;
}

export class Live implements Unit, Omit<WakeUps, "onCancel"> {
  readonly #parts: WatcherParts & TailParts;
  readonly #reads: Reads;
  readonly #headOf: ReturnType<typeof sharedHeads>;
  readonly #poll: HeadPoll;
  readonly #onLost: (sessionId: string) => void;
  readonly #subscriptions: Subscriptions;
  readonly #tails: Tails = { messages: new Map(), events: new Map() };
  readonly limits: WatchLimits;
  #stopped = false;

  constructor(dependencies: LiveDependencies, limits: LiveLimits) {
    checkLiveLimits(limits);
    const { clock, log, reader, metrics, timers = systemTimers, onLost } = dependencies;
    this.#onLost = onLost ?? (() => undefined);
    this.#subscriptions = dependencies.subscriptions ?? new Subscriptions();
    const reads = new Reads({ reader, timers: dependencies.timers ?? limitTimers }, limits);
    this.#reads = reads;
    this.#headOf = sharedHeads(reads, limits);
    this.#poll = new HeadPoll({ timers, log, watched: this }, limits);
    this.#parts = {
      reads,
      timers,
      log,
      metrics,
      limits,
      clock,
      memory: new WindowMemory(limits),
      othersAreLate: () => this.#poll.isLate,
      onRepeat: (sessionId) => this.#suspect([sessionId]),
    };
    const { memory } = this.#parts;
    this.limits = new WatchLimits(limits);
    metrics?.limitUse.share("watches", this.limits.service);
    metrics?.limitUse.watch("windows_bytes", () => memory.bytes / limits.windowsBytesMax);
  }

  async start(): Promise<void> {
    // Nothing runs before the first watch.
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#poll.stop();
    const reason = shuttingDown();
    for (const sessionId of this.sessionIds()) this.#end(sessionId, reason);
    await this.#parts.reads.close();
  }

  counts() {
    const { memory } = this.#parts;
    const sessions = this.sessionIds().length;
    return { watchers: this.limits.service.used, sessions, windowBytes: memory.bytes };
  }

  /** Rows that are on disk; rows of one session arrive in order. Never throws, never waits. */
  onCommit(rows: readonly StoredRow[]): void {
    const { messages, events } = this.#tails;
    if (messages.size === 0 && events.size === 0) return;
    const publishedAtMs = this.#parts.clock.monotonicMs();
    const added = {
      messages: new Map<Tail<"messages">, MessageRow[]>(),
      events: new Map<Tail<"events">, EventRow[]>(),
    };
    for (const row of rows) {
      if (row.stream === "messages") gather(added.messages, messages.get(row.sessionId), row);
      else gather(added.events, events.get(row.sessionId), row);
    }
    for (const [tail, own] of added.messages) tail.onCommit(own, publishedAtMs);
    for (const [tail, own] of added.events) tail.onCommit(own, publishedAtMs);
  }

  onDelete(sessionId: string): void {
    this.#end(sessionId, sessionDeleted(sessionId));
  }

  /** Rows at the session's beginning were erased: no watcher gets them from memory any more. */
  onErase(sessionId: string): void {
    for (const tail of this.#tailsOf(sessionId)) tail.empty();
  }

  /** Another database server answers: the last rows seen from the previous server are looked up. */
  onOtherServer(): void {
    this.#suspect(this.sessionIds());
  }

  #suspect(sessionIds: readonly string[]): void {
    if (sessionIds.length === 0) return;
    for (const sessionId of sessionIds) {
      for (const tail of this.#tailsOf(sessionId)) tail.suspect();
    }
    this.#poll.now();
  }

  async look(sessionIds: readonly string[]): Promise<void> {
    if (this.#suspects.length > 0) await this.#checkSuspects();
    const seen = new Map(sessionIds.map((sessionId) => [sessionId, this.#seenOf(sessionId)]));
    for (const { sessionId, head, error } of await this.#reads.heads(sessionIds))
      if (error === undefined) this.#onHead(sessionId, head, seen.get(sessionId));
  }

  /** The positions of the session's streams, noted before the question for its head. */
  #seenOf(sessionId: string): ReadonlyMap<AnyTail, bigint> {
    return new Map(this.#tailsOf(sessionId).map((tail) => [tail, tail.seenSeq]));
  }

  /**
   * Applies an answered head. A head below one that was seen before the question: rows are lost.
   */
  #onHead(
    sessionId: string,
    head: SessionHead = ABSENT,
    before: ReadonlyMap<AnyTail, bigint> = new Map(),
  ): void {
    if (head.deleted) this.onDelete(sessionId);
    for (const [tail, seen] of before) {
      if (tail.endReason === undefined && headOf(head, tail.stream) < seen) this.#fail(sessionId);
    }
    for (const tail of this.#tailsOf(sessionId)) tail.onHead(headOf(head, tail.stream));
  }

  get #suspects(): readonly AnyTail[] {
    const { messages, events } = this.#tails;
    return [...messages.values(), ...events.values()].filter((tail) => tail.isSuspect);
  }

  /** Looks up the last row that was seen through each doubted tail. */
  async #checkSuspects(): Promise<void> {
    const suspects = this.#suspects.map((tail) => ({
      tail,
      before: tail.suspicions,
      seen: tail.seen,
    }));
    const lost = await this.#reads.lostOf(suspects.map(({ seen }) => seen));
    for (const { tail, before, seen } of suspects) {
      if (tail.endReason !== undefined || tail.suspicions !== before) continue;
      if (lost.has(seen)) this.#fail(tail.sessionId);
      else tail.confirm();
    }
  }

  #fail(sessionId: string): void {
    this.#parts.log.warn({ sessionId }, "session_rows_lost");
    this.#onLost(sessionId);
    this.#end(sessionId, historyLost(sessionId));
  }

  onHint(sessionId: string, head: SessionHead): void {
    const tails = this.#tailsOf(sessionId);
    for (const tail of tails) tail.onHint(headOf(head, tail.stream));
    // A watch ends by the state of the table, and never by a hint alone.
    if (head.deleted && tails.length > 0) this.#poll.now();
  }

  onMissed(): void {
    this.#poll.now();
  }

  onLost(): void {
    this.#poll.onHintsLost();
  }

  onRestored(): void {
    this.#poll.onHintsRestored();
  }

  sessionIds(): readonly string[] {
    const { messages, events } = this.#tails;
    return [...new Set([...messages.keys(), ...events.keys()])];
  }

  onDefect(defect: ServiceError): void {
    for (const sessionId of this.sessionIds()) this.#end(sessionId, defect);
  }

  onLatenessChange(): void {
    for (const sessionId of this.sessionIds()) {
      for (const tail of this.#tailsOf(sessionId)) tail.wakeAll();
    }
  }

  /**
   * Resolves with a watcher that gets every later commit and knows the head of the session. Rejects
   * above the limit of watchers, and when the session is deleted, the service stops, or the database
   * is unavailable. The caller must call `leave` on the watcher, or run its `follow` to the end.
   */
  async attach<S extends StreamName>(request: WatchRequest<S>): Promise<Watcher<S>> {
    const { stream, sessionId, signal, acquire } = request;
    for (;;) {
      if (this.#stopped) throw shuttingDown();
      const leases = this.limits.acquireFor(sessionId, acquire);
      const tail = this.#enter(stream, sessionId);
      const onLeave = (): void => this.#leave(tail, leases);
      const watcher = new Watcher<S>(this.#parts, { tail, signal, onLeave });
      try {
        const { suspicions, isSuspect } = tail;
        const before = this.#seenOf(sessionId);
        if (isSuspect) await this.#checkSuspects();
        const head = await this.#headOf(sessionId);
        this.#poll.onAnswer();
        this.#onHead(sessionId, head, before);
        // After a loss of rows, or a doubt, attach again with a watcher that has seen none of them.
        const isLost = tail.endReason?.reason === "CURSOR_BEYOND_HEAD";
        if (!isLost && !tail.isSuspect && tail.suspicions === suspicions) {
          watcher.begin(head);
          return watcher;
        }
      } catch (error) {
        watcher.leave();
        throw error;
      }
      watcher.leave();
    }
  }

  /** Both streams, with one lease and one head. */
  async attachBoth(request: Omit<WatchRequest<"events">, "stream">) {
    const { sessionId, signal } = request;
    for (;;) {
      if (this.#stopped) throw shuttingDown();
      const tail = this.#enter("messages", sessionId);
      const watch = { tail, signal, onLeave: () => this.#leave(tail, []) };
      const messages = new Watcher<"messages">(this.#parts, watch);
      let events: Watcher<"events"> | undefined;
      try {
        events = await this.attach({ ...request, stream: "events" });
        const isLost = tail.endReason?.reason === "CURSOR_BEYOND_HEAD";
        if (!isLost) messages.begin(events.head);
        if (!isLost) return { events, messages };
      } catch (error) {
        events?.leave();
        messages.leave();
        throw error;
      }
      for (const watcher of [events, messages]) watcher.leave();
    }
  }

  /** The tail exists before the head is asked for, so the watcher misses nothing. */
  #enter<S extends StreamName>(stream: S, sessionId: string): Tail<S> {
    const tail = this.#tails[stream].get(sessionId) ?? new Tail<S>(this.#parts, stream, sessionId);
    this.#tails[stream].set(sessionId, tail);
    if (tail.watchers === 0) this.#subscriptions.add(sessionId);
    tail.watchers += 1;
    this.#parts.metrics?.watchers.inc({ stream });
    this.#poll.schedule();
    return tail;
  }

  #leave<S extends StreamName>(tail: Tail<S>, leases: readonly Reservation[]): void {
    this.limits.release(tail.sessionId, leases);
    this.#parts.metrics?.watchers.dec({ stream: tail.stream });
    tail.watchers -= 1;
    if (tail.watchers > 0) return;
    this.#subscriptions.remove(tail.sessionId);
    tail.close();
    const tails = this.#tails[tail.stream];
    // A tail that has ended is out of the registry already, and another may be in its place.
    if (tails.get(tail.sessionId) === tail) tails.delete(tail.sessionId);
  }

  #end(sessionId: string, reason: ServiceError): void {
    for (const tail of this.#tailsOf(sessionId)) {
      this.#tails[tail.stream].delete(sessionId);
      tail.end(reason);
    }
  }

  #tailsOf(sessionId: string): readonly AnyTail[] {
    const { messages, events } = this.#tails;
    return [messages.get(sessionId), events.get(sessionId)].filter((tail) => tail !== undefined);
  }
}

type Tails = { readonly [S in StreamName]: Map<string, Tail<S>> };
type AnyTail = Tail<"messages"> | Tail<"events">;

const ABSENT: SessionHead = { messageSeq: 0n, eventSeq: 0n, deleted: false };

function gather<T, R>(gathered: Map<T, R[]>, tail: T | undefined, row: R): void {
  if (tail === undefined) return;
  const rows = gathered.get(tail);
  if (rows === undefined) gathered.set(tail, [row]);
  else rows.push(row);
}
