/**
 * One watch of sessions: the sessions that changed after the watch became live, each in its newest
 * state, at least once. The table tells them (store/session-changes.ts), so a reader that is slow
 * holds one page, and gets one change of a session instead of many.
 *
 *   a look of the horizon ──► read what changed since the place ──► the place is the horizon
 *                                      └─ a full page ──► the place is its last change
 *
 * A read also has changes above the horizon, which it does not wait for. The next read has them
 * again, and finds them in `#told`, unless the session has changed since. A session that was made
 * above the place is told as made: no earlier read could have it.
 */
import type { ServiceError } from "@session-ledger/base/errors";
import type { FeedReader } from "../store/feed.ts";
import type {
  ChangedSession,
  ChangePlace,
  ChangesPage,
  ChangesRequest,
} from "../store/session-changes.ts";
import { FeedWait, type WaitParts } from "./feed-wait.ts";
import type { TakeSeat } from "./seats.ts";
import type { Standing } from "./watcher.ts";

export interface SessionWatchRequest extends Omit<ChangesRequest, "after"> {
  /** An abort ends the watch. */
  readonly signal: AbortSignal;
  readonly takeSeat: TakeSeat;
}

export type SessionDelivery =
  | { readonly kind: "changes"; readonly changes: readonly SessionChanged[] }
  /** Live: every change from now on is told. After a loss of the database, that is told again. */
  | { readonly kind: "standing"; readonly standing: Standing };

export interface SessionChanged extends Pick<ChangedSession, "record"> {
  readonly change: "created" | "updated" | "deleted";
}

export class SessionWatch {
  readonly #parts: WaitParts & { readonly reads: Pick<FeedReader, "changes"> };
  readonly #request: SessionWatchRequest;
  readonly #wait: FeedWait;
  #place: ChangePlace = { atMicros: 0n, sessionId: "" };
  /** The place of the last page that was not full. */
  #madeAfterMicros = 0n;
  /** The changes above the place that were told, by session. */
  #told: ReadonlyMap<string, bigint> = new Map();
  /** The changes that `follow` yields next. */
  #changes: readonly SessionChanged[] = [];

  constructor(
    parts: WaitParts & { readonly reads: Pick<FeedReader, "changes"> },
    request: SessionWatchRequest,
  ) {
    this.#parts = parts;
    this.#request = request;
    this.#wait = new FeedWait(parts, request.signal);
  }

  end(reason: ServiceError): void {
    this.#wait.end(reason);
  }

  leave(): void {
    this.#wait.leave();
  }

  async *follow(): AsyncGenerator<SessionDelivery, void> {
    const { horizon } = this.#parts;
    const wait = this.#wait;
    let standing: Standing = "catching_up";
    let rewinds: number | undefined;
    yield { kind: "standing", standing };
    while (!wait.isOver) {
      const { micros } = horizon;
      if (micros !== undefined && rewinds !== horizon.rewinds) {
        const begin = { atMicros: micros, sessionId: "" };
        this.#begin(rewinds === undefined ? begin : horizon.rewound({ ...this.#place, seq: 0n }));
        rewinds = horizon.rewinds;
        standing = "catching_up";
      }
      const isBegun = rewinds !== undefined && rewinds === horizon.rewinds;
      const now = wait.hasFailed ? "degraded" : isBegun ? "live" : "catching_up";
      if (now !== standing) {
        standing = now;
        yield { kind: "standing", standing };
        continue;
      }
      if (!isBegun || micros === undefined) {
        await wait.woken();
        continue;
      }
      const isFull = await this.#read(micros);
      if (isFull === undefined) continue;
      if (this.#changes.length > 0) yield this.#delivery();
      if (!isFull || this.#place.atMicros === micros) await wait.woken();
    }
    wait.throwReason();
  }

  /**
   * Reads the next changes, for `#delivery`: no variable of `follow` may hold them (base/pull.ts).
   * Whether the page was full, or undefined after a failure.
   */
  async #read(horizonMicros: bigint): Promise<boolean | undefined> {
    const { horizon, reads } = this.#parts;
    const { scope, filter } = this.#request;
    const { rewinds } = horizon;
    const after = this.#place;
    const page = await this.#wait.read(() => reads.changes({ scope, filter, after }), WATCH);
    if (page === undefined || rewinds !== horizon.rewinds) return undefined;
    this.#changes = this.#take(page, horizonMicros);
    return page.cutAt !== undefined;
  }

  #delivery(): SessionDelivery {
    const changes = this.#changes;
    this.#changes = [];
    return { kind: "changes", changes };
  }

  #begin({ atMicros, sessionId }: ChangePlace): void {
    this.#place = { atMicros, sessionId };
    this.#madeAfterMicros = atMicros;
    this.#told = new Map();
  }

  /** The news of a page that was read when the horizon stood at `horizonMicros` or later. */
  #take({ changed, cutAt }: ChangesPage, horizonMicros: bigint): readonly SessionChanged[] {
    const told = this.#told;
    const madeAfterMicros = this.#madeAfterMicros;
    const news = changed.filter(
      ({ record, changedAtMicros }) => told.get(record.id) !== changedAtMicros,
    );
    const isAbove = cutAt === undefined || cutAt.atMicros >= horizonMicros;
    this.#place = isAbove ? { atMicros: horizonMicros, sessionId: "" } : cutAt;
    if (cutAt === undefined) this.#madeAfterMicros = horizonMicros;
    const known = new Map(told);
    for (const { record, changedAtMicros } of changed) known.set(record.id, changedAtMicros);
    this.#told = new Map([...known].filter(([, micros]) => micros >= this.#place.atMicros));
    return news.map(({ record, isDeleted }) => {
      const isMade = record.createdAtMicros >= madeAfterMicros && !told.has(record.id);
      return { record, change: isDeleted ? "deleted" : isMade ? "created" : "updated" };
    });
  }
}

const WATCH = { stream: "sessions" };
