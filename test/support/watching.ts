/** Live delivery over a slow table, and callers that record their rows. */
import { systemClock } from "@session-ledger/base/clock";
import { Live } from "../../src/live/live.ts";
import { LIVE_LIMITS, type LiveLimits } from "../../src/live/limits.ts";
import type { LiveState } from "../../src/live/watcher.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics, type Metrics } from "../../src/observability/metrics.ts";
import type { StreamName } from "../../src/store/rows.ts";
import { ManualTimers, SlowTable } from "./slow-table.ts";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { EventTypeSchema, WatchState } from "@session-ledger/proto/ambient/v1/common_pb";
import {
  SessionService,
  type SessionWatchEvent,
  type WatchSessionsRequestSchema,
} from "@session-ledger/proto/ambient/v1/sessions_pb";
import type { CallOptions, MessageStream, RpcClient } from "./grpc-client.ts";
import { capped } from "./eventually.ts";

export interface Watching {
  readonly table: SlowTable;
  readonly timers: ManualTimers;
  readonly metrics: Metrics;
  readonly live: Live;
}

export function watching(limits: Partial<LiveLimits> = {}): Watching {
  const table = new SlowTable();
  const timers = new ManualTimers();
  const metrics = createMetrics();
  const log = createLogTo({ write: () => undefined }, "silent");
  const live = new Live(
    { reader: table, clock: systemClock, timers, metrics, log },
    { ...LIVE_LIMITS, ...limits },
  );
  return { table, timers, metrics, live };
}

/** Pulls all the time, unless it is told to pause. */
export class Follower {
  readonly controller = new AbortController();
  readonly seqs: bigint[] = [];
  readonly standings: { readonly standing: LiveState; readonly seq: bigint }[] = [];
  /** The error that ended the watch; `null` for an end without an error. */
  ended: unknown;
  #still: PromiseWithResolvers<void> | undefined;

  constructor(live: Live, watch: { sessionId: string; stream?: StreamName; after?: bigint }) {
    const { sessionId, stream = "events", after = 0n } = watch;
    this.#run(live, { sessionId, stream, after }).then(
      () => (this.ended = null),
      (error: unknown) => (this.ended = error),
    );
  }

  standStill(): void {
    this.#still = Promise.withResolvers();
  }

  goOn(): void {
    this.#still?.resolve();
    this.#still = undefined;
  }

  leave(): void {
    this.controller.abort();
  }

  async #run(
    live: Live,
    watch: { readonly sessionId: string; readonly stream: StreamName; readonly after: bigint },
  ): Promise<void> {
    const { sessionId, stream, after } = watch;
    const { signal } = this.controller;
    const watcher = await live.attach({ stream, sessionId, signal });
    for await (const delivery of watcher.follow({ after, until: undefined })) {
      if (delivery.kind === "rows") this.seqs.push(...delivery.rows.map((row) => row.seq));
      else this.standings.push({ standing: delivery.state, seq: delivery.seq });
      await this.#still?.promise;
    }
  }
}

// A watch of sessions that remembers what it was told.

export type Filters = Omit<
  Exclude<MessageInitShape<typeof WatchSessionsRequestSchema>, { $typeName: string }>,
  "stateFrames"
>;

export class SessionWatcher implements AsyncDisposable {
  readonly states: WatchState[] = [];
  readonly #events: MessageStream<SessionWatchEvent>;

  constructor(client: RpcClient, filters: Filters = {}, options: CallOptions = {}) {
    const request = { ...filters, stateFrames: true };
    this.#events = client.serverStream(SessionService.method.watchSessions, request, options);
  }

  /** From here on it misses nothing. */
  static async live(...watch: ConstructorParameters<typeof SessionWatcher>) {
    const watcher = new SessionWatcher(...watch);
    await watcher.state(WatchState.LIVE);
    return watcher;
  }

  async next(): Promise<SessionWatchEvent> {
    const { value, done } = await capped(this.#events.next());
    if (done === true) throw new Error("the watch has ended");
    if (value.watchState !== WatchState.UNSPECIFIED) this.states.push(value.watchState);
    return value;
  }

  /** Throws when a change comes before that state. */
  async state(wanted: WatchState): Promise<void> {
    for (;;) {
      const event = await this.next();
      if (event.watchState === wanted) return;
      if (event.watchState === WatchState.UNSPECIFIED) throw new Error(`not ${wanted}`);
    }
  }

  /** The next change of that session, in words; other sessions and states are passed over. */
  async of(sessionId: string): Promise<readonly unknown[]> {
    for (;;) {
      const event = await this.next();
      if (event.resourceId === sessionId) return words(event);
    }
  }

  /** The ids of the next changes, up to that session. */
  async upTo(sessionId: string): Promise<readonly string[]> {
    const ids: string[] = [];
    while (ids.at(-1) !== sessionId) {
      const { resourceId } = await this.next();
      if (resourceId !== "") ids.push(resourceId);
    }
    return ids;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#events.cancel();
    await this.#events.return?.().catch(() => undefined);
  }
}

/** The change, the number of waiting messages, and the open run. */
export function words({ type, session }: SessionWatchEvent): readonly unknown[] {
  const rest = session === undefined ? [] : [session.waiting, session.openRunId];
  return [EventTypeSchema.value[type]?.localName, ...rest];
}
