/** Events that are not committed: small ones must not fill the memory below the limit of bytes. */
export const EVENTS_MAX = 65_536;
/** Refusals and acknowledgements that a slow reader has not taken. */
export const UNSENT_BYTES_MAX = 64 * 1024;
/** How long the other callers may have to wait for one frame; looked at after so much of it. */
export const TURN_MS = 10;
export const TURN_UNITS = 65_536;
/** What an event costs that says nothing, in units of a payload. */
export const EVENT_UNITS = 64;
