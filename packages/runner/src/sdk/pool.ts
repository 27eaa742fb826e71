/**
 * Serves many sessions: watches for those that wait, and claims their turns, a limited number at once.
 * A pool may be on many machines; of several that claim a turn, one gets it.
 *
 *   watch: a session begins to wait, or its run ends ─► queue ─► claim without a wait ─┬─ a turn: run it, claim again
 *   list: after each LIVE, and once a minute ────────►                                └─ none, or late: leave
 *
 * A claim of a pool never ends the run of another runner, except a lost one: one that this process
 * began before it was killed (its RUN_STARTED has the name of this runner), or one without a new event
 * for `lostAfterMs`. The epoch of that claim is the next one after that of the lost run, so of several
 * runners that see it, one takes over.
 */
import { readdir } from "node:fs/promises";
import { basename, dirname } from "node:path";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import { EventType, WatchState } from "@session-ledger/proto/ambient/v1/common_pb";
import {
  SessionOrder,
  type Session as SessionRow,
} from "@session-ledger/proto/ambient/v1/sessions_pb";
import { isObject } from "@session-ledger/agui/json";
import { isSessionId } from "@session-ledger/base/ids";
import { type Checks, checkOptions, integer, unchecked } from "../checks.ts";
import { ledger } from "../client.ts";
import { RpcFailure, textOf } from "../failure.ts";
import { Retries } from "../retry.ts";
import { objectIn } from "../user-messages.ts";
import type { RunnerCore } from "./core.ts";

export interface PoolOptions {
  /** Sessions that are served at once; default 10, at most 1,000. */
  readonly atOnce?: number;
  /** Only sessions with all of these labels; default: any. */
  readonly labels?: Readonly<Record<string, string>>;
  /** Only sessions of this project; default: any. */
  readonly projectId?: string;
  /** The run of a waiting session without a new event for this time is lost; default 600,000. */
  readonly lostAfterMs?: number;
}

const AT_ONCE = 10;
const PAGE_SIZE = 1_000;
/** Omitted sessions come with a later list. */
const QUEUE_MAX = 10_000;
const LOOK_MS = 60_000;
const LOST_AFTER_MS = 600_000;
const ADAPTERS_KEPT_MAX = 100;

/** Suffixes of further files of a spool: its lock, a part of the lock, and its next content. */
const OF_A_SPOOL = /\.(?:lock(?:\.\d+)?|new)$/;

interface PoolParts {
  readonly core: RunnerCore;
  /** Serves a session until no message waits, with this epoch; 0n: the service assigns one. */
  readonly serve: (id: string, epoch: bigint) => Promise<void>;
}

export class SessionPool {
  readonly #parts: PoolParts;
  readonly #options: PoolOptions;
  /** The epoch to claim with, by session. */
  readonly #queue = new Map<string, bigint>();
  readonly #served = new Map<string, Promise<void>>();
  /** Served sessions that were added again, and the epoch to claim with. */
  readonly #readded = new Map<string, bigint>();
  /** Sessions without a runner whose adapter still exists, the oldest first. */
  readonly #idle = new Set<string>();
  /** More sessions wait than the queue holds. */
  #hasMore = false;
  /** The open runs of waiting sessions at the last look. */
  #openRuns: ReadonlyMap<string, string> = new Map();
  #looking: Promise<void> | undefined;

  constructor(parts: PoolParts, options: PoolOptions) {
    checkOptions("options", options, CHECKS);
    this.#parts = parts;
    this.#options = options;
  }

  /** Resolves after a stop. Rejects when the service refuses the watch for good. */
  async run(): Promise<void> {
    const { stopping } = this.#parts.core;
    const { lostAfterMs = LOST_AFTER_MS } = this.#options;
    const timer = setInterval(() => void this.#look(), Math.min(LOOK_MS, lostAfterMs));
    try {
      await this.#takeOverOwn();
      await this.#addLeft();
      await this.#watch();
    } catch (error) {
      if (!stopping.aborted) throw error;
    } finally {
      clearInterval(timer);
      await Promise.all(this.#served.values());
    }
  }

  async #watch(): Promise<void> {
    const { core } = this.#parts;
    const { stopping: signal } = core;
    const retries = new Retries({ ...core.retry(""), signal });
    const request = { ...this.#filter(), waiting: true, stateFrames: true };
    while (!signal.aborted) {
      try {
        for await (const event of core.client.watch(ledger.watchSessions, request, { signal })) {
          if (event.watchState === WatchState.LIVE) {
            retries.succeeded();
            void this.#look();
          } else if (event.session !== undefined && event.type !== EventType.DELETED) {
            this.#add(event.resourceId, 0n);
          }
        }
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof RpcFailure && retries.mayRepeat(error))) throw error;
        await retries.pauseAfter(error);
      }
    }
  }

  /** Never rejects: the next look does the same. One at a time. */
  #look(): Promise<void> {
    this.#looking ??= this.#lookOnce()
      .catch((error: unknown) => this.#reportProblem("", error))
      .finally(() => {
        this.#looking = undefined;
      });
    return this.#looking;
  }

  async #lookOnce(): Promise<void> {
    const openRuns = new Map<string, string>();
    this.#hasMore = false;
    for await (const { metadata, openRunId } of this.#list({ waiting: true })) {
      const id = metadata?.id ?? "";
      if (openRunId === undefined) this.#add(id, 0n);
      else if (!this.#served.has(id)) openRuns.set(id, openRunId);
    }
    const openBefore = this.#openRuns;
    this.#openRuns = openRuns;
    for (const [id, runId] of openRuns) {
      if (openBefore.get(id) === runId && (await this.#isLost(id))) await this.#takeOver(id, runId);
    }
  }

  async #isLost(sessionId: string): Promise<boolean> {
    const newest = { sessionId, descending: true, pageSize: 1 };
    const { items } = await this.#call((options) =>
      this.#parts.core.client.call(ledger.listSessionEvents, newest, options),
    );
    const [row] = items;
    const at = row?.completedAt ?? row?.createdAt;
    const { lostAfterMs = LOST_AFTER_MS } = this.#options;
    return at !== undefined && Date.now() - timestampMs(at) > lostAfterMs;
  }

