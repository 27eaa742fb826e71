/** Hand-written events and the rows they become, which must expand to the same events. */
import { expect } from "vitest";
import { checkFragments } from "../../src/compressor/fragments.ts";
import type {
  CompressedRow,
  CompressorLimits,
  IncomingEvent,
} from "../../src/compressor/compressor.ts";
import { compressAll, expandAll } from "./compressing.ts";

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
