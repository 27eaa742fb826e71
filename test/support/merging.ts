/** Streams as a compressing runner pushes them, for tests that expand rows. */
import { fromBinary } from "@bufbuild/protobuf";
import { type Fragments, FragmentsSchema } from "@session-ledger/proto/ambient/v1/compression_pb";
import {
  type CompressedRow,
  Compressor,
  COMPRESSOR_LIMITS,
  type CompressorLimits,
  type IncomingEvent,
} from "@session-ledger/compressor/compressor";
import { checkFragments, encodeFragments } from "@session-ledger/compressor/fragments";
import type { StreamEvent } from "./streams.ts";
import { expand, type RawEvent } from "@session-ledger/compressor/expand";
import { expect } from "vitest";
import { ledger, type LedgerClient } from "@session-ledger/runner/internal/client";

export interface MergedEvent extends StreamEvent {
  readonly eventCount: number;
  /** Undefined for a single event. */
  readonly fragments: Fragments | undefined;
}

/** All rows of a stream without time between its events. A text may have any size, for large rows. */
export function mergeFragments(
  events: readonly StreamEvent[],
  { eventsMax = COMPRESSOR_LIMITS.eventsMax } = {},
): readonly MergedEvent[] {
  const timed = events.map((event) => ({ ...event, createdAtMicros: 0n }));
  return compressAll(timed, { eventsMax, textBytesMax: Number.POSITIVE_INFINITY }).map(
    ({ eventType, payload, eventCount, fragments: index }) => ({
      eventType,
      payload,
      eventCount,
      fragments: index && fromBinary(FragmentsSchema, encodeFragments(index)),
    }),
  );
}

// Whole streams through the compressor and back.

const NOW_MS = 0;

/** All rows of events that arrived at the same time. */
export function compressAll<E extends IncomingEvent>(
  events: readonly E[],
  limits: Partial<CompressorLimits> = {},
): readonly CompressedRow<E>[] {
  const compressor = new Compressor<E>(limits);
  const rows = events.flatMap((event) => compressor.push(event, NOW_MS));
  const last = compressor.flush();
  return last === undefined ? rows : [...rows, last];
}

/** The rows as a reader gets them after storing: numbers from 1, and the index as bytes. */
export function expandAll(rows: readonly CompressedRow[], afterSeq = 0n): readonly RawEvent[] {
  let seq = 1n;
  return rows.flatMap((row) => {
    const encoded = row.fragments && encodeFragments(row.fragments);
    const stored = { ...row, seq, fragments: encoded };
    seq += BigInt(row.eventCount);
    return [...expand(stored, afterSeq)];
  });
}

// Hand-written events and the rows they become, which must expand to the same events.

export type Fields = Readonly<Record<string, unknown>>;

const CREATED_AT = 1_770_389_237_000_000n;

/** A payload as it is spelled, or as JSON.stringify spells it. */
export function eventOf(payload: Fields | string, createdAtMicros = CREATED_AT): IncomingEvent {
  const text = typeof payload === "string" ? payload : JSON.stringify(payload);
  const type = /"type": ?"(\w+)"/.exec(text)?.[1] ?? "";
  return { eventType: type, payload: text, createdAtMicros };
}

export function said(messageId: string, delta: unknown, more: Fields = {}): Fields {
  return { type: "TEXT_MESSAGE_CONTENT", messageId, delta, ...more };
}

export function rowsOf(
  payloads: readonly (Fields | string)[],
  limits: Partial<CompressorLimits> = {},
): readonly CompressedRow[] {
  const events = payloads.map((payload) => eventOf(payload));
  const rows = compressAll(events, limits);
  const texts = (list: readonly { readonly payload: string }[]) => list.map((one) => one.payload);
  expect(texts(expandAll(rows))).toEqual(texts(events));
  for (const row of rows)
    if (row.fragments !== undefined) expect(checkFragments(row, row.fragments)).toEqual([]);
  return rows;
}

/** The number of events of each row. */
export function countsOf(
  payloads: readonly (Fields | string)[],
  limits: Partial<CompressorLimits> = {},
): readonly number[] {
  return rowsOf(payloads, limits).map(({ eventCount }) => eventCount);
}

// Merged rows pushed to a running service, as a runner that compresses will push them.

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
