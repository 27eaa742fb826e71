/**
 * Uncommitted events of one stream: small events must not fill the memory below the limit of bytes.
 */
export const EVENTS_MAX = 65_536;
/** Refusals and acknowledgements that a slow reader has not taken yet. */
export const UNSENT_BYTES_MAX = 64 * 1024;
/**
 * The longest time other callers may wait for one frame; checked each time after a fixed amount of
 * work.
 */
export const TURN_MS = 10;
export const TURN_UNITS = 65_536;
/** The cost of an event without content, in units of a payload. */
export const EVENT_UNITS = 64;
