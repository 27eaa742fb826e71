import assert from "node:assert/strict";

/** Batches of many sessions under way at once: while one is on its way to the disk the next is read. */
export const LANES = 2;
/** Batches under way for sessions that somebody holds. Each takes a connection for up to lock_timeout. */
export const CONTENDED_LANES = 4;
/** Streams being opened at once, and as many again of sessions that somebody holds. */
export const OPEN_LANES = 2;
/** Openings that wait for a lane; after a restart every writer comes back at once. */
export const OPENINGS_WAITING_MAX = 10_000;
/** A push that PostgreSQL could not take is tried again for so long. */
export const RETRY_LIMIT_MS = 10_000;
export const RETRY_DELAY_MIN_MS = 10;
export const RETRY_DELAY_MAX_MS = 500;
/** Sessions that are remembered as slow; one that is forgotten shares a batch again. */
export const SLOW_SESSIONS_MAX = 1_000;
/** What a refused caller is told to wait. */
export const QUEUE_FULL_RETRY_AFTER_MS = 250;

assert(RETRY_LIMIT_MS > 10 * RETRY_DELAY_MAX_MS);
