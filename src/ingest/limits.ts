import assert from "node:assert/strict";

/** Rows in one commit. */
export const BATCH_ROWS_MAX = 512;
/** Payload in one commit. */
export const BATCH_BYTES_MAX = 8 * 1024 * 1024;
/** Rows that wait while PostgreSQL is slow; above it a push is RESOURCE_EXHAUSTED (QUEUE_FULL). */
export const QUEUE_ROWS_MAX = 16_384;
/** Payload that waits; above it likewise. */
export const QUEUE_BYTES_MAX = 64 * 1024 * 1024;
/** Batches of many sessions under way at once: while one is on its way to the disk the next is read. */
export const LANES = 2;
/** Batches under way for sessions that somebody holds. Each takes a connection for up to lock_timeout. */
export const CONTENDED_LANES = 4;
/** A push that PostgreSQL could not take is tried again for so long. */
export const RETRY_LIMIT_MS = 10_000;
export const RETRY_DELAY_MIN_MS = 10;
export const RETRY_DELAY_MAX_MS = 500;
/** What a refused caller is told to wait. */
export const QUEUE_FULL_RETRY_AFTER_MS = 250;

assert(QUEUE_ROWS_MAX >= 2 * BATCH_ROWS_MAX); // One batch is in flight while the next fills.
assert(QUEUE_BYTES_MAX >= 2 * BATCH_BYTES_MAX);
assert(RETRY_LIMIT_MS > 10 * RETRY_DELAY_MAX_MS);
