/**
 * What an upstream runner would store of a stream, for comparison: adjacent CONTENT or ARGS of one id
 * are one row, whatever else their payloads say; everything else is a row of its own. The row keeps
 * the first payload with the deltas joined, so the borders of the tokens and the later times are lost.
 */
import type { StreamEvent } from "../support/streams.ts";

export interface TimedEvent extends StreamEvent {
  /** When it arrives. */
  readonly atMs: number;
}

/** The payloads of the rows. */
export function upstreamRows(
  events: readonly TimedEvent[],
  { maxAgeMs }: { readonly maxAgeMs: number },
): readonly string[] {
  const rows: string[] = [];
  let group:
    | { readonly id: string; readonly fromMs: number; readonly payloads: string[] }
    | undefined;
  const close = (): void => {
    if (group !== undefined) rows.push(joined(group.payloads));
    group = undefined;
  };
  for (const { eventType, payload, atMs } of events) {
    const id = fragmentId(eventType, payload);
    if (id === undefined) {
      close();
      rows.push(payload);
    } else if (group !== undefined && group.id === id && atMs - group.fromMs < maxAgeMs) {
      group.payloads.push(payload);
    } else {
      close();
      group = { id, fromMs: atMs, payloads: [payload] };
    }
  }
  close();
  return rows;
}

/** Undefined for what never merges. Producers that spell their fields in snake_case have ids too. */
function fragmentId(eventType: string, payload: string): string | undefined {
  if (!/_(CONTENT|ARGS)$/.test(eventType)) return undefined;
  const event: Record<string, unknown> = JSON.parse(payload);
  const ids = ["messageId", "message_id", "toolCallId", "tool_call_id"].map((key) => event[key]);
  return JSON.stringify([eventType, ...ids]);
}

function joined(payloads: readonly string[]): string {
  const [first = "", ...others] = payloads;
  if (others.length === 0) return first;
  const event: Record<string, unknown> = JSON.parse(first);
  return JSON.stringify({ ...event, delta: payloads.map(deltaOf).join("") });
}

function deltaOf(payload: string): string {
  const { delta }: { readonly delta?: unknown } = JSON.parse(payload);
  return typeof delta === "string" ? delta : "";
}
