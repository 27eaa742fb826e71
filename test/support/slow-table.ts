/**
 * A double of the database port: rows in memory, read as live delivery reads them. Each read is answered
 * when the test says so, in any order, or never. It also has timers that run when the test says so.
 */
import { ServiceError } from "@session-ledger/base/errors";
import type { PageAfter } from "../../src/store/pages.ts";
import type { CursorRequest, LedgerReader, Seen } from "../../src/store/reader.ts";
import {
  type EventRow,
  lastSeqOf,
  type MessageRow,
  type RowOf,
  type SessionHead,
  type StoredRow,
  type StreamName,
} from "../../src/store/rows.ts";
import type { Timers } from "@session-ledger/base/timers";

export interface PendingRead {
  readonly kind: "heads" | "page";
  /** Answers with the rows at the begin of the read, or with the present ones. */
  answer(as: "began" | "now"): void;
  fail(error: unknown): void;
}

export class SlowTable implements LedgerReader {
  readonly rows: StoredRow[] = [];
  readonly known = new Set<string>();
  readonly deleted = new Set<string>();
  readonly pending: PendingRead[] = [];
  /** Reads answer at once while true. */
  fast = true;
  /** While set, reads fail with it at once. */
  failure: Error | undefined;
  isSharded = false;
  /** Heads of these fail, and so does a question for several heads with one of them. */
  readonly ofLostNode = new Set<string>();
  pagesRead = 0;
  headsRead = 0;

  /** From now on the test answers pages, while watches may still begin. */
  async holdPages(): Promise<void> {
    this.fast = false;
    for (let heads = this.#pendingHeads(); heads !== undefined; heads = this.#pendingHeads()) {
      heads.answer("now");
      await settled();
    }
  }

