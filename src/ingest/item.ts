/** A push that waits for its commit, and the results of its tries so far. */
import type { ServiceError } from "../base/errors.ts";
import type { Span } from "../observability/trace.ts";
import type { Push } from "../store/push.ts";
import type { StoredRow } from "../store/rows.ts";
import { RETRY_LIMIT_MS } from "./limits.ts";
import type { Waiting } from "./queue.ts";
import { callerGone, databaseUnavailable, outcomeUnknown } from "./refusal.ts";

/** The answer to a committed push; a repeated push gets the answer of the earlier push. */
export interface Acknowledged {
  /**
   * The rows of the push, none where it has none. After a repeat or a lost first answer, only the
   * first row.
   */
  readonly rows: readonly StoredRow[];
  readonly deduplicated: boolean;
}

interface Taken extends Waiting {
  readonly resolve: (acknowledged: Acknowledged) => void;
  readonly reject: (error: unknown) => void;
  readonly gone: () => boolean;
  /** The time when the push was taken, on the monotonic clock. */
  readonly sinceMs: number;
  readonly span: Span | undefined;
}

export interface Item extends Taken {
  /**
   * The start of the time that counts as tries: a batch that another session delayed does not
   * count.
   */
  triedSinceMs: number;
  sent: boolean;
  /** A try was lost after sending: the push may be committed. */
  uncertain: boolean;
}

export function newItem(taken: Taken): Item {
  return { ...taken, triedSinceMs: taken.sinceMs, sent: false, uncertain: false };
}

/** False: the caller left before its push was first sent. The push is refused and not stored. */
export function present(item: Item): boolean {
  if (item.sent || !item.gone()) return true;
  item.reject(callerGone());
  return false;
}

/** True when the push was tried for longer than the limit. */
export function isOver({ triedSinceMs }: Item, nowMs: number): boolean {
  return nowMs - triedSinceMs > RETRY_LIMIT_MS;
}

/** True when the push may be sent again: its key or range tells the table that it is stored already. */
export function isRepeatable({ key, range }: Push): boolean {
  return key !== undefined || range !== undefined;
}

/**
 * All tries decide, and not only the last one: a try that was lost after sending may be committed.
 */
export function givenUp(item: Item, cause: unknown): ServiceError {
  return item.uncertain ? outcomeUnknown(cause) : databaseUnavailable(cause);
}

export function rowsOf(items: readonly Item[]): number {
  return items.reduce((sum, { push }) => sum + push.rows.length, 0);
}

/** Records one commit in the trace of each push of the batch. */
export function traceCommit(
  items: readonly Item[],
  elapsed: { readonly fromMs: number; readonly untilMs: number },
  committed: boolean,
): void {
  const traced = items.filter(({ span }) => span !== undefined);
  if (traced.length === 0) return;
  const attributes = {
    "session_ledger.batch_pushes": items.length,
    "session_ledger.batch_rows": rowsOf(items),
    "session_ledger.committed": committed,
  };
  for (const { span } of traced) span?.took("commit", elapsed, attributes);
}
