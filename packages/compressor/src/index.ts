/**
 * Lossless compression of AG-UI event streams: fragments of a text become one row, which expands to
 * its events, with their bytes, order and timestamps. It reads no clock and imports nothing of
 * Node. Times are `bigint` microseconds since 1970-01-01T00:00:00Z; ages are milliseconds on any
 * monotonic clock; lengths are UTF-16 units.
 */

/** Makes rows of events: `push` each event, `flush` at the end and at `dueAtMs`. */
export { Compressor } from "./compressor.ts";
/** The input and the output. */
export type { CompressedRow, IncomingEvent } from "./compressor.ts";

/** The defaults: 10,240 bytes of text, 250 ms, 65,536 events, 1 MiB of payload per row. */
export { COMPRESSOR_LIMITS } from "./compressor.ts";
export type { CompressorLimits } from "./compressor.ts";

/** The events of a row, from any event on; a generator, which holds one event at a time. */
export { expand } from "./expand.ts";
export type { ExpandableRow, RawEvent } from "./expand.ts";

/** The fragment index of a row as the bytes of the message `ambient.v1.Fragments`, and back. */
export { decodeFragments, encodeFragments } from "./fragments.ts";
export type { FragmentIndex } from "./fragments.ts";
export type { RawEvents } from "./raw-events.ts";