  #pendingHeads(): PendingRead | undefined {
    return this.pending.find(({ kind }) => kind === "heads");
  }

  /** Commits an event row after the last one of its session. */
  event(sessionId: string, fields: Partial<EventRow> = {}): EventRow {
    const seq = this.#end("events", sessionId) + 1n;
    const row: EventRow = {
      stream: "events",
      sessionId,
      seq,
      id: `e${seq}-${sessionId}`,
      eventType: "CUSTOM",
      payload: "{}",
      createdAtMicros: 1_700_000_000_000_000n + seq,
      completedAtMicros: undefined,
      eventCount: 1,
      runId: "",
      fragments: undefined,
      conformant: true,
      ...fields,
    };
    return this.#keep(row);
  }

  message(sessionId: string, fields: Partial<MessageRow> = {}): MessageRow {
    const seq = this.#end("messages", sessionId) + 1n;
    const row: MessageRow = {
      stream: "messages",
      sessionId,
      seq,
      id: `m${seq}-${sessionId}`,
      eventType: "user",
      payload: "hi",
      createdAtMicros: 1_700_000_000_000_000n + seq,
      sentAtMicros: undefined,
      sender: undefined,
      ...fields,
    };
    return this.#keep(row);
  }

  /** The rows of a session up to `last` are erased; its counters stay. */
  erase(sessionId: string, last: bigint): void {
    const remaining = this.rows.filter(
      (row) => row.sessionId !== sessionId || lastSeqOf(row) > last,
    );
    this.rows.splice(0, this.rows.length, ...remaining);
  }

  /** The order of the commits, by the id of the row. */
  recordedOf(id: string): number {
    return this.#recorded.get(id) ?? 0;
  }

  readonly #recorded = new Map<string, number>();
  readonly #ends = new Map<string, bigint>();

  #end(stream: StreamName, sessionId: string): bigint {
    return this.#ends.get(`${stream} ${sessionId}`) ?? 0n;
  }

  #keep<R extends StoredRow>(row: R): R {
    this.rows.push(row);
    this.#recorded.set(row.id, this.#recorded.size + 1);
    this.known.add(row.sessionId);
    this.#ends.set(`${row.stream} ${row.sessionId}`, lastSeqOf(row));
    return row;
  }

  pageAfter<S extends StreamName>(request: PageAfter<S>): Promise<readonly RowOf<S>[]> {
    this.pagesRead += 1;
    return this.#read("page", () => this.#page(request));
  }

  heads(sessionIds: readonly string[]): Promise<ReadonlyMap<string, SessionHead>> {
    this.headsRead += 1;
    if (sessionIds.some((id) => this.ofLostNode.has(id))) return Promise.reject(databaseAway());
    return this.#read("heads", () => {
      const known = sessionIds.filter((id) => this.known.has(id) || this.deleted.has(id));
      return new Map(known.map((id) => [id, this.head(id)]));
    });
  }

  head(sessionId: string): SessionHead {
    return {
      messageSeq: this.#end("messages", sessionId),
      eventSeq: this.#end("events", sessionId),
      deleted: this.deleted.has(sessionId),
    };
  }

  /** The last rows are lost, as by a failover: their numbers are free again. */
  lose(count: number): void {
    for (const { stream, sessionId, seq } of this.rows.splice(-count).toReversed()) {
      this.#ends.set(`${stream} ${sessionId}`, seq - 1n);
    }
  }

  async lostOf(seen: readonly Seen[]): Promise<ReadonlySet<Seen>> {
    if (this.failure !== undefined) throw this.failure;
    const lost = seen.filter(({ stream, sessionId, head, row }) => {
      const other = this.rows.some(
        (one) =>
          one.stream === stream &&
          one.sessionId === sessionId &&
          row !== undefined &&
          one.seq <= row.seq &&
          lastSeqOf(one) >= row.seq &&
          one.id !== row.id,
      );
      return other || this.#end(stream, sessionId) < head;
    });
    return new Set(lost);
  }

  async resolveCursor(request: CursorRequest): Promise<bigint> {
    const { stream, sessionId, afterSeq, expand = false } = request;
    const row = this.rows.findLast(
      (one) => one.stream === stream && one.sessionId === sessionId && one.seq <= afterSeq,
    );
    if (row === undefined || lastSeqOf(row) <= afterSeq) return afterSeq;
    if (expand) {
      const hasIndex = row.stream === "events" && row.fragments !== undefined;
      return hasIndex ? row.seq - 1n : lastSeqOf(row);
    }
    return row.seq === afterSeq ? lastSeqOf(row) : row.seq - 1n;
  }

  #page<S extends StreamName>(request: PageAfter<S>): readonly RowOf<S>[] {
    let bytes = 0;
    const page: RowOf<S>[] = [];
    for (const row of this.rows) {
      if (!isOf(row, request.stream) || row.sessionId !== request.sessionId) continue;
      if (lastSeqOf(row) <= request.after) continue;
      bytes += row.payload.length;
      if (page.length === request.rowsMax || (page.length > 0 && bytes > request.bytesMax)) break;
      page.push(row);
    }
    return page;
  }

  #read<T>(kind: PendingRead["kind"], read: () => T): Promise<T> {
    if (this.failure !== undefined) return Promise.reject(this.failure);
    if (this.fast) return Promise.resolve(read());
    const began = read();
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const settle = (action: () => void): void => {
      this.pending.splice(this.pending.indexOf(pending), 1);
      action();
    };
    const pending: PendingRead = {
      kind,
      answer: (as) => settle(() => resolve(as === "began" ? began : read())),
      fail: (error) => settle(() => reject(error)),
    };
    this.pending.push(pending);
    return promise;
  }
}

function isOf<S extends StreamName>(row: StoredRow, stream: S): row is RowOf<S> & StoredRow {
  return row.stream === stream;
}

export class ManualTimers implements Timers {
  readonly pending: { readonly delayMs: number; readonly fire: () => void }[] = [];

  after(delayMs: number, action: () => void): () => void {
    const cancel = (): void => {
      const at = this.pending.indexOf(timer);
      if (at >= 0) this.pending.splice(at, 1);
    };
    const timer = {
      delayMs,
      fire: () => {
        cancel();
        action();
      },
    };
    this.pending.push(timer);
    return cancel;
  }

  fireAll(): void {
    const due = [...this.pending];
    for (const timer of due) timer.fire();
  }
}

/** Resolves when no resolved promise is left to run. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** As the store reports an outage. */
export function databaseAway(): ServiceError {
  return new ServiceError("unavailable", "DATABASE_UNAVAILABLE", "down", { retryAfterMs: 1_000 });
}
