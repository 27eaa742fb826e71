/**
 * Converts timestamps of the wire to microseconds and back. Finer digits are cut off, never
 * rounded: a time that is compared, stored and read again must stay the same.
 */
import type { Timestamp, Duration } from "@bufbuild/protobuf/wkt";
import type { Violation } from "@session-ledger/base/errors";

const MICROS_PER_SECOND = 1_000_000n;
const NANOS_PER_MICRO = 1_000;
const NANOS_MAX = 999_999_999;

/** 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z: the range of google.protobuf.Timestamp. */
const SECONDS_MIN = -62_135_596_800n;
const SECONDS_MAX = 253_402_300_799n;

/** Cut towards the past, before 1970 too, because nanos always count forward from the second. */
export function microsOf(timestamp: Timestamp): bigint {
  return (
    timestamp.seconds * MICROS_PER_SECOND + BigInt(Math.floor(timestamp.nanos / NANOS_PER_MICRO))
  );
}

/** Not rounded: a wait of a nanosecond is a wait. Seconds of 64 bits are exact enough to be refused. */
export function durationMs({ seconds, nanos }: Duration): number {
  return Number(seconds) * 1_000 + nanos / 1e6;
}

export function timestampOf(micros: bigint): Timestamp {
  let seconds = micros / MICROS_PER_SECOND;
  let rest = micros % MICROS_PER_SECOND;
  if (rest < 0n) {
    seconds -= 1n;
    rest += MICROS_PER_SECOND;
  }
  return {
    $typeName: "google.protobuf.Timestamp",
    seconds,
    nanos: Number(rest) * NANOS_PER_MICRO,
  };
}

/** The violation of a timestamp that a caller sent; `field` is its path in the request. */
export function checkTimestamp(field: string, timestamp: Timestamp): Violation | undefined {
  if (timestamp.seconds < SECONDS_MIN || timestamp.seconds > SECONDS_MAX) {
    return { field: `${field}.seconds`, description: `${field} must be in the years 1 to 9999` };
  }
  if (timestamp.nanos < 0 || timestamp.nanos > NANOS_MAX) {
    const description = `${field} must have nanos from 0 to ${NANOS_MAX}`;
    return { field: `${field}.nanos`, description };
  }
  return undefined;
}
