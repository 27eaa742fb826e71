/**
 * Converts microseconds to and from the text that PostgreSQL reads exactly. Never through a float
 * or a Date alone: a Date has milliseconds, and `interval * number` and to_timestamp() calculate in
 * doubles.
 */
import { type SQL, sql, type SQLWrapper } from "drizzle-orm";

const MICROS_PER_MS = 1_000n;

/**
 * Formatting the date takes most of the time here, and the rows of a batch share few milliseconds.
 */
let printed = { ms: 0n, text: "1970-01-01T00:00:00.000" };

/** For the years 1 to 9999. */
export function isoOf(micros: bigint): string {
  let ms = micros / MICROS_PER_MS;
  let rest = micros % MICROS_PER_MS;
  if (rest < 0n) {
    ms -= 1n;
    rest += MICROS_PER_MS;
  }
  if (printed.ms !== ms) {
    printed = { ms, text: new Date(Number(ms)).toISOString().slice(0, -1) };
  }
  return rest === 0n ? `${printed.text}Z` : `${printed.text}${rest.toString().padStart(3, "0")}Z`;
}

/** A timestamptz column as microseconds; extract() gives numeric, which is exact. */
export function microsColumn(column: SQLWrapper): SQL {
  return sql`(extract(epoch from ${column}) * 1000000)::bigint`;
}
