/**
 * One watch of sessions: the sessions that changed after the watch became live, each in its newest
 * state, at least once. They are read from the table (store/session-changes.ts), so a slow reader
 * holds one page, and gets one change of a session instead of many.
 *
 *   a look of the horizon ──► read changes after the position ──► the position is the horizon
 *                                      └─ a full page ──► the position is its last change
 *
 * A read also has changes above the horizon, which it does not wait for. The next read has them
 * again, and finds them in `#reported`, unless the session has changed since. A session that was
 * created above the position is reported as created: no earlier read could have it.
 */
import type { FeedReader } from "../store/feed.ts";
import type {
  ChangedSession,
  ChangeCursor,
  ChangesPage,
  ChangesRequest,
} from "../store/session-changes.ts";
import { FeedWait, type FeedWaitParts } from "./feed-wait.ts";
import type { Acquire } from "./watch-limits.ts";
import type { LiveState } from "./watcher.ts";

export interface SessionWatchRequest extends Omit<ChangesRequest, "after"> {
  /** An abort ends the watch. */
  readonly signal: AbortSignal;
  readonly acquire: Acquire;
}

export type SessionDelivery =
  | { readonly kind: "changes"; readonly changes: readonly SessionChanged[] }
  /** Live: every change from now on is delivered. After a loss of the database, it is sent again. */
  | { readonly kind: "state"; readonly state: LiveState };

export interface SessionChanged extends Pick<ChangedSession, "record"> {
  readonly change: "created" | "updated" | "deleted";
}

export class SessionWatch {
  readonly #parts: FeedWaitParts & { readonly reads: Pick<FeedReader, "changes"> };
  readonly #request: SessionWatchRequest;
  readonly wait: FeedWait;
  #position: ChangeCursor = { atMicros: 0n, sessionId: "" };
  /** The place of the last page that was not full. */
  #madeAfterMicros = 0n;
  /** The changes above the position that were reported, by session. */
  #reported: ReadonlyMap<string, bigint> = new Map();
  /** The changes that `follow` yields next. */
  #changes: readonly SessionChanged[] = [];

  constructor(
    parts: FeedWaitParts & { readonly reads: Pick<FeedReader, "changes"> },
    request: SessionWatchRequest,
  ) {
    this.#parts = parts;
    this.#request = request;
    this.wait = new FeedWait(parts, request.signal);
  }

  async *follow(): AsyncGenerator<SessionDelivery, void> {
    const { horizon } = this.#parts;
    const wait = this.wait;
    let state: LiveState = "catching_up";
    let rewinds: number | undefined;
    yield { kind: "state", state };
    while (!wait.isOver) {
      const { micros } = horizon;
      if (micros !== undefined && rewinds !== horizon.rewinds) {
        const before = { ...this.#position, seq: 0n };
        const atMicros = rewinds === undefined ? micros : horizon.rewound(before).atMicros;
        this.#position = { atMicros, sessionId: "" };
        this.#madeAfterMicros = atMicros;
        this.#reported = new Map();
        rewinds = horizon.rewinds;
        state = "catching_up";
      }
      const hasStarted = rewinds !== undefined && rewinds === horizon.rewinds;
      const now = wait.hasFailed ? "degraded" : hasStarted ? "live" : "catching_up";
      if (now !== state) {
        state = now;
        yield { kind: "state", state };
        continue;
      }
      if (!hasStarted || micros === undefined) {
        await wait.next();
        continue;
      }
      const isFull = await this.#read(micros);
      if (isFull === undefined) continue;
      if (this.#changes.length > 0) yield this.#delivery();
      if (!isFull || this.#position.atMicros === micros) await wait.next();
    }
    wait.throwReason();
  }

  /**
   * For `#delivery`: no variable of `follow` may hold changes (base/pull.ts). Answers whether the
   * page was full; undefined after a failure.
   */
  async #read(horizonMicros: bigint): Promise<boolean | undefined> {
    const { horizon, reads } = this.#parts;
    const { scope, filter } = this.#request;
    const { rewinds } = horizon;
    const after = this.#position;
    const page = await this.wait.read(() => reads.changes({ scope, filter, after }), WATCH);
    if (page === undefined || rewinds !== horizon.rewinds) return undefined;
    this.#changes = this.#take(page, horizonMicros);
    return page.cutAt !== undefined;
  }

  #delivery(): SessionDelivery {
    const changes = this.#changes;
    this.#changes = [];
    return { kind: "changes", changes };
  }

  /** The news of a page that was read when the horizon stood at `horizonMicros` or later. */
  #take({ changed, cutAt }: ChangesPage, horizonMicros: bigint): readonly SessionChanged[] {
    const reported = this.#reported;
    const madeAfterMicros = this.#madeAfterMicros;
    const news = changed.filter(
      ({ record, changedAtMicros }) => reported.get(record.id) !== changedAtMicros,
    );
    const isAbove = cutAt === undefined || cutAt.atMicros >= horizonMicros;
    this.#position = isAbove ? { atMicros: horizonMicros, sessionId: "" } : cutAt;
    if (cutAt === undefined) this.#madeAfterMicros = horizonMicros;
    const merged = new Map(reported);
    for (const { record, changedAtMicros } of changed) merged.set(record.id, changedAtMicros);
    this.#reported = new Map([...merged].filter(([, micros]) => micros >= this.#position.atMicros));
    return news.map(({ record, isDeleted }) => {
      const isMade = record.createdAtMicros >= madeAfterMicros && !reported.has(record.id);
      return { record, change: isDeleted ? "deleted" : isMade ? "created" : "updated" };
    });
  }
}

const WATCH = { stream: "sessions" };
