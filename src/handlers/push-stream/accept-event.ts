/**
 * Turns one raw event of a push stream into a fragment for the compressor, into separate rows, or
 * into a refusal. A fragment with the same frame as an earlier accepted one of this stream is not
 * parsed as JSON again:
 *
 *   event ──► bytes of a known frame? ── yes ──► accepted like the earlier fragment
 *                    │ no
 *                    ▼
 *             normalised, validated ──► a fragment: its frame is known from now on
 *
 * Both paths give the same answer, because the handling of a fragment depends only on its frame.
 * Two fragments of one frame differ only in `delta` and in the time. AG-UI before 1.0.0 accepts
 * every fragment that 1.0.0 accepts, with any string as `delta` and any number as the time. Neither
 * field is renamed, and normalisation rounds only fractions. Redaction of a frame is the same for
 * all fragments with that frame. test/property/push-stream-intake.test.ts runs random events
 * through both paths.
 */
import type { ValidationMode } from "@session-ledger/agui/validate";
import type { EventAddress } from "@session-ledger/agui/constructs";
import { type ValidatedEvent as AguiRow, splitRawEvent } from "@session-ledger/agui/split-event";
import { invalidArgument, ServiceError, type Violation } from "@session-ledger/base/errors";
import type { IncomingEvent } from "@session-ledger/compressor/compressor";
import {
  Frame,
  type Framed,
  type Gaps,
  gapsOf,
  type Pieces,
} from "@session-ledger/compressor/frame";
import type { Redactor } from "@session-ledger/agui/redaction/redactor";
import {
  type Check,
  checkEpoch,
  checkText,
  refuseLargePayload,
  violationsOf,
  refuse,
  INT64_MAX,
  checkSessionId,
} from "../../contract/checks.ts";
import { checkTimestamp, microsOf } from "../../contract/times.ts";
import {
  type Batch,
  Compression,
  type Open,
  type RawEvent,
} from "@session-ledger/proto/ambient/v1/event_stream_pb";
import { isCompressible } from "@session-ledger/agui/catalogue";

/** Remembered frames: messages, tool calls and subagents may send their fragments alternately. */
const FRAMES_MAX = 4;

/**
 * The longest payload whose frame is remembered. A frame keeps its text alive, which no limit
 * counts: four texts of a megabyte were 4 MiB for each open stream. Larger fragments are parsed
 * each time.
 */
const FRAME_UNITS_MAX = 16_384;

export interface AcceptOptions {
  readonly validation: ValidationMode;
  readonly payloadBytesMax: number;
  /** False: each fragment becomes its own row. */
  readonly merges: boolean;
  /** Undefined: nothing is redacted. row-builder.ts redacts the deltas of fragments. */
  readonly redactor: Redactor | undefined;
}

/** A fragment of a text, accepted by one of the versions of AG-UI. */
export interface FragmentEvent extends IncomingEvent {
  readonly address: EventAddress | undefined;
}

export interface AcceptedFragment {
  readonly kind: "fragment";
  readonly event: FragmentEvent;
  /** The payload taken apart; undefined where no other fragment can merge with this one. */
  readonly framed: Framed | undefined;
}

export type AcceptResult =
  | AcceptedFragment
  | { readonly kind: "rows"; readonly rows: readonly AguiRow[] }
  | { readonly kind: "refused"; readonly error: ServiceError };

interface CachedFrame {
  /** The type field of the event; an event may carry its type only in the payload. */
  readonly sentType: string;
  readonly eventType: string;
  readonly frame: Frame;
  /** The frame of the payload as it is stored; the same object when nothing was edited. */
  readonly stored: Frame;
  /** True when the compressor would find the same frame. */
  readonly isMerging: boolean;
  readonly address: EventAddress | undefined;
}

interface SplitRows {
  readonly rows: readonly AguiRow[];
  /** True when a `delta` is not redacted yet. */
  readonly leavesDelta: boolean;
}

/** A payload in its stored form. */
interface StoredPayload {
  readonly payload: string;
  readonly pieces: Pieces | undefined;
  readonly nowMicros: bigint;
}

export class EventAcceptor {
  readonly #options: AcceptOptions;
  /** The most recently matched frame comes first. */
  readonly #frames: CachedFrame[] = [];

  constructor(options: AcceptOptions) {
    this.#options = options;
  }

  accept(event: RawEvent, nowMicros: bigint): AcceptResult {
    return this.#acceptRepeated(event, nowMicros) ?? this.#acceptNew(event, nowMicros);
  }

  #acceptRepeated(event: RawEvent, nowMicros: bigint): AcceptResult | undefined {
    const { payload } = event;
    // A larger payload has to be measured, and text with half a surrogate pair is refused.
    if (payload.length * 3 > this.#options.payloadBytesMax || !payload.isWellFormed()) return;
    if (event.occurredAt && checkTimestamp("occurred_at", event.occurredAt)) return;
    const frames = this.#frames;
    for (let at = 0; at < frames.length; at += 1) {
      const one = frames[at];
      if (one?.sentType !== event.eventType) continue;
      const pieces = one.frame.match(payload);
      if (pieces === undefined) continue;
      if (at > 0) this.#remember(one);
      const { delta, timestampMs } = pieces;
      const printed = { delta: delta?.spelled ?? "", timestamp: String(timestampMs ?? "") };
      const stored = one.stored === one.frame ? payload : one.stored.print(printed);
      return this.#fragment(event, one, { payload: stored, pieces, nowMicros });
    }
    return undefined;
  }

