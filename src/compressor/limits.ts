import { EVENT_COUNT_MAX } from "../agui/catalogue.ts";

/** The limits that close a group of fragments although the next event could join it. */
export interface CompressorLimits {
  /** UTF-8 bytes of a row's text, the joined deltas. A larger fragment is a row of its own. */
  readonly textBytesMax: number;
  /**
   * From the arrival of a group's first fragment. A watcher of a live stream waits at most this
   * long.
   */
  readonly maxAgeMs: number;
  /** Raw events of a row; at most EVENT_COUNT_MAX. */
  readonly eventsMax: number;
  /**
   * UTF-8 bytes of a merged row's payload: a receiver that accepts the events must accept the row
   * too.
   */
  readonly payloadBytesMax: number;
}

export const COMPRESSOR_LIMITS: CompressorLimits = {
  textBytesMax: 10 * 1024,
  maxAgeMs: 250,
  eventsMax: 65_536, // With this limit an index is below a mebibyte, for any lengths and times.
  payloadBytesMax: 1024 * 1024,
};

/** Invalid limits are a mistake in the program, and not in an event. */
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
