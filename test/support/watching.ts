/** Live delivery over a slow table, and callers that record their rows. */
import { systemClock } from "../../src/base/clock.ts";
import { createLive, type Live } from "../../src/live/live.ts";
import { LIVE_LIMITS, type LiveLimits } from "../../src/live/limits.ts";
import type { Standing } from "../../src/live/watcher.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics, type Metrics } from "../../src/observability/metrics.ts";
import type { StreamName } from "../../src/store/rows.ts";
import { ManualTimers, SlowTable } from "./slow-table.ts";

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
  const live = createLive(
    { reader: table, clock: systemClock, timers, metrics, log },
    { ...LIVE_LIMITS, ...limits },
  );
  return { table, timers, metrics, live };
}

/** Pulls all the time, unless it is told to pause. */
export class Follower {
  readonly controller = new AbortController();
  readonly seqs: bigint[] = [];
  readonly standings: { readonly standing: Standing; readonly seq: bigint }[] = [];
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
      else this.standings.push({ standing: delivery.standing, seq: delivery.seq });
      await this.#still?.promise;
    }
  }
}
