/** Whole streams through the compressor and back. */
import {
  type CompressedRow,
  Compressor,
  type CompressorLimits,
  type IncomingEvent,
} from "../../src/compressor/compressor.ts";
import { expand, type RawEvent } from "../../src/compressor/expand.ts";
import { encodeFragments } from "../../src/compressor/fragments.ts";

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
    const fragments = row.fragments && encodeFragments(row.fragments);
    const stored = { ...row, seq, fragments };
    seq += BigInt(row.eventCount);
    return [...expand(stored, afterSeq)];
  });
}
