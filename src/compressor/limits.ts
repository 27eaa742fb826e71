import { EVENT_COUNT_MAX } from "../agui/event-count.ts";

/** When a group of fragments is closed although the next event could join it. */
export interface CompressorLimits {
  /** UTF-8 bytes of a row's text, the joined deltas. A larger fragment is a row of its own. */
  readonly textBytesMax: number;
  /** From the arrival of a group's first fragment. What a watcher of a live stream waits at most. */
  readonly maxAgeMs: number;
  /** Raw events of a row; at most EVENT_COUNT_MAX. */
  readonly eventsMax: number;
  /** UTF-8 bytes of a merged row's payload, so that whoever takes the events takes the row too. */
  readonly payloadBytesMax: number;
}

export const COMPRESSOR_LIMITS: CompressorLimits = {
  textBytesMax: 10 * 1024,
  maxAgeMs: 250,
  eventsMax: 65_536, // With it an index is below a mebibyte, whatever the lengths and times in it.
  payloadBytesMax: 1024 * 1024,
};

/** Limits that are no limits are a mistake in a program, and not of an event. */
export function checkedLimits(limits: Partial<CompressorLimits>): CompressorLimits {
  const { textBytesMax, maxAgeMs, eventsMax, payloadBytesMax } = {
    ...COMPRESSOR_LIMITS,
    ...limits,
  };
  const isLimit = textBytesMax >= 0 && maxAgeMs >= 0 && payloadBytesMax >= 0;
  if (!isLimit) throw new RangeError("limits of a compressor are numbers from 0");
  if (!(eventsMax >= 1 && eventsMax <= EVENT_COUNT_MAX))
    throw new RangeError(`eventsMax must be from 1 to ${EVENT_COUNT_MAX}, but is ${eventsMax}`);
  return { textBytesMax, maxAgeMs, eventsMax, payloadBytesMax };
}
