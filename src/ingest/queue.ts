/**
 * Pushes that wait for a batch: one queue per session.
 *
 *   push ─► its session queue ─► a batch ─► done: the session queue is ready again
 *                     ▲               └─ retried: back to the front of the session queue
 *
 * Two rules keep the order. A session has pushes in at most one batch in flight, so its pushes
 * commit in the order they arrived. And a push whose outcome depends on an earlier push (the same
 * key, a lower epoch) waits for the next batch, because a batch is judged as a whole.
 *
 * If a session is locked by another transaction, its queue is marked as locked: its next batch has
 * no other session and waits for the lock. A session whose own batch took too long is treated the
 * same way, until one of its batches is committed.
 */
import { BoundedMap } from "@session-ledger/base/bounded-map";
import { RenewedMap } from "../base/renewed-map.ts";
import { Independent, type Push, type StoredRow } from "../store/rows.ts";
import type { ServiceError } from "@session-ledger/base/errors";
import type { Span } from "../observability/trace.ts";
import { databaseUnavailable, outcomeUnknown, RETRY_LIMIT_MS } from "./refusal.ts";

/** Sessions remembered as slow; a forgotten one shares a batch again. */
const SLOW_SESSIONS_MAX = 1_000;

export interface QueuedPush {
  readonly push: Push;
  readonly rows: number;
  readonly bytes: number;
}

interface SessionQueue<T> {
  readonly sessionId: string;
  waiting: T[];
  isInFlight: boolean;
  isLocked: boolean;
  /** Of its next batch; undefined: any number. */
  pushesMax: number | undefined;
}

export interface BatchLimits {
  readonly rowsMax: number;
  readonly bytesMax: number;
}

export class PushQueue<T extends QueuedPush> {
  readonly #sessions = new RenewedMap<string, SessionQueue<T>>();
  /** Session queues with pushes and no batch in flight. They take turns, so that none starves. */
  readonly #ready = new RenewedMap<string, SessionQueue<T>>();
  readonly #locked = new RenewedMap<string, SessionQueue<T>>();
  /** Keyed pushes that were never sent. */
  readonly #keyed = new RenewedMap<string, T>();
  /** Sessions whose own batch took too long, also while they have no waiting push. */
  readonly #slow = new BoundedMap<string, true>(SLOW_SESSIONS_MAX);
  /** Rows and bytes of all waiting pushes, without those in flight. */
  rows = 0;
  bytes = 0;

