/**
 * The sessions of a filter: pages of the list, changed by the stream of sessions. The stream has no
 * counts, because each push changes those: the first page is read again from time to time, less often
 * if the service is slow, and after each LIVE, because a lost connection misses changes.
 */
import { API, get } from "@session-ledger/react/internal/api/client";
import { ApiError } from "@session-ledger/react/internal/api/errors";
import { SERVICE } from "../token.ts";
import {
  openStream,
  type StreamEvent,
  type StreamState,
} from "@session-ledger/react/internal/api/stream";
import {
  itemOf,
  matches,
  type SessionFilter,
  type SessionItem,
  type SessionJson,
  withoutSession,
  withSessions,
} from "../model/session-list.ts";

export interface Sessions {
  readonly items: readonly SessionItem[];
  /** Of the filter, as the service counted last; undefined: not known yet. */
  readonly total: number | undefined;
  /** `total` is a lower bound. */
  readonly isLowerBound: boolean;
  /** More items may exist: on the next page, or after a page that ended before it was full. */
  readonly more: "none" | "page" | "search";
  readonly error: Error | undefined;
  readonly stream: StreamState;
}

const PAGE_SIZE = 100;
/** A list that is read again takes the largest pages. */
const PAGE_SIZE_MAX = 1_000;
const REFRESH_MIN_MS = 3_000;
/** Of the time, a refresh may take one part in this number. */
const REFRESH_SHARE = 20;
/** Several changes at once cause one refresh. */
const SOON_MS = 250;

function isRefusal(error: Error | undefined): boolean {
  return error instanceof ApiError && (error.status === 401 || error.status === 403);
}

interface Page {
  readonly items: readonly SessionJson[];
  readonly metadata: { readonly total: number; readonly totalIsLowerBound: boolean };
  readonly nextPageToken: string;
}

interface Read extends Pick<Sessions, "isLowerBound" | "more"> {
  readonly items: readonly SessionItem[];
  readonly total: number;
  readonly next: string;
}

interface Change {
  readonly type: string;
  readonly session?: SessionJson;
  readonly resourceId: string;
}

