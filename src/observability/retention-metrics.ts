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
      help: "Erased rows, by stream and cause (retention, erase).",
      labelNames: ["stream", "by"],
      registers,
    }),
    retentionPassed: new Gauge({
      name: "session_ledger_retention_passed_timestamp_seconds",
      help: "Time of the last complete pass of retention; 0 before.",
      registers,
    }),
    retentionFailures: new Counter({
      name: "session_ledger_retention_failures_total",
      help: "Failed passes of retention; the next one continues.",
      registers,
    }),
  };
}