  add(item: T): void {
    const queue = this.#sessionQueue(item.push.sessionId);
    const id = keyOf(item.push);
    if (id !== undefined && !this.#keyed.has(id)) this.#keyed.set(id, item);
    queue.waiting.push(item);
    this.rows += item.rows;
    this.bytes += item.bytes;
    this.#classify(queue);
  }

  /** A push with the same key and content that was not sent yet. */
  repeatedBy(push: Push): T | undefined {
    const id = keyOf(push);
    const earlier = id === undefined ? undefined : this.#keyed.get(id);
    const [one, other] = [earlier?.push.digest, push.digest];
    return one && other && Buffer.compare(one, other) === 0 ? earlier : undefined;
  }

  /** Puts unsettled items of a batch before the waiting items of their sessions, in order. */
  restore(items: readonly T[]): void {
    for (const item of items.toReversed()) {
      this.#sessionQueue(item.push.sessionId).waiting.unshift(item);
      this.rows += item.rows;
      this.bytes += item.bytes;
    }
  }

  /** The first waiting item of each session. */
  *first(): Generator<T> {
    for (const { waiting } of this.#sessions.values())
      if (waiting[0] !== undefined) yield waiting[0];
  }

  /** A batch of ready sessions, a fair share of each; empty when nothing is ready. */
  take({ rowsMax, bytesMax }: BatchLimits): T[] {
    const taken: T[] = [];
    const queues = [...this.#ready.values()];
    const share = Math.max(1, Math.floor(rowsMax / Math.max(1, queues.length)));
    const [rowsAfter, bytesAfter] = [this.rows - rowsMax, this.bytes - bytesMax];
    for (const queue of queues) {
      if (this.rows <= rowsAfter || this.bytes <= bytesAfter) break;
      const rows = Math.min(share, this.rows - rowsAfter);
      taken.push(...this.#dispatch(queue, { rowsMax: rows, bytesMax: this.bytes - bytesAfter }));
    }
    return taken;
  }

  /** A batch of one session; empty without one. */
  takeOne(from: "ready" | "locked", limits: BatchLimits): T[] {
    const queues = from === "ready" ? this.#ready : this.#locked;
    for (const queue of queues.values()) return this.#dispatch(queue, limits);
    return [];
  }

  /** The batch of these items has ended. */
  release(
    items: readonly T[],
    next: {
      readonly locked: ReadonlySet<string>;
      readonly pushesMax: ReadonlyMap<string, number>;
    },
  ): void {
    for (const { push } of items) {
      const { sessionId } = push;
      const queue = this.#sessions.get(sessionId);
      if (queue?.isInFlight !== true) continue;
      queue.isInFlight = false;
      queue.isLocked = next.locked.has(sessionId);
      queue.pushesMax = next.pushesMax.get(sessionId);
      this.#classify(queue);
    }
  }

  /** Marks a session whose own batch took too long. For sessions that are in flight. */
  markSlow(sessionId: string): void {
    this.#slow.set(sessionId, true);
  }

  clearSlow(sessionId: string): void {
    this.#slow.delete(sessionId);
  }

  #sessionQueue(sessionId: string): SessionQueue<T> {
    let queue = this.#sessions.get(sessionId);
    if (queue === undefined) {
      queue = { sessionId, waiting: [], isInFlight: false, isLocked: false, pushesMax: undefined };
      this.#sessions.set(sessionId, queue);
    }
    return queue;
  }

  /** Takes at least one item, up to the limits, and up to one that depends on an earlier one. */
  #dispatch(queue: SessionQueue<T>, { rowsMax, bytesMax }: BatchLimits): T[] {
    const independent = new Independent();
    const [rowsAfter, bytesAfter] = [this.rows - rowsMax, this.bytes - bytesMax];
    let count = 0;
    for (const item of queue.waiting) {
      const isTooLarge = this.rows - item.rows < rowsAfter || this.bytes - item.bytes < bytesAfter;
      if (count === queue.pushesMax || (count > 0 && isTooLarge)) break;
      if (!independent.admit(item.push)) break;
      count += 1;
      const id = keyOf(item.push);
      if (id !== undefined && this.#keyed.get(id) === item) this.#keyed.delete(id);
      this.rows -= item.rows;
      this.bytes -= item.bytes;
    }
    queue.isInFlight = true;
    const taken = queue.waiting.splice(0, count);
    this.#classify(queue);
    return taken;
  }

  /** Puts a session queue into the set that matches its state. */
  #classify(queue: SessionQueue<T>): void {
    const { sessionId } = queue;
    const isReady = queue.waiting.length > 0 && !queue.isInFlight;
    const isAlone = queue.isLocked || this.#slow.has(sessionId);
    if (isReady && !isAlone) this.#ready.set(sessionId, queue);
    else this.#ready.delete(sessionId);
    if (isReady && isAlone) this.#locked.set(sessionId, queue);
    else this.#locked.delete(sessionId);
    if (queue.waiting.length === 0 && !queue.isInFlight) this.#sessions.delete(sessionId);
  }
}

function keyOf({ stream, sessionId, key }: Push): string | undefined {
  return key === undefined ? undefined : `${stream}\0${sessionId}\0${key}`;
}

/** The answer to a committed push; a repeated push gets the answer of the earlier push. */
export interface Acknowledged {
  /** The rows of the push; after a repeat or a lost first answer only the row with the key. */
  readonly rows: readonly StoredRow[];
  readonly deduplicated: boolean;
}

export interface PendingPush extends QueuedPush {
  readonly promise: Promise<Acknowledged>;
  readonly resolve: (acknowledged: Acknowledged) => void;
  readonly reject: (error: unknown) => void;
  readonly isAbandoned: () => boolean;
  /** The time when the push was taken, on the monotonic clock. */
  readonly sinceMs: number;
  readonly span: Span | undefined;
  /** When counted tries began: a batch that another session delayed does not count. */
  triedSinceMs: number;
  /** Consecutive tries that PostgreSQL could not take. */
  failures: number;
  isSent: boolean;
  /** A try was lost after sending: the push may be committed. */
  isUncertain: boolean;
}

export function hasExpired({ triedSinceMs }: PendingPush, nowMs: number): boolean {
  return nowMs - triedSinceMs > RETRY_LIMIT_MS;
}

/** The table finds a stored push by key or range. A claim changes the state it was made for. */
export function isRepeatable({ key, range, seen }: Push): boolean {
  return key !== undefined || range !== undefined || seen !== undefined;
}

/** All tries decide: one that was lost after sending may be committed. */
export function refusalOf(item: PendingPush, cause: unknown): ServiceError {
  return item.isUncertain ? outcomeUnknown(cause) : databaseUnavailable(cause);
}
