/**
 * Counts events that are out of the order the protocol asks for. They are stored all the same: the log
 * of a crashed runner is exactly the one somebody will read.
 */
import type { EventRow as AguiRow } from "../agui/rows.ts";
import { SEQUENCE_RULES } from "../agui/sequence.ts";
import { createSequences, SEQUENCES_LIMITS } from "../agui/sequences.ts";
import type { Metrics } from "../observability/metrics.ts";
import type { StoredRow } from "../store/rows.ts";

type Observable = Pick<AguiRow, "place" | "eventCount" | "renamed">;

export interface OrderObserver {
  /**
   * The stored rows of one push, and what they were made of. To be called as soon as the push is
   * acknowledged: in the order of commits. Later costs detection, and never counts falsely.
   */
  observe(rows: readonly StoredRow[], accepted: readonly Observable[]): void;
}

export function createOrderObserver(
  metrics: Pick<Metrics, "sequenceViolations" | "aguiRenamed">,
): OrderObserver {
  const sequences = createSequences(SEQUENCES_LIMITS);
  // Asked for once a rule: a session that is out of order is so with every event.
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