export class SessionFeed {
  readonly #filter: SessionFilter;
  readonly #listeners = new Set<() => void>();
  #stopping = new AbortController();
  #sessions: Sessions = {
    items: [],
    total: undefined,
    isLowerBound: false,
    more: "none",
    error: undefined,
    stream: "connecting",
  };
  #closeStream: (() => void) | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #next = "";
  #isFurther = false;
  #isLoading = false;
  /** A read that began before a deletion may still have the session. */
  readonly #deleted = new Set<string>();

  constructor(filter: SessionFilter) {
    this.#filter = filter;
  }

  get sessions(): Sessions {
    return this.#sessions;
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Also after a stop: React begins each effect twice while the page is developed. */
  start(): void {
    this.#stopping = new AbortController();
    this.#follow();
    void this.#refresh();
  }

  /** Begins again after an error that does not pass by itself. */
  retry(): void {
    this.#follow();
    this.#soon();
  }

  #follow(): void {
    this.#closeStream?.();
    const project = this.#filter.projectId;
    const parameters = new URLSearchParams({ state_frames: "true" });
    if (project !== "") parameters.set("project_id", project);
    this.#closeStream = openStream({
      connection: SERVICE,
      address: `${API}/sessions?${parameters.toString()}`,
      onEvent: (event) => this.#onStreamEvent(event),
      onState: (stream) => this.#set({ stream }),
    });
  }

  stop(): void {
    this.#stopping.abort();
    this.#closeStream?.();
    clearTimeout(this.#timer);
  }

  async more(): Promise<void> {
    if (this.#isLoading || this.#next === "") return;
    this.#isLoading = true;
    try {
      const { items, next, more } = await this.#read(this.#next, PAGE_SIZE);
      this.#next = next;
      this.#isFurther = true;
      const all = withSessions(this.#sessions.items, items);
      this.#set({ items: all, more, error: undefined });
    } catch (error) {
      this.#failed(error);
    } finally {
      this.#isLoading = false;
    }
  }

  async #read(pageToken: string, size: number): Promise<Read> {
    const { query, projectId, agentId, label, state, withinMs } = this.#filter;
    const { items, metadata, nextPageToken } = await get<Page>(SERVICE, `${API}/sessions`, {
      signal: this.#stopping.signal,
      query: {
        size,
        order_by: "activity",
        failures: true,
        facts: true,
        ...(pageToken !== "" && { page_token: pageToken }),
        ...(query !== "" && { query }),
        ...(projectId !== "" && { project_id: projectId }),
        ...(agentId !== "" && { agent_id: agentId }),
        ...(label !== "" && { labels: label.includes("=") ? label : `${label}=` }),
        ...(state !== "" && { state }),
        ...(withinMs > 0 && { active_after: new Date(Date.now() - withinMs).toISOString() }),
      },
    });
    const left = items.map(itemOf).filter(({ id }) => !this.#deleted.has(id));
    const { total, totalIsLowerBound: isLowerBound } = metadata;
    const more = nextPageToken === "" ? "none" : items.length < size ? "search" : "page";
    return { items: left, total, isLowerBound, next: nextPageToken, more };
  }

  /** Reads the first page, and plans the next time. */
  async #refresh(): Promise<void> {
    clearTimeout(this.#timer);
    const beganMs = performance.now();
    try {
      const { items, total, isLowerBound, next, ...first } = await this.#read("", PAGE_SIZE);
      // A list that fits on a page has nothing else.
      const all = next === "" ? items : withSessions(this.#sessions.items, items);
      const isAll = next === "" || !this.#isFurther;
      if (isAll) this.#next = next;
      const { more } = isAll ? first : this.#sessions;
      this.#set({ items: all, total, isLowerBound, more, error: undefined });
    } catch (error) {
      this.#failed(error);
    }
    // A reader who gives no token is not asked for it again and again.
    const { error } = this.#sessions;
    if (this.#stopping.signal.aborted || isRefusal(error)) return;
    const tookMs = performance.now() - beganMs;
    this.#plan(Math.max(REFRESH_MIN_MS, tookMs * REFRESH_SHARE));
  }

  /** Reads everything again that was read before. */
  async #readAgain(): Promise<void> {
    const wanted = this.#sessions.items.length;
    if (wanted <= PAGE_SIZE) return this.#soon();
    try {
      let all: readonly SessionItem[] = [];
      let read: Read | undefined;
      do {
        read = await this.#read(read?.next ?? "", PAGE_SIZE_MAX);
        all = withSessions(all, read.items);
      } while (read.next !== "" && all.length < wanted);
      this.#next = read.next;
      const { total, isLowerBound, more } = read;
      this.#set({ items: all, total, isLowerBound, more, error: undefined });
    } catch (error) {
      this.#failed(error);
    }
  }

  #plan(inMs: number): void {
    clearTimeout(this.#timer);
    if (this.#stopping.signal.aborted) return;
    this.#timer = setTimeout(() => {
      // A hidden page is read again when it is shown: its stream sends LIVE then.
      if (document.hidden) this.#plan(REFRESH_MIN_MS);
      else void this.#refresh();
    }, inMs);
  }

  #soon(): void {
    this.#plan(SOON_MS);
  }

  #onStreamEvent({ type, data }: StreamEvent): void {
    const change: Change & { readonly state?: string } = JSON.parse(data);
    if (type === "watch_state") {
      if (change.state === "LIVE") void this.#readAgain();
      return;
    }
    if (change.type === "EVENT_TYPE_DELETED") this.#deleted.add(change.resourceId);
    const { items, total } = this.#sessions;
    const known = items.find(({ id }) => id === change.resourceId);
    // The stream has neither failures nor facts.
    const changed = change.session && itemOf(change.session);
    const item = changed && { ...changed, failure: known?.failure, facts: known?.facts };
    if (item !== undefined && matches(item, this.#filter)) {
      const added = known === undefined && change.type === "EVENT_TYPE_CREATED" ? 1 : 0;
      this.#set({
        items: withSessions(items, [item]),
        total: total === undefined ? undefined : total + added,
      });
    } else if (known !== undefined) {
      this.#set({
        items: withoutSession(items, known.id),
        total: total === undefined ? undefined : total - 1,
      });
    }
    this.#soon();
  }

  #failed(error: unknown): void {
    if (this.#stopping.signal.aborted) return;
    this.#set({ error: error instanceof Error ? error : new Error(String(error)) });
  }

  #set(changes: Partial<Sessions>): void {
    if (this.#stopping.signal.aborted) return;
    this.#sessions = { ...this.#sessions, ...changes };
    for (const listener of this.#listeners) listener();
  }
}
