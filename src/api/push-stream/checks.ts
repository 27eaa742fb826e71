/** Checks the frames of a push stream, and finds the new events of a batch. */
import { type Batch, Compression, type Open } from "../../../gen/ambient/v1/event_stream_pb.ts";
import { invalidArgument, type ServiceError, type Violation } from "../../base/errors.ts";
import { checkEpoch, type Check, violationsOf } from "../../contract/checks.ts";
import { CLIENT_SEQ_MAX } from "./numbers.ts";
import { checkSessionId } from "../../contract/session-id.ts";

const MAX_AGE_MS_MAX = 5_000;
const MAX_TEXT_BYTES_MAX = 65_536;

/** Events of one batch. A frame of 4 MiB has room for two million empty ones, and they stay in memory while the stream waits. */
const BATCH_EVENTS_MAX = 65_536;

const COMPRESSIONS: ReadonlySet<number> = new Set([
  Compression.UNSPECIFIED,
  Compression.ON,
  Compression.OFF,
]);

export function checkOpen(open: Open): readonly Violation[] {
  const violations = violationsOf([
    checkSessionId(open.sessionId),
    checkEpoch(open.producerEpoch),
    COMPRESSIONS.has(open.compression)
      ? undefined
      : violation("compression", "COMPRESSION_UNSPECIFIED, COMPRESSION_ON or COMPRESSION_OFF"),
    atMost("max_age_ms", open.maxAgeMs, MAX_AGE_MS_MAX),
    atMost("max_text_bytes", open.maxTextBytes, MAX_TEXT_BYTES_MAX),
  ]);
  return violations.map((found) => ({ ...found, field: `open.${found.field}` }));
}

/**
 * The number of events at the beginning of a batch that are known already, or the violation of the
 * batch.
 */
export function knownOf(
  { firstClientSeq: first, events }: Pick<Batch, "firstClientSeq" | "events">,
  next: bigint,
): number | Violation {
  const field = "batch.first_client_seq";
  if (events.length === 0) return 0;
  if (events.length > BATCH_EVENTS_MAX)
    return violation("batch.events", `at most ${BATCH_EVENTS_MAX}, but is ${events.length}`);
  if (first === 0n) return violation(field, "at least 1: events are numbered 1, 2, 3");
  if (first > next) return violation(field, `at most ${next}, the next number, but is ${first}`);
  const known = next - first;
  if (known >= events.length) return events.length;
  if (first + BigInt(events.length) - 1n > CLIENT_SEQ_MAX)
    return violation(field, `such that no number is above ${CLIENT_SEQ_MAX}`);
  return Number(known); // The number is below events.length.
}

export function openFirst(): ServiceError {
  return invalidArgument([violation("open", "the first frame")]);
}

export function openOnce(): ServiceError {
  return invalidArgument([violation("open", "there once, as the first frame")]);
}

export function noFrame(): ServiceError {
  return invalidArgument([violation("frame", "open, batch or flush, but is none of them")]);
}

function atMost(field: string, value: number, max: number): Check {
  return value <= max ? undefined : violation(field, `at most ${max}, but is ${value}`);
}

function violation(field: string, expected: string): Violation {
  return { field, description: `${field} must be ${expected}` };
}
