/**
 * Merges fragments the plain way, for tests of what takes them apart again: events as objects, printed
 * by JSON.stringify. It shares no code with src/compressor. It keeps the promise only for payloads
 * that JSON.stringify has printed, and looks neither at size nor at age.
 */
import { isCompressible } from "../../src/agui/catalogue.ts";
import type { StreamEvent } from "./streams.ts";

export interface MergedEvent extends StreamEvent {
  readonly eventCount: number;
  /** Of every row that could have been merged, alone or not. */
  readonly fragments:
    | { readonly lengths: number[]; readonly timestampDeltasMs: bigint[] }
    | undefined;
}

/** Consecutive fragments that differ in `delta` and `timestamp` only become one row, up to `eventsMax`. */
export function mergeFragments(
  events: readonly StreamEvent[],
  { eventsMax = Number.POSITIVE_INFINITY } = {},
): readonly MergedEvent[] {
  const groups: StreamEvent[][] = [];
  for (const event of events) {
    const group = groups.at(-1);
    const first = group?.[0];
    if (first && group.length < eventsMax && mergeKey(first) === mergeKey(event)) group.push(event);
    else groups.push([event]);
  }
  return groups.map(merged);
}

function mergeKey({ eventType, payload }: StreamEvent): unknown {
  if (!isCompressible(eventType)) return Symbol("never the same");
  const { value, delta, timestamp } = read(payload);
  const others = { ...value };
  if (delta !== undefined) others["delta"] = "";
  if (timestamp !== undefined) others["timestamp"] = 0;
  return JSON.stringify(others);
}

function merged(group: readonly StreamEvent[]): MergedEvent {
  const [first] = group;
  if (first === undefined) throw new Error("a group has an event");
  if (!isCompressible(first.eventType)) return { ...first, eventCount: 1, fragments: undefined };
  const parts = group.map(({ payload }) => read(payload));
  const deltas = parts.map(({ delta }) => delta);
  const times = parts.flatMap(({ timestamp }) => (timestamp === undefined ? [] : [timestamp]));
  const { value } = read(first.payload);
  const joined = deltas.includes(undefined) ? {} : { delta: deltas.join("") };
  return {
    eventType: first.eventType,
    payload: JSON.stringify({ ...value, ...joined }),
    eventCount: group.length,
    fragments: {
      lengths: deltas.map((delta) => (delta === undefined ? 0 : delta.length + 1)),
      timestampDeltasMs: times.slice(1).map((time, at) => BigInt(time) - BigInt(times[at] ?? 0)),
    },
  };
}

function read(payload: string) {
  const value: Record<string, unknown> = JSON.parse(payload);
  const { delta, timestamp } = value;
  return {
    value,
    delta: typeof delta === "string" ? delta : undefined,
    timestamp: typeof timestamp === "number" ? timestamp : undefined,
  };
}
