/**
 * The promises of cancels as one question, asked of the rows of a session whose runs are all
 * cancelled: an acknowledged cancel is in the log, once, and its run has ended, once.
 */
import type { Row } from "./history.ts";

export interface CancelRecord {
  readonly runId: string;
  /** The number of the message; undefined: the cancel was not acknowledged. */
  seq: bigint | undefined;
}

export interface CancelledSession {
  readonly sessionId: string;
  /** The rows of the session, in order. */
  readonly messages: readonly Row[];
  readonly events: readonly Row[];
  readonly cancels: readonly CancelRecord[];
}

const ENDS: ReadonlySet<string> = new Set(["RUN_FINISHED", "RUN_ERROR"]);

export function cancelProblemsOf(session: CancelledSession): readonly string[] {
  const { sessionId, messages, events, cancels } = session;
  const stored = messages.map(({ seq, payload }) => ({
    seq,
    text: JSON.parse(payload) as unknown,
  }));
  return cancels.flatMap(({ runId, seq }) => {
    if (seq === undefined) return [];
    const own = stored.filter(({ text }) => JSON.stringify(text).includes(JSON.stringify(runId)));
    const ends = events.filter((row) => row.runId === runId && ENDS.has(row.eventType)).length;
    const told = `${sessionId}: the cancel of run ${runId}`;
    return [
      ...(own.some((one) => one.seq === seq) ? [] : [`${told} is not there as message ${seq}`]),
      ...(own.length <= 1 ? [] : [`${told} is there ${own.length} times`]),
      ...(ends === 1 ? [] : [`${told} was answered, and the run has ${ends} ends`]),
    ];
  });
}
