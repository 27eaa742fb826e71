import { Counter, Gauge, type Registry } from "prom-client";

/** What is counted of how near callers and sessions come to their limits; docs/limits.md has all of them. */
export interface LimitMetrics {
  /** Of limits that differ from caller to caller and session to session, or that have no gauge of their own. */
  readonly limitUse: LimitUse;
  /** Callers and sessions whose pushes of the last second are remembered. */
  readonly rateBuckets: Gauge<"of">;
  /** Times that a push stream was read later, because its caller or session was above its rate. */
  readonly pushStreamPauses: Counter;
}

const USED_LIMITS = [
  "principal_messages_per_second",
  "principal_bytes_per_second",
  "session_messages_per_second",
  "session_bytes_per_second",
  "session_rows",
  "session_bytes",
  "windows_bytes",
  "exports",
] as const;
export type UsedLimit = (typeof USED_LIMITS)[number];

/** The highest share of each limit that anybody used since it was last asked for. */
export class LimitUse {
  #shares = new Map<UsedLimit, number>();
  readonly #watched = new Map<UsedLimit, () => number>();

  /** Of a limit whose use can be asked for at any time. */
  watch(limit: UsedLimit, share: () => number): void {
    this.#watched.set(limit, share);
  }

  note(limit: UsedLimit, share: number): void {
    if (share > (this.#shares.get(limit) ?? 0)) this.#shares.set(limit, share);
  }

  taken(): ReadonlyMap<UsedLimit, number> {
    for (const [limit, share] of this.#watched) this.note(limit, share());
    const shares = this.#shares;
    this.#shares = new Map();
    return shares;
  }
}

export function limitInstruments(registers: Registry[]): LimitMetrics {
  const limitUse = new LimitUse();
  // Registered, and so read by whoever reads the metrics.
  void new Gauge({
    name: "session_ledger_limit_used_ratio",
    help: "The highest share of a limit that a caller or session has used since the metrics were last read; above 1 is a debt, and push streams wait.",
    labelNames: ["limit"],
    registers,
    collect() {
      const shares = limitUse.taken();
      for (const limit of USED_LIMITS) this.set({ limit }, shares.get(limit) ?? 0);
    },
  });
  return {
    limitUse,
    rateBuckets: new Gauge({
      name: "session_ledger_rate_buckets",
      help: "Callers and sessions whose pushes of the last second are remembered, or were not forgotten yet.",
      labelNames: ["of"],
      registers,
    }),
    pushStreamPauses: new Counter({
      name: "session_ledger_push_stream_pauses_total",
      help: "Times that a push stream was read later, because its caller or session was above its rate.",
      registers,
    }),
  };
}
