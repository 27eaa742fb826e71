/**
 * Group commit. A push joins the queue of its session, and a batch takes from the ready queues. Every
 * caller in a batch is answered after the batch has committed, and never before.
 *
 *   push ─► queue ─► batch ─► append ─┬─ committed ─────────► published, callers answered
 *             ▲                       ├─ refused ───────────► that caller alone
 *             ├── the session is held ┤
 *             ├── try again ──────────┘  (nothing was done, or a key makes it safe)
 *             ├── each half alone        (a row that PostgreSQL cannot take is found by halving)
 *             └── each session alone     (one of them takes longer than statement_timeout)
 *
 * A batch leaves at once while no other is in flight. Otherwise a batch leaves when another one
 * ends, or, on another connection, when the waiting pushes fill a batch. It has no timer: an idle
 * service commits a single push in one round trip, and a busy service commits batches as large as
 * its callers fill. On a sharded engine each batch has one session, and all ready sessions are sent at
 * once, each on its connection: a lost node stops the sessions of that node alone.
 *
 * A push that repeats a waiting one, with the same key and content, gets its answer. A repeat of a push that
 * was sent is looked up under the lock, because only the lock shows whether the session was deleted since.
 *
 * A caller's deadline never cancels a batch. A push leaves the queue at the deadline only if it was
 * never sent. After sending, the push is committed or refused as if the caller were still connected,
 * and a retry with the key returns the outcome.
 */
import { setTimeout as delay } from "node:timers/promises";
import { backoffMs } from "@session-ledger/base/backoff";
import type { Clock } from "@session-ledger/base/clock";
import { ServiceError } from "@session-ledger/base/errors";
import type { Unit } from "../base/unit.ts";
import type { Metrics } from "../observability/metrics.ts";
import type { Span } from "../observability/trace.ts";
import { failureOf } from "../store/failure.ts";
import { keyedRow, type Outcome, type Push, type StoredRow } from "../store/rows.ts";
import type { OpenedStream, StreamRequest } from "../store/streams.ts";
import {
  type Acknowledged,
  type BatchLimits,
  refusalOf,
  hasExpired,
  isRepeatable,
  type PendingPush,
  PushQueue,
} from "./queue.ts";
import { createOpener, type LedgerWriter } from "./opener.ts";
import {
  callerLeft,
  outcomeUnknown,
  queueFull,
  RETRY_DELAY,
  refusal,
  rowErased,
  stopping,
} from "./refusal.ts";

/** Batches of many sessions in flight at once: while one goes to disk, the next one is read. */
const IN_FLIGHT_MAX = 2;
/** Batches in flight for sessions that are locked, or whose node may be lost: each may occupy a connection for long. */
const LOCKED_IN_FLIGHT_MAX = 4;
/** Estimated bytes of a row without its texts: ids, times, the JSON around them. */
const ROW_OVERHEAD_BYTES = 256;

interface IngestDependencies {
  readonly writer: LedgerWriter;
  /** Gets every committed batch, before the callers are answered. Must not throw. */
  readonly publish: (rows: readonly StoredRow[]) => void;
  readonly clock: Clock;
  readonly metrics: IngestMetrics;
  /** Gets the time that the oldest push of each committed batch has waited. */
  readonly onCommit?: (waitedMs: number) => void;
}

type IngestMetrics = Pick<
  Metrics,
  "batchRows" | "commitSeconds" | "queueRows" | "queueBytes" | "rowsStored" | "rowsDeduplicated"
>;

export interface IngestLimits {
  readonly batch: BatchLimits;
  readonly queueRowsMax: number;
  readonly queueBytesMax: number;
}

/** One batch, with the remaining work for its sessions after its end. */
interface Batch {
  /** Waits for a locked session. */
  readonly wait: boolean;
  readonly retries: Set<PendingPush>;
  /** Sessions that get a batch of their own. */
  readonly locked: Set<string>;
  /** The count of pushes in the next batch of a session that has room for these and no more. */
  readonly pushesMax: Map<string, number>;
  /** The most consecutive tries of a push that PostgreSQL could not take: wait before the next one. */
  failures: number;
}

export class Ingest implements Unit {
  readonly #dependencies: IngestDependencies;
  readonly #limits: IngestLimits;
  readonly #queue = new PushQueue<PendingPush>();
  readonly #running = new Set<Promise<unknown>>();
  readonly #stop = new AbortController();
  readonly #open: ReturnType<typeof createOpener>;
  #inFlight = 0;
  #lockedInFlight = 0;
  #scheduled = false;

