/**
 * What the clients of a ledger did and saw, written down while it happens. At the end
 * history-check.ts decides whether a ledger that keeps its promises could have answered like this.
 *
 *   writers: what was sent, how each attempt was answered ──┐
 *   readers: every row, in the order it came ───────────────┼─► problemsOf ─► nothing, or sentences
 *   the database, read when all have come to rest ──────────┘
 *
 * Every entry has a tick of one counter, so of two entries it is known which came first; that is all
 * the time the checks need. A push is known again by its mark, a text that is in the payload of each
 * of its rows and of no other. Nothing here knows of a service or of a fault: a harness adds those.
 */
import type { StreamName } from "../../src/store/rows.ts";

/** A row, the same whether a client was given it or the database holds it. */
export interface Row {
  readonly stream: StreamName;
  readonly sessionId: string;
  readonly seq: bigint;
  /** How many numbers it takes; 1 for a message. */
  readonly eventCount: number;
  readonly id: string;
  readonly eventType: string;
  readonly payload: string;
  readonly createdAtMicros: bigint;
  /** Empty outside a run, and for a message. */
  readonly runId: string;
}

export interface Sent {
  readonly stream: StreamName;
  readonly sessionId: string;
  readonly eventType: string;
  readonly payload: string;
  readonly eventCount: number;
  readonly key: string | undefined;
  readonly epoch: bigint | undefined;
  readonly mark: string;
  /** What it has to be stored as: so many rows, which take so many numbers. */
  readonly rows: number;
  readonly numbers: number;
}

export type Answer =
  | { readonly kind: "acknowledged"; readonly row: Row; readonly deduplicated: boolean }
  /** The service said that this attempt stored nothing. */
  | { readonly kind: "refused"; readonly reason: string }
  /** Whether it is stored is open. */
  | { readonly kind: "lost"; readonly reason: string };

export interface Attempt {
  readonly began: number;
  ended: number;
  /** Lost, as long as there is none. */
  answer: Answer;
}

export interface PushRecord {
  readonly sent: Sent;
  /** In the order they began. */
  readonly attempts: Attempt[];
}

/** All that one watch, or one poll, was given; the cursor with which it goes on. */
export class Reader {
  readonly name: string;
  readonly stream: StreamName;
  readonly sessionId: string;
  readonly rows: Row[] = [];
  /** Reads that said that there is no more: when each was asked for, and up to where it looked. */
  readonly ends: { readonly began: number; readonly upTo: bigint }[] = [];
  /** Why it ended before its test did. */
  failure: string | undefined;
  /** It was told that rows it has are lost: another reader has begun again in its place. */
  wasToldOfLoss = false;
  #waiting: { readonly upTo: bigint; readonly resolve: () => void }[] = [];

  constructor(name: string, of: { readonly stream: StreamName; readonly sessionId: string }) {
    this.name = name;
    this.stream = of.stream;
    this.sessionId = of.sessionId;
  }

  get cursor(): bigint {
    const last = this.rows.at(-1);
    return last === undefined ? 0n : lastSeqOf(last);
  }

  saw(row: Row): void {
    this.rows.push(row);
    this.#wake();
  }

  /** Nothing more comes. */
  failed(error: unknown): void {
    this.failure ??= reasonOf(error); // The first one says why.
    this.#wake();
  }

  /** The service has said that rows which it gave are lost. */
  toldOfLoss(): void {
    this.wasToldOfLoss = true;
    this.#wake();
  }

  /** Resolves when a row with this number was seen, or nothing more comes. */
  until(upTo: bigint): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push({ upTo, resolve });
    this.#wake();
    return promise;
  }

  #wake(): void {
    const { cursor, failure, wasToldOfLoss } = this;
    this.#waiting = this.#waiting.filter(({ upTo, resolve }) => {
      const isOver = upTo <= cursor || failure !== undefined || wasToldOfLoss;
      if (isOver) resolve();
      return !isOver;
    });
  }
}

export class History {
  readonly pushes: PushRecord[] = [];
  readonly readers: Reader[] = [];
  #tick = 0;
  #marks = 0;

  now(): number {
    return (this.#tick += 1);
  }

  mark(): string {
    return `mark-${(this.#marks += 1)}.`;
  }

  push(sent: Sent): PushRecord {
    const record: PushRecord = { sent, attempts: [] };
    this.pushes.push(record);
    return record;
  }

  reader(name: string, of: { readonly stream: StreamName; readonly sessionId: string }): Reader {
    const reader = new Reader(name, of);
    this.readers.push(reader);
    return reader;
  }

  /** Makes one attempt; what it rejects with is written down and thrown on. */
  async attempt(
    record: PushRecord,
    call: () => Promise<{ readonly row: Row; readonly deduplicated: boolean }>,
  ): Promise<Row> {
    const attempt: Attempt = { began: this.now(), ended: Infinity, answer: UNANSWERED };
    record.attempts.push(attempt);
    try {
      const answer = await call();
      attempt.answer = { kind: "acknowledged", ...answer };
      return answer.row;
    } catch (error) {
      attempt.answer = answerOf(error);
      throw error;
    } finally {
      attempt.ended = this.now();
    }
  }

  sessionIds(): ReadonlySet<string> {
    return new Set(this.pushes.map(({ sent }) => sent.sessionId));
  }
}

/** The number after which the next row begins. */
export function lastSeqOf({ seq, eventCount }: Pick<Row, "seq" | "eventCount">): bigint {
  return seq + BigInt(eventCount) - 1n;
}

/** The mark of a row; undefined where nobody put one. */
export function markOf({ payload }: Pick<Row, "payload">): string | undefined {
  return /mark-\d+\./.exec(payload)?.[0];
}

const UNANSWERED: Answer = { kind: "lost", reason: "unanswered" };

/** Reasons with which the service promises that the attempt stored nothing; every other leaves it open. */
const STORES_NOTHING: ReadonlySet<string> = new Set([
  "INVALID_REQUEST",
  "SESSION_NOT_FOUND",
  "SESSION_DELETED",
  "STALE_EPOCH",
  "KEY_REUSED",
  "PAYLOAD_TOO_LARGE",
  "REQUEST_TOO_LARGE",
  "QUEUE_FULL",
  "DATABASE_UNAVAILABLE",
  "DISK_FULL",
  "SHUTTING_DOWN",
  "RATE_LIMITED",
  "SERVER_BUSY",
  "KEYS_UNAVAILABLE",
  "SESSION_FULL",
]);

function answerOf(error: unknown): Answer {
  const reason = reasonOf(error);
  return { kind: STORES_NOTHING.has(reason) ? "refused" : "lost", reason };
}

/** The reason of the service; where it was not the service that answered, the status. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const reason = "reason" in error && typeof error.reason === "string" ? error.reason : undefined;
  const code = "code" in error && typeof error.code === "string" ? error.code : undefined;
  return reason ?? code ?? error.message;
}
