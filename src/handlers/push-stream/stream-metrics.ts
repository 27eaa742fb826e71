import type { Metrics } from "../../observability/metrics.ts";
import { countRenamed, type RenamedRow } from "../new-row.ts";

/** The next event, its age, the caller's flush, bytes, a unary push, the end of the stream. */
export const GROUP_CLOSINGS = ["event", "age", "flush", "bytes", "push", "end"] as const;
export type GroupClosing = (typeof GROUP_CLOSINGS)[number];

export type PushStreamMetrics = Pick<
  Metrics,
  | "pushStreams"
  | "pushStreamEvents"
  | "pushStreamRefused"
  | "pushStreamRows"
  | "pushStreamBytes"
  | "pushStreamGroups"
  | "pushStreamPauses"
  | "aguiRenamed"
>;

/** For all push streams of this replica, once per hand-over: once per event would be too often. */
export class StreamMetrics {
  readonly #metrics: PushStreamMetrics;
  readonly #groups: ReadonlyMap<GroupClosing, { inc(): void }>;

  constructor(metrics: PushStreamMetrics) {
    this.#metrics = metrics;
    this.#groups = new Map(
      GROUP_CLOSINGS.map((by) => [by, metrics.pushStreamGroups.labels({ by })]),
    );
  }

  setStreams(open: number): void {
    this.#metrics.pushStreams.set(open);
  }

  onGroupClose(by: GroupClosing): void {
    this.#groups.get(by)?.inc();
  }

  onPause(): void {
    this.#metrics.pushStreamPauses.inc();
  }

  onHandover(
    {
      events,
      refused,
      payloadBytes,
    }: Readonly<Record<"events" | "refused" | "payloadBytes", number>>,
    rows: number,
  ): void {
    this.#metrics.pushStreamEvents.inc(events);
    if (refused > 0) this.#metrics.pushStreamRefused.inc(refused);
    this.#metrics.pushStreamRows.inc(rows);
    this.#metrics.pushStreamBytes.inc(payloadBytes);
  }

  onRename(rows: readonly RenamedRow[]): void {
    countRenamed(this.#metrics, rows);
  }

  onSettle(payloadBytes: number): void {
    this.#metrics.pushStreamBytes.dec(payloadBytes);
  }
}
