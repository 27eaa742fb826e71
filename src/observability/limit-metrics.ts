/** Metrics of use against the limits of callers and sessions; docs/limits.md lists them. */
import type { Clock } from "@session-ledger/base/clock";
import type { Budget } from "../base/budget.ts";
import type { Instruments } from "./instruments.ts";

const USED_LIMITS = [
  "principal_bytes_per_second",
  "session_bytes_per_second",
  "session_rows",
  "session_bytes",
  "windows_bytes",
  "exports",
] as const;
export type UsedLimit = (typeof USED_LIMITS)[number];

type SharedLimit = "bytes" | "watches" | "feeds" | "push_streams" | "exports" | "replays";

type SharedPool = Pick<Budget, "used" | "callers" | "refused">;

/** A peak is shown for at least this long, and for at most twice as long. */
const SPAN_MS = 60_000;

/** The highest share of a limit in this span or the last: a scrape a minute sees all peaks. */
export class LimitUse {
  readonly shared = new Map<SharedLimit, SharedPool>();
  readonly #clock: Clock;
  #beganMs: number;
  #shares = new Map<UsedLimit, number>();
  #sharesBefore = new Map<UsedLimit, number>();
  readonly #watched = new Map<UsedLimit, () => number>();

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#beganMs = clock.monotonicMs();
  }

  /** For a limit that callers share in fair parts. */
  share(limit: SharedLimit, pool: SharedPool): void {
    this.shared.set(limit, pool);
  }

  /** For a limit whose use can be read at any time. */
  watch(limit: UsedLimit, share: () => number): void {
    this.#watched.set(limit, share);
  }

  note(limit: UsedLimit, share: number): void {
    const passedMs = this.#clock.monotonicMs() - this.#beganMs;
    if (passedMs >= SPAN_MS) this.#turn(passedMs);
    if (share > (this.#shares.get(limit) ?? 0)) this.#shares.set(limit, share);
  }

  highest(limit: UsedLimit): number {
    this.note(limit, this.#watched.get(limit)?.() ?? 0);
    return Math.max(this.#shares.get(limit) ?? 0, this.#sharesBefore.get(limit) ?? 0);
  }

  #turn(passedMs: number): void {
    this.#sharesBefore = passedMs < 2 * SPAN_MS ? this.#shares : new Map();
    this.#shares = new Map();
    this.#beganMs += passedMs;
  }
}

export type LimitMetrics = ReturnType<typeof limitInstruments>;

export function limitInstruments(make: Instruments, clock: Clock) {
  const limitUse = new LimitUse(clock);
  make.gauge(
    "limit_used_ratio",
    "Highest share of a limit that a caller or session used in the last one to two minutes; above 1 is a debt of push streams.",
    ["limit"],
    (gauge) => {
      for (const limit of USED_LIMITS) gauge.set({ limit }, limitUse.highest(limit));
    },
  );
  sharedInstruments(limitUse.shared, make);
  return {
    /** For limits of single callers and sessions, and for limits without a gauge of their own. */
    limitUse,
    rateBuckets: make.gauge("rate_buckets", "Remembered callers and sessions.", ["of"]),
    pushStreamPauses: make.counter(
      "push_stream_pauses_total",
      "Pauses of push streams above the rate of their caller or session.",
    ),
  };
}

function sharedInstruments(shared: ReadonlyMap<SharedLimit, SharedPool>, make: Instruments): void {
  const gauge = (name: string, help: string, of: (pool: SharedPool) => number): unknown =>
    make.gauge(name, help, ["limit"], (one) => {
      for (const [limit, pool] of shared) one.set({ limit }, of(pool));
    });
  const counter = (name: string, help: string, of: (pool: SharedPool) => number): unknown =>
    make.counter(name, help, ["limit"], (one) => {
      one.reset();
      for (const [limit, pool] of shared) one.inc({ limit }, of(pool));
    });
  gauge(
    "shared_limit_held",
    "Used part of the shared limits, by limit (bytes, watches, feeds, push_streams, exports, replays).",
    ({ used }) => used,
  );
  gauge("shared_limit_callers", "Callers that use a shared limit.", ({ callers }) => callers);
  counter(
    "shared_limit_refused_total",
    "Calls that found no room: their caller has half of what the others leave.",
    ({ refused }) => refused,
  );
}
