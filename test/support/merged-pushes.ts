/** Merged rows pushed to a running service, as a runner that compresses will push them. */
import { ledger, type LedgerClient } from "../../src/runner/client.ts";
import { type MergedEvent, mergeFragments } from "./merging.ts";
import type { StreamEvent } from "./streams.ts";

/** Events as `count` fragments of one message, each `payloadBytes` or a little more. */
export function fragments(
  count: number,
  { messageId = "m", payloadBytes = 0 }: { messageId?: string; payloadBytes?: number } = {},
): readonly StreamEvent[] {
  const type = "TEXT_MESSAGE_CONTENT";
  const rawEvent = "x".repeat(payloadBytes);
  return Array.from({ length: count }, (_, at) => ({
    eventType: type,
    payload: JSON.stringify({ type, messageId, timestamp: 1_000 + at, rawEvent, delta: ` ${at}` }),
  }));
}

/** Merges and pushes one row after the other; returns the rows as pushed. */
export async function pushMerged(
  client: LedgerClient,
  sessionId: string,
  events: readonly StreamEvent[],
  options: { readonly eventsMax?: number } = {},
): Promise<readonly MergedEvent[]> {
  const rows = mergeFragments(events, options);
  for (const { eventType, payload, eventCount, fragments: index } of rows) {
    const merged = index === undefined ? {} : { eventCount, fragments: index };
    await client.call(ledger.pushSessionEvent, { sessionId, eventType, payload, ...merged });
  }
  return rows;
}
