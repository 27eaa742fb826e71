/** Events as the rows that an export of a history reads. */
import type { HistoryRow } from "@session-ledger/history/to-history";

export function historyRows(
  events: readonly { readonly type?: unknown }[],
  createdAtMs: number,
): readonly HistoryRow[] {
  return events.map((event, at) => ({
    seq: BigInt(at + 1),
    eventType: String(event.type),
    payload: JSON.stringify(event),
    createdAtMicros: BigInt(createdAtMs) * 1_000n,
  }));
}

/** The texts under a name, joined; values that are no text count as none. */
export function joinedTexts(
  events: readonly Readonly<Record<string, unknown>>[],
  name: string,
): string {
  return events.map(({ [name]: text }) => (typeof text === "string" ? text : "")).join("");
}