  #acceptNew(event: RawEvent, nowMicros: bigint): AcceptResult {
    let accepted: SplitRows;
    try {
      accepted = this.#split(event, nowMicros);
    } catch (error) {
      if (error instanceof ServiceError) return { kind: "refused", error };
      throw error;
    }
    const { rows, leavesDelta } = accepted;
    const [row] = rows;
    // The rows of a grouped event begin with a START.
    const isFragment = row?.conformant === true && isCompressible(row.eventType);
    if (!isFragment) return { kind: "rows", rows: leavesDelta ? this.#redact(rows) : rows };
    const frame = cachedFrameOf(event, row);
    if (frame !== undefined) this.#remember(frame);
    const pieces = frame?.stored.match(row.payload);
    return this.#fragment(event, frame ?? row, { payload: row.payload, pieces, nowMicros });
  }

  /** Makes the checks of a unary push, in the same order. */
  #split(event: RawEvent, nowMicros: bigint): SplitRows {
    const { eventType, payload, occurredAt } = event;
    refuse([
      checkText("event_type", eventType),
      checkText("payload", payload),
      occurredAt && checkTimestamp("occurred_at", occurredAt),
    ]);
    refuseLargePayload(payload, this.#options.payloadBytesMax);
    const redacted = this.#options.redactor?.besidesDelta(payload);
    const createdAtMicros = timeOf(event, nowMicros);
    const raw = { eventType, payload: redacted?.payload ?? payload, createdAtMicros };
    const accepted = splitRawEvent(raw, this.#options.validation);
    if (!accepted.ok) throw invalidArgument(accepted.violations);
    return { rows: accepted.rows, leavesDelta: redacted?.leavesDelta === true };
  }

  /** Redacts events that are not fragments, including their `delta`. */
  #redact(rows: readonly AguiRow[]): readonly AguiRow[] {
    const { redactor } = this.#options;
    return rows.map((row) => ({ ...row, payload: redactor?.payload(row.payload) ?? row.payload }));
  }

  #fragment(
    event: RawEvent,
    like: Pick<CachedFrame, "eventType" | "address"> & Partial<CachedFrame>,
    { payload, pieces, nowMicros }: StoredPayload,
  ): AcceptResult {
    const { eventType, address, stored, isMerging } = like;
    const { merges } = this.#options;
    const createdAtMicros = timeOf(event, nowMicros);
    return {
      kind: "fragment",
      event: { eventType, payload, createdAtMicros, merges, address },
      framed: isMerging && stored && pieces ? { frame: stored, pieces } : undefined,
    };
  }

  #remember(frame: CachedFrame): void {
    const index = this.#frames.indexOf(frame);
    if (index >= 0) this.#frames.splice(index, 1);
    this.#frames.unshift(frame);
    if (this.#frames.length > FRAMES_MAX) this.#frames.pop();
  }
}

/** Undefined where no later event can have the same frame, or the payload is too large to keep. */
function cachedFrameOf(event: RawEvent, row: AguiRow): CachedFrame | undefined {
  if (Math.max(event.payload.length, row.payload.length) > FRAME_UNITS_MAX) return undefined;
  const gaps = gapsOf(event.payload);
  // `"timestamp":null`, which Python producers write, is the same in every event.
  const { start, end } = gaps.timestamp ?? {};
  const isTimed = start === undefined || PLAIN_INTEGER.test(event.payload.slice(start, end));
  const frame = frameWith(event.payload, gaps, isTimed);
  const isEdited = row.payload !== event.payload;
  const storedGaps = isEdited ? gapsOf(row.payload) : gaps;
  const stored = isEdited ? frameWith(row.payload, storedGaps, isTimed) : frame;
  if (frame === undefined || stored === undefined) return undefined;
  const isMerging = isTimed || storedGaps.timestamp === undefined;
  const { eventType, address } = row;
  return { sentType: event.eventType, eventType, frame, stored, isMerging, address };
}

/**
 * Its `delta` must be a string: only the text of a string differs between fragments of one frame.
 */
function frameWith(payload: string, gaps: Gaps, isTimed: boolean): Frame | undefined {
  const { delta, timestamp } = gaps;
  if (delta !== undefined && payload.charAt(delta.start - 1) !== '"') return undefined;
  return new Frame(payload, { delta, timestamp: isTimed ? timestamp : undefined });
}

/** An integer in the only spelling that a frame can contain. */
const PLAIN_INTEGER = /^(?:0|-?[1-9][0-9]{0,31})$/;

function timeOf({ occurredAt }: RawEvent, nowMicros: bigint): bigint {
  return occurredAt === undefined ? nowMicros : microsOf(occurredAt);
}

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
 * The count of events at the beginning of a batch that are known, or the violation of the batch.
 */
export function repeatedEvents(
  { firstClientSeq: first, events }: Pick<Batch, "firstClientSeq" | "events">,
  next: bigint,
): number | Violation {
  const field = "batch.first_client_seq";
  if (events.length === 0) return 0;
  if (events.length > BATCH_EVENTS_MAX)
    return violation("batch.events", `at most ${BATCH_EVENTS_MAX}, but is ${events.length}`);
  if (first === 0n) return violation(field, "at least 1: events are numbered 1, 2, 3");
  if (first > next) return violation(field, `at most ${next}, the next number, but is ${first}`);
  const repeated = next - first;
  if (repeated >= events.length) return events.length;
  if (first + BigInt(events.length) - 1n > INT64_MAX)
    return violation(field, `such that no number is above ${INT64_MAX}`);
  return Number(repeated); // The number is below events.length.
}

export function openFirst(): ServiceError {
  return invalidArgument([violation("open", "the first frame")]);
}

export function openOnce(): ServiceError {
  return invalidArgument([violation("open", "sent once, as the first frame")]);
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
