/**
 * What merging saves, per agent and in total: rows and bytes for upstream's rules and for ours, on
 * streams that come as one piece or as they would live; and how much of it the fragment index takes.
 * Pure.
 */
import { isCompressible } from "@session-ledger/agui/catalogue";
import { type CompressedRow, Compressor } from "@session-ledger/compressor/compressor";
import { encodeFragments } from "@session-ledger/compressor/fragments";
import type { Stream, StreamEvent } from "../support/streams.ts";
import { rounded } from "./figures.ts";
import { type TimedEvent, upstreamRows } from "./upstream-rules.ts";

/** The longest age of a group when the service compresses for watchers. */
const LIVE_AGE_MS = 250;
const TOKENS_PER_SECOND = 50;
/** 2026-01-01T00:00:00Z, for streams that are given timestamps. */
const BEGAN_MS = 1_767_225_600_000;

/** How a stream reaches the compressor. */
export interface Arrival {
  /** Fragment by fragment, and no row is open for longer than LIVE_AGE_MS; otherwise at once. */
  readonly isLive: boolean;
  /** Every payload has a timestamp; otherwise only those that were recorded with one. */
  readonly isStamped: boolean;
}

export const ARRIVALS = {
  whole: { isLive: false, isStamped: false },
  "whole, with timestamps": { isLive: false, isStamped: true },
  live: { isLive: true, isStamped: false },
  "live, with timestamps": { isLive: true, isStamped: true },
} as const satisfies Readonly<Record<string, Arrival>>;

interface Size {
  readonly rows: number;
  readonly bytes: number;
}

export interface Line {
  readonly agent: string;
  readonly rawEvents: number;
  readonly rawBytes: number;
  readonly upstream: Size;
  /** Payloads and fragment indexes. */
  readonly ours: Size & { readonly indexBytes: number };
  /** Merged rows, with and without times in the index. */
  readonly plain: Merged;
  readonly timed: Merged;
}

interface Merged {
  readonly bytes: number;
  readonly indexBytes: number;
}

/** A line an agent, in the order in which the corpus has them. */
export function compressionLines(streams: readonly Stream[], arrival: Arrival): readonly Line[] {
  const byAgent = Map.groupBy(streams, ({ agent }) => agent);
  return Array.from(byAgent, ([agent, own]) =>
    sumOf(
      agent,
      own.map(({ events }) => lineOf(arrived(events, arrival), arrival)),
    ),
  );
}

export function sumOf(agent: string, lines: readonly Omit<Line, "agent">[]): Line {
  const sum = (pick: (line: Omit<Line, "agent">) => number): number =>
    lines.reduce((total, line) => total + pick(line), 0);
  return {
    agent,
    rawEvents: sum((line) => line.rawEvents),
    rawBytes: sum((line) => line.rawBytes),
    upstream: {
      rows: sum((line) => line.upstream.rows),
      bytes: sum((line) => line.upstream.bytes),
    },
    ours: {
      rows: sum((line) => line.ours.rows),
      bytes: sum((line) => line.ours.bytes),
      indexBytes: sum((line) => line.ours.indexBytes),
    },
    plain: {
      bytes: sum((line) => line.plain.bytes),
      indexBytes: sum((line) => line.plain.indexBytes),
    },
    timed: {
      bytes: sum((line) => line.timed.bytes),
      indexBytes: sum((line) => line.timed.indexBytes),
    },
  };
}

/** Raw over compressed. */
export interface Ratios {
  readonly upstreamRows: number;
  readonly upstreamBytes: number;
  readonly rows: number;
  readonly bytes: number;
  /** The share of the index in the bytes of merged rows; NaN, in JSON null, without merged rows. */
  readonly indexShare: number;
  readonly timedIndexShare: number;
}

export function ratiosOf(line: Line): Ratios {
  return {
    upstreamRows: rounded(line.rawEvents / line.upstream.rows),
    upstreamBytes: rounded(line.rawBytes / line.upstream.bytes),
    rows: rounded(line.rawEvents / line.ours.rows),
    bytes: rounded(line.rawBytes / line.ours.bytes),
    indexShare: rounded(line.plain.indexBytes / line.plain.bytes),
    timedIndexShare: rounded(line.timed.indexBytes / line.timed.bytes),
  };
}