  /** Takes over the runs that this runner had open when it was killed. */
  async #takeOverOwn(): Promise<void> {
    const { name } = this.#parts.core.options;
    if (name === undefined) return;
    for await (const { metadata, openRunId } of this.#list({ running: true })) {
      await this.#takeOver(metadata?.id ?? "", openRunId ?? "", name);
    }
  }

  /** With a name: only a run of the runner with this name. */
  async #takeOver(sessionId: string, runId: string, name?: string): Promise<void> {
    const start = { sessionId, runId, eventTypes: ["RUN_STARTED"], pageSize: 1 };
    const { items } = await this.#call((options) =>
      this.#parts.core.client.call(ledger.listSessionEvents, start, options),
    );
    const { runner, epoch } = beginningOf(items[0]?.payload ?? "");
    // A run that nobody claimed has no epoch, and its runner cannot be fenced.
    if (epoch === undefined || (name !== undefined && runner !== name)) return;
    this.#add(sessionId, epoch + 1n);
  }

  /** Sessions with a file that an earlier process has left: serving them sends it. */
  async #addLeft(): Promise<void> {
    const { file } = this.#parts.core.options.spool ?? {};
    if (file === undefined) return;
    const names = await readdir(dirname(file)).catch((): string[] => []);
    const prefix = `${basename(file)}.`;
    for (const name of names.filter((one) => one.startsWith(prefix) && !OF_A_SPOOL.test(one))) {
      const id = name.slice(prefix.length);
      if (isSessionId(id) && !this.#queue.has(id)) this.#add(id, 0n);
    }
  }

  async *#list(of: {
    readonly waiting?: boolean;
    readonly running?: boolean;
  }): AsyncGenerator<SessionRow, void, undefined> {
    const orderBy = of.waiting === true ? SessionOrder.WAITING : SessionOrder.UNSPECIFIED;
    let pageToken = "";
    do {
      const request = { ...this.#filter(), ...of, orderBy, size: PAGE_SIZE, pageToken };
      const page = await this.#call((options) =>
        this.#parts.core.client.call(ledger.listSessions, request, options),
      );
      yield* page.items;
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  #filter() {
    const { labels, projectId } = this.#options;
    return {
      ...(labels !== undefined && { labels: { ...labels } }),
      ...(projectId !== undefined && { projectId }),
    };
  }

  #call<T>(call: (options: object) => Promise<T>): Promise<T> {
    const { core } = this.#parts;
    return call({ ...core.retry(""), signal: core.stopping });
  }

  #add(id: string, epoch: bigint): void {
    if (this.#served.has(id)) this.#readded.set(id, epoch);
    else if (this.#queue.size < QUEUE_MAX || this.#queue.has(id)) this.#queue.set(id, epoch);
    else this.#hasMore = true;
    this.#fill();
  }

  #fill(): void {
    const { stopping } = this.#parts.core;
    const { atOnce = AT_ONCE } = this.#options;
    for (const [id, epoch] of this.#queue) {
      if (this.#served.size >= atOnce || stopping.aborted) return;
      this.#queue.delete(id);
      this.#served.set(id, this.#serve(id, epoch));
    }
    if (this.#hasMore) void this.#look();
  }

  /** Never rejects. */
  async #serve(id: string, epoch: bigint): Promise<void> {
    try {
      await this.#parts.serve(id, epoch);
    } catch (error) {
      if (!isLate(error)) this.#reportProblem(id, error);
    }
    this.#keep(id);
    this.#served.delete(id);
    const again = this.#readded.get(id);
    this.#readded.delete(id);
    if (again !== undefined) this.#queue.set(id, again);
    this.#fill();
  }

  /** The adapters of the sessions that were served last stay, for their next turn. */
  #keep(id: string): void {
    this.#idle.delete(id);
    this.#idle.add(id);
    const [oldest] = this.#idle;
    if (oldest === undefined || this.#idle.size <= ADAPTERS_KEPT_MAX) return;
    this.#idle.delete(oldest);
    if (!this.#served.has(oldest)) this.#parts.core.bridge.forget(oldest);
  }

  #reportProblem(sessionId: string, error: unknown): void {
    const { core } = this.#parts;
    if (!core.stopping.aborted)
      core.reportProblem({ kind: "left", sessionId, message: textOf(error) });
  }
}

/** Another runner was quicker, or has taken over; or the session is gone. */
function isLate(error: unknown): boolean {
  if (!(error instanceof RpcFailure)) return false;
  return ["RUN_OPEN", "STALE_EPOCH"].includes(error.reason ?? "") || error.code === "NOT_FOUND";
}

/** The runner and the epoch that a claim has written into RUN_STARTED. */
function beginningOf(started: string): {
  readonly runner: unknown;
  readonly epoch: bigint | undefined;
} {
  const metadata = objectIn(started)?.["metadata"];
  if (!isObject(metadata)) return { runner: undefined, epoch: undefined };
  const { runner, session } = metadata;
  const epoch = isObject(session) ? session["producerEpoch"] : undefined;
  return { runner, epoch: typeof epoch === "string" ? BigInt(epoch) : undefined };
}

const CHECKS: Checks<PoolOptions> = {
  atOnce: integer(1, 1_000),
  labels: unchecked,
  projectId: unchecked,
  lostAfterMs: integer(1_000, 2 ** 31 - 1),
};
