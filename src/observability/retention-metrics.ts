import { Counter, Gauge, type Registry } from "prom-client";

/** Counters of erased rows. */
export interface RetentionMetrics {
  /** `by`: retention, or the erasure of a whole session. */
  readonly rowsErased: Counter<"stream" | "by">;
  readonly retentionPassed: Gauge;
  readonly retentionFailures: Counter;
}

export function retentionInstruments(registers: Registry[]): RetentionMetrics {
  return {
    rowsErased: new Counter({
      name: "session_ledger_rows_erased_total",
      help: "Rows that were erased, by stream and by what did it (retention, erase).",
      labelNames: ["stream", "by"],
      registers,
    }),
    retentionPassed: new Gauge({
      name: "session_ledger_retention_passed_timestamp_seconds",
      help: "When this instance last went through all sessions; 0 before, and without RETENTION_AFTER.",
      registers,
    }),
    retentionFailures: new Counter({
      name: "session_ledger_retention_failures_total",
      help: "Passes of retention that failed; what they did is done, and the next one goes on.",
      registers,
    }),
  };
}