function lineOf(events: readonly TimedEvent[], { isLive }: Arrival): Omit<Line, "agent"> {
  const maxAgeMs = isLive ? LIVE_AGE_MS : Number.POSITIVE_INFINITY;
  const upstream = upstreamRows(events, { maxAgeMs });
  const rows = compressed(events, maxAgeMs);
  const sizes = rows.map((row) => {
    const indexBytes = row.fragments === undefined ? 0 : encodeFragments(row.fragments).length;
    return { row, indexBytes, bytes: Buffer.byteLength(row.payload) + indexBytes };
  });
  const merged = sizes.filter(({ row }) => row.eventCount > 1);
  const isTimed = ({ row }: { readonly row: CompressedRow }): boolean =>
    (row.fragments?.timestampDeltasMs.length ?? 0) > 0;
  return {
    rawEvents: events.length,
    rawBytes: bytesOf(events.map(({ payload }) => payload)),
    upstream: { rows: upstream.length, bytes: bytesOf(upstream) },
    ours: { rows: rows.length, ...summed(sizes) },
    plain: summed(merged.filter((size) => !isTimed(size))),
    timed: summed(merged.filter(isTimed)),
  };
}

function summed(sizes: readonly Merged[]): Merged {
  return {
    bytes: sizes.reduce((sum, size) => sum + size.bytes, 0),
    indexBytes: sizes.reduce((sum, size) => sum + size.indexBytes, 0),
  };
}

function compressed(events: readonly TimedEvent[], maxAgeMs: number): readonly CompressedRow[] {
  const compressor = new Compressor({ maxAgeMs });
  const rows = events.flatMap(({ eventType, payload, atMs }) => {
    const createdAtMicros = BigInt(BEGAN_MS + atMs) * 1_000n;
    return compressor.push({ eventType, payload, createdAtMicros }, atMs);
  });
  const last = compressor.flush();
  return last === undefined ? rows : [...rows, last];
}

/** Every fragment arrives a while after the event before it; every other event arrives with it. */
function arrived(events: readonly StreamEvent[], { isStamped }: Arrival): readonly TimedEvent[] {
  let atMs = 0;
  return events.map(({ eventType, payload }) => {
    if (isCompressible(eventType)) atMs += 1_000 / TOKENS_PER_SECOND;
    return { eventType, payload: isStamped ? stamped(payload, atMs) : payload, atMs };
  });
}

function stamped(payload: string, atMs: number): string {
  const event: Record<string, unknown> = JSON.parse(payload);
  return JSON.stringify({ ...event, timestamp: BEGAN_MS + atMs });
}

function bytesOf(payloads: readonly string[]): number {
  return payloads.reduce((sum, payload) => sum + Buffer.byteLength(payload), 0);
}

/** For people. */
export function printedTable(lines: readonly Line[], total: Line): readonly string[] {
  const head = ["agent", "events", "bytes", "rows", "×", "upstream ×", "bytes", "×", "upstream ×"];
  const cells = [...lines, total].map((line) => {
    const { rows, upstreamRows: otherRows, bytes, upstreamBytes, ...shares } = ratiosOf(line);
    return [
      line.agent,
      ...[line.rawEvents, line.rawBytes, line.ours.rows].map(String),
      ...[rows, otherRows].map((ratio) => ratio.toFixed(2)),
      String(line.ours.bytes),
      ...[bytes, upstreamBytes].map((ratio) => ratio.toFixed(2)),
      ...[shares.indexShare, shares.timedIndexShare].map(percent),
    ];
  });
  const all = [[...head, "index", "index, timed"], ...cells];
  const widths = all[0]?.map((_, at) => Math.max(...all.map((row) => row[at]?.length ?? 0))) ?? [];
  return all.map((row) =>
    row
      .map((cell, at) => (at === 0 ? cell.padEnd(widths[at] ?? 0) : cell.padStart(widths[at] ?? 0)))
      .join("  "),
  );
}

function percent(share: number): string {
  return Number.isNaN(share) ? "-" : `${(share * 100).toFixed(1)} %`;
}
