import assert from "node:assert/strict";

/** Batches of many sessions in flight at once: while one goes to disk, the next one is read. */
export const LANES = 2;
/**
 * Batches in flight for sessions whose lock is held elsewhere. Each occupies a connection for up to
 * lock_timeout.
 */
export const CONTENDED_LANES = 4;
/** Streams being opened at once, and as many again for sessions whose lock is held elsewhere. */
export const OPEN_LANES = 2;
/** Openings that wait for a lane; after a restart every writer returns at once. */
export const OPENINGS_WAITING_MAX = 10_000;
/** The time during which a push that PostgreSQL could not take is tried again. */
export const RETRY_LIMIT_MS = 10_000;
export const RETRY_DELAY_MIN_MS = 10;
export const RETRY_DELAY_MAX_MS = 500;
/** Sessions remembered as slow; a forgotten one shares a batch again. */
export const SLOW_SESSIONS_MAX = 1_000;
/** The waiting time in the error of a refused caller. */
export const QUEUE_FULL_RETRY_AFTER_MS = 250;

assert(RETRY_LIMIT_MS > 10 * RETRY_DELAY_MAX_MS);
