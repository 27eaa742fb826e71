/**
 * Counts events that break the order of the protocol. The service stores such events too, because
 * people read the logs of crashed runners.
 */
import type { EventRow as AguiRow } from "../agui/rows.ts";
import { SEQUENCE_RULES, Sequences } from "../agui/sequence.ts";
import type { Metrics } from "../observability/metrics.ts";
import type { StoredRow } from "../store/rows.ts";

type Observable = Pick<AguiRow, "place" | "eventCount" | "renamed">;

export interface OrderObserver {
  /**
   * Observes the stored rows of one push and their sources. The caller calls it as soon as the push
   * is acknowledged, in the order of commits. A late call misses violations and never counts a
   * false one.
   */
  observe(rows: readonly StoredRow[], accepted: readonly Observable[]): void;
}

export function createOrderObserver(
  metrics: Pick<Metrics, "sequenceViolations" | "aguiRenamed">,
): OrderObserver {
  const sequences = new Sequences();
  // Looked up once per rule: in a session that is out of order, every event may count.
  const counters = new Map(
    SEQUENCE_RULES.map((rule) => [rule, metrics.sequenceViolations.labels({ rule })]),
  );
  return {
    observe(rows, accepted) {
      for (const [index, { sessionId, seq }] of rows.entries()) {
        const { place, eventCount = 1, renamed } = accepted[index] ?? {};
        if (renamed !== undefined) metrics.aguiRenamed.inc({ field: renamed });
        const rule = sequences.observe(sessionId, { seq, eventCount, place });
        if (rule !== undefined) counters.get(rule)?.inc();
      }
    },
  };
}