  constructor(dependencies: IngestDependencies, limits: IngestLimits) {
    this.#dependencies = dependencies;
    this.#limits = limits;
    const { writer, clock } = dependencies;
    this.#open = createOpener({ writer, clock, stop: this.#stop.signal });
  }

  async start(): Promise<void> {}

  /** Commits the waiting pushes, then ends. An unavailable database is not waited for. */
  async stop(): Promise<void> {
    this.#stop.abort();
    this.#pump();
    while (this.#running.size > 0) await Promise.allSettled(this.#running);
  }

  /**
   * Resolves after commit. `isAbandoned` is called before the push is first sent; true drops it.
   * Rejects with a ServiceError: refused, QUEUE_FULL, UNAVAILABLE, OUTCOME_UNKNOWN, SHUTTING_DOWN.
   *
   * The ranges of a stream are pushed in order, without waiting; after a rejected one no later one
   * is stored. `span` records the time in the queue, and each try to commit.
   */
  push(push: Push, isAbandoned: () => boolean, span?: Span): Promise<Acknowledged> {
    const earlier = this.#queue.repeatedBy(push);
    if (earlier === undefined) return this.#add(push, isAbandoned, span);
    // The waiting push may fail because its caller left.
    return earlier.promise.then(
      (acknowledged) => this.#repeated(acknowledged, push),
      () => this.#add(push, isAbandoned, span),
    );
  }

  /** The time that the oldest push has waited for its batch; 0 when none waits. */
  waitedMs(): number {
    const nowMs = this.#dependencies.clock.monotonicMs();
    let oldestMs = nowMs;
    for (const { sinceMs } of this.#queue.first()) oldestMs = Math.min(oldestMs, sinceMs);
    return nowMs - oldestMs;
  }

  #repeated({ rows }: Acknowledged, { claim }: Push): Acknowledged {
    this.#dependencies.metrics.rowsDeduplicated.inc();
    const row = claim === undefined ? rows[0] : rows.at(-1);
    return { rows: row === undefined ? [] : [row], deduplicated: true };
  }

  #add(push: Push, isAbandoned: () => boolean, span?: Span): Promise<Acknowledged> {
    if (this.#stop.signal.aborted) return Promise.reject(stopping());
    const full = this.#dependencies.writer.refusal?.();
    if (full !== undefined) return Promise.reject(full);
    const bytes = push.bytes + push.rows.length * ROW_OVERHEAD_BYTES;
    const { queueRowsMax, queueBytesMax } = this.#limits;
    const rows = Math.max(1, push.rows.length); // A push without rows takes room as well.
    if (this.#queue.rows + rows > queueRowsMax || this.#queue.bytes + bytes > queueBytesMax) {
      return Promise.reject(queueFull());
    }
    const sinceMs = this.#dependencies.clock.monotonicMs();
    const answer = Promise.withResolvers<Acknowledged>();
    const tries = {
      sinceMs,
      triedSinceMs: sinceMs,
      failures: 0,
      isSent: false,
      isUncertain: false,
    };
    this.#queue.add({ push, rows, bytes, isAbandoned, span, ...answer, ...tries });
    this.#schedule();
    return answer.promise;
  }

  /** Opens a push stream, which ends all others of the session; resolves and rejects as `push`. */
  async open(request: StreamRequest, isAbandoned: () => boolean): Promise<OpenedStream> {
    const opening = this.#open(request, isAbandoned);
    this.#running.add(opening);
    try {
      return await opening;
    } finally {
      this.#running.delete(opening);
    }
  }

  /** Runs after the calls of this turn of the event loop, so that they share a batch. */
  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#pump();
    });
  }

  #pump(): void {
    const { batch } = this.#limits;
    const { sessionCallsMax } = this.#dependencies.writer;
    const hasFreeSlot = (): boolean =>
      this.#inFlight === 0 ||
      (sessionCallsMax === undefined
        ? this.#inFlight < IN_FLIGHT_MAX && this.#queue.rows >= batch.rowsMax
        : this.#inFlight < sessionCallsMax);
    while (hasFreeSlot()) {
      const items =
        sessionCallsMax === undefined
          ? this.#queue.take(batch)
          : this.#queue.takeOne("ready", batch);
      if (items.length === 0) break;
      this.#inFlight += 1;
      this.#run(items, false, () => (this.#inFlight -= 1));
    }
    while (this.#lockedInFlight < LOCKED_IN_FLIGHT_MAX) {
      const items = this.#queue.takeOne("locked", batch);
      if (items.length === 0) break;
      this.#lockedInFlight += 1;
      this.#run(items, true, () => (this.#lockedInFlight -= 1));
    }
    const { queueRows, queueBytes } = this.#dependencies.metrics;
    queueRows.set(this.#queue.rows);
    queueBytes.set(this.#queue.bytes);
  }

  #run(items: readonly PendingPush[], wait: boolean, ended: () => void): void {
    let isEnded = false;
    const leaveSlot = (): void => {
      if (!isEnded) ended();
      isEnded = true;
    };
    const running = this.#batch(items, wait, leaveSlot)
      .catch((error: unknown) => {
        // A defect in our code; no caller is left waiting.
        for (const item of items) item.reject(error);
      })
      .finally(() => {
        leaveSlot();
        this.#running.delete(running);
        this.#pump();
      });
    this.#running.add(running);
  }

  async #batch(items: readonly PendingPush[], wait: boolean, leaveSlot: () => void): Promise<void> {
    const batch: Batch = {
      wait,
      retries: new Set(),
      locked: new Set(),
      pushesMax: new Map(),
      failures: 0,
    };
    try {
      const wanted = items.filter((item) => this.#isWanted(item));
      await this.#commit(wanted, batch);
      if (this.#dependencies.writer.sessionCallsMax !== undefined) {
        leaveSlot(); // This session pauses, and sessions of other nodes do not wait for it.
        this.#schedule();
      }
      await this.#pauseAfter(batch);
    } finally {
      if (batch.retries.size > 0)
        this.#queue.restore(items.filter((item) => batch.retries.has(item)));
      this.#queue.release(items, batch);
    }
  }

  async #commit(items: readonly PendingPush[], batch: Batch): Promise<void> {
    if (items.length === 0) return;
    const { writer, clock, metrics } = this.#dependencies;
    const startMs = clock.monotonicMs();
    const pushes: Push[] = [];
    let rows = 0;
    for (const item of items) {
      if (!item.isSent) item.span?.took("queue", { fromMs: item.sinceMs, untilMs: startMs });
      item.isSent = true;
      pushes.push(item.push);
      rows += item.push.rows.length;
    }
    const trace = (committed: boolean): number => {
      const untilMs = clock.monotonicMs();
      const counts = {
        "session_ledger.batch_pushes": items.length,
        "session_ledger.batch_rows": rows,
        "session_ledger.committed": committed,
      };
      for (const { span } of items) span?.took("commit", { fromMs: startMs, untilMs }, counts);
      return untilMs;
    };
    let outcomes: readonly Outcome[];
    try {
      outcomes = await writer.append(pushes, batch);
    } catch (error) {
      trace(false);
      await this.#recover(items, batch, error);
      return;
    }
    const untilMs = trace(true);
    this.#dependencies.onCommit?.(untilMs - (items[0]?.sinceMs ?? startMs));
    for (const { push } of items) this.#queue.clearSlow(push.sessionId);
    metrics.commitSeconds.observe((untilMs - startMs) / 1_000);
    metrics.batchRows.observe(rows);
    this.#settle(items, outcomes, batch);
  }

  #settle(items: readonly PendingPush[], outcomes: readonly Outcome[], batch: Batch): void {
    const { publish, metrics } = this.#dependencies;
    const stored: StoredRow[] = [];
    let messages = 0;
    for (const [index, { push }] of items.entries()) {
      const rows = storedBy(push, outcomes[index]) ?? [];
      stored.push(...rows);
      if (push.stream === "messages") messages += rows.length;
    }
    publish(stored);
    if (messages > 0) metrics.rowsStored.inc({ stream: "messages" }, messages);
    if (stored.length > messages)
      metrics.rowsStored.inc({ stream: "events" }, stored.length - messages);
    for (const [index, item] of items.entries()) {
      const { push } = item;
      const outcome = outcomes[index] ?? { kind: "busy" };
      const rows = storedBy(push, outcome);
      if (rows !== undefined) {
        item.resolve({ rows, deduplicated: false });
        continue;
      }
      switch (outcome.kind) {
        case "stored":
          break;
        case "deduplicated":
          if (outcome.row === undefined) item.reject(rowErased());
          else {
            metrics.rowsDeduplicated.inc();
            item.resolve({ rows: [outcome.row], deduplicated: true });
          }
          break;
        case "busy":
          batch.locked.add(push.sessionId);
          this.#retry(item, batch, undefined);
          break;
        case "again":
          batch.retries.add(item);
          if (outcome.isLater === false) addOne(batch.pushesMax, push.sessionId);
          break;
        case "full":
        case "key_reused":
        case "stale_epoch":
        case "turn_moved":
        case "stream_replaced":
        case "gap":
        case "not_found":
        case "deleted":
          item.reject(refusal(outcome, push));
      }
    }
  }

  /** The batch threw an error: finds out what the error means for each push. */
  async #recover(items: readonly PendingPush[], batch: Batch, error: unknown): Promise<void> {
    switch (failureOf(error)) {
      case "defect":
        return this.#halve(items, batch, error);
      case "slow":
        return this.#split(items, batch, error);
      case "unavailable":
        for (const item of items) item.reject(refusalOf(item, error));
        return;
      case "locked":
        for (const item of items) {
          batch.locked.add(item.push.sessionId);
          this.#retry(item, batch, error);
        }
        return;
      case "retryable":
        this.#countFailure(items, batch);
        for (const item of items) this.#retry(item, batch, error);
        return;
      case "unknown":
        this.#countFailure(items, batch);
        for (const item of items) {
          item.isUncertain = true;
          if (isRepeatable(item.push)) this.#retry(item, batch, error);
          else item.reject(outcomeUnknown(error));
        }
    }
  }

  /** At most one row of a batch is at fault. The halves go one after the other. */
  async #halve(items: readonly PendingPush[], batch: Batch, error: unknown): Promise<void> {
    if (items.length === 1) {
      for (const item of items) item.reject(ServiceError.from(error));
      return;
    }
    const middle = Math.ceil(items.length / 2);
    await this.#commit(items.slice(0, middle), batch);
    const locked = new Set(Array.from(batch.retries, (item) => item.push.sessionId));
    const second = items.slice(middle);
    for (const item of second) if (locked.has(item.push.sessionId)) batch.retries.add(item);
    await this.#commit(
      second.filter((item) => !locked.has(item.push.sessionId)),
      batch,
    );
  }

  /** One session of a batch is slow, it is unknown which: each gets a separate batch. */
  #split(items: readonly PendingPush[], batch: Batch, error: unknown): void {
    const sessionIds = new Set(items.map(({ push }) => push.sessionId));
    const isOne = sessionIds.size === 1;
    for (const sessionId of sessionIds) {
      batch.locked.add(sessionId);
      if (isOne) this.#queue.markSlow(sessionId);
    }
    for (const item of items) {
      item.triedSinceMs = this.#dependencies.clock.monotonicMs();
      if (isOne) item.reject(refusalOf(item, error));
      else this.#retry(item, batch, error);
    }
  }

  #countFailure(items: readonly PendingPush[], batch: Batch): void {
    const isSharded = this.#dependencies.writer.sessionCallsMax !== undefined;
    for (const item of items) {
      // Its node may be lost, and answer after seconds: few of its sessions may occupy a connection.
      if (isSharded) batch.locked.add(item.push.sessionId);
      item.failures += 1;
      batch.failures = Math.max(batch.failures, item.failures);
    }
  }

  /** Sends an item again, unless it was tried for longer than the limit or the service stops. */
  #retry(item: PendingPush, batch: Batch, cause: unknown): void {
    const isStopped = this.#stop.signal.aborted && cause !== undefined;
    if (isStopped || hasExpired(item, this.#dependencies.clock.monotonicMs()))
      item.reject(refusalOf(item, cause));
    else batch.retries.add(item);
  }

  /**
   * False: the caller left before its push was first sent, or a push was tried for too long. A split
   * session may wait for others, for example when all of PostgreSQL is slow.
   */
  #isWanted(item: PendingPush): boolean {
    if (item.isSent) {
      if (!hasExpired(item, this.#dependencies.clock.monotonicMs())) return true;
      item.reject(refusalOf(item, undefined));
      return false;
    }
    if (!item.isAbandoned()) return true;
    item.reject(callerLeft());
    return false;
  }

  /** The slot in flight pauses, and not the rows: every session's next try comes after this delay. */
  async #pauseAfter({ failures }: Batch): Promise<void> {
    if (failures === 0 || this.#stop.signal.aborted) return;
    const waitMs = backoffMs(RETRY_DELAY, failures - 1, Math.random());
    await delay(waitMs, undefined, { signal: this.#stop.signal }).catch(() => undefined);
  }
}

/** The rows that a push has stored, perhaps with an earlier try whose answer was lost; undefined: none. */
function storedBy(push: Push, outcome: Outcome | undefined): readonly StoredRow[] | undefined {
  if (outcome?.kind === "stored") return push.rows;
  if (outcome?.kind !== "deduplicated") return undefined;
  if (outcome.row === undefined) return push.rows.length === 0 ? [] : undefined;
  return outcome.row.id === keyedRow(push)?.id ? [outcome.row] : undefined;
}

function addOne(counts: Map<string, number>, key: string): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}
