/**
 * The record of all calls and observations of the clients of a ledger. At the end history-check.ts
 * decides whether a ledger that keeps its promises could have given these answers.
 *
 *   writers: each push, and the answer to each attempt ─────┐
 *   readers: every row, in the order it arrived ────────────┼─► problemsOf ─► nothing, or sentences
 *   the database, read after all clients have ended ────────┘
 *
 * Every entry has a tick of one counter, so the order of any two entries is known; the checks need no
 * other time. A push is recognised by its mark, a text in the payload of each of its rows and of no
 * other. Nothing here knows of a service or of a fault: a harness adds those.
 */
import type { StreamName } from "../../src/store/rows.ts";

/** A row, equal for a client and for the database. */
export interface Row {
  readonly stream: StreamName;
  readonly sessionId: string;
  readonly seq: bigint;
  /** The numbers that it takes; 1 for a message. */
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
  /** The expected rows and the numbers that they take. */
  readonly rows: number;
  readonly numbers: number;
}

export type Answer =
  | { readonly kind: "acknowledged"; readonly row: Row; readonly deduplicated: boolean }
  /** The service said that this attempt stored nothing. */
  | { readonly kind: "refused"; readonly reason: string }
  /** It is unknown whether the push is stored. */
  | { readonly kind: "lost"; readonly reason: string };

export interface Attempt {
  readonly began: number;
  ended: number;
  /** Undefined: the answer is lost so far. */
  answer: Answer;
}

export interface PushRecord {
  readonly sent: Sent;
  /** In the order they began. */
  readonly attempts: Attempt[];
}

/** All rows of one watch or poll, and the cursor with which it continues. */
export class Reader {
  readonly name: string;
  readonly stream: StreamName;
  readonly sessionId: string;
  readonly rows: Row[] = [];
  /** Reads that found the end: when each began, and up to where it looked. */
  readonly ends: { readonly began: number; readonly upTo: bigint }[] = [];
  /** The reason why it ended before its test. */
  failure: string | undefined;
  /** The service said that rows it has are lost: another reader has begun again in its place. */
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

  /** Called when nothing more arrives. */
  failed(error: unknown): void {
    this.failure ??= reasonOf(error); // The first one says why.
    this.#wake();
  }

  /** Called when the service says that delivered rows are lost. */
  toldOfLoss(): void {
    this.wasToldOfLoss = true;
    this.#wake();
  }

  /** Resolves when a row with this number was seen, or nothing more arrives. */
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

  /** Makes one attempt; a rejection is recorded and thrown again. */
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

/** The mark of a row; undefined for a row without one. */
export function markOf({ payload }: Pick<Row, "payload">): string | undefined {
  return /mark-\d+\./.exec(payload)?.[0];
}

const UNANSWERED: Answer = { kind: "lost", reason: "unanswered" };

/** Reasons that promise that the attempt stored nothing; every other reason leaves it open. */
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
  "TOO_MANY_PENDING",
]);

function answerOf(error: unknown): Answer {
  const reason = reasonOf(error);
  return { kind: STORES_NOTHING.has(reason) ? "refused" : "lost", reason };
}

/** The reason of the service, or the status when the answer is not from the service. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const reason = "reason" in error && typeof error.reason === "string" ? error.reason : undefined;
  const code = "code" in error && typeof error.code === "string" ? error.code : undefined;
  return reason ?? code ?? error.message;
}

// Pushes of every kind that a ledger stores differently: a message, an event, merged fragments, a
// grouped message that becomes three rows, the two ends of a run. Each has its mark.

export interface Plan {
  readonly sessionId: string;
  readonly kind: PushKind;
  /** With an idempotency key of its own. */
  readonly keyed: boolean;
  readonly epoch?: bigint;
}

export const PUSH_KINDS = [
  "message",
  "event",
  "merged",
  "grouped",
  "run_started",
  "run_finished",
] as const;
export type PushKind = (typeof PUSH_KINDS)[number];

type Content = Pick<Sent, "stream" | "eventType" | "payload" | "eventCount" | "rows" | "numbers">;

const FRAGMENTS = 3;

export function plan(history: History, { sessionId, kind, keyed, epoch }: Plan): Sent {
  const mark = history.mark();
  const key = keyed ? `key of ${mark}` : undefined;
  return { ...CONTENT[kind](mark), sessionId, mark, key, epoch };
}

const CONTENT: Record<PushKind, (mark: string) => Content> = {
  message: (mark) => ({ ...plain("user", mark), stream: "messages" }),
  event: (mark) => event({ type: "CUSTOM", name: "a b", value: mark }),
  merged: (mark) => ({
    ...event({ type: "TEXT_MESSAGE_CONTENT", messageId: mark, delta: "abc" }),
    eventCount: FRAGMENTS,
    numbers: FRAGMENTS,
  }),
  grouped: (mark) => ({
    ...event({
      type: "TEXT_MESSAGE_START",
      messageId: mark,
      role: "assistant",
      accumulated_content: "abc",
      fragment_count: FRAGMENTS,
      end_event: { type: "TEXT_MESSAGE_END", messageId: mark },
    }),
    rows: 3, // START, the fragments as one, END.
    numbers: FRAGMENTS + 2,
  }),
  run_started: (mark) => event({ type: "RUN_STARTED", threadId: "t", runId: mark }),
  run_finished: (mark) => event({ type: "RUN_FINISHED", threadId: "t", runId: mark }),
};

function event(payload: { readonly type: string; readonly [field: string]: unknown }): Content {
  return { ...plain(payload.type, JSON.stringify(payload)), stream: "events" };
}

function plain(eventType: string, payload: string): Omit<Content, "stream"> {
  return { eventType, payload, eventCount: 0, rows: 1, numbers: 1 };
}
