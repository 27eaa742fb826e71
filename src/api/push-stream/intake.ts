/**
 * What becomes of one raw event of a push stream: a fragment for the compressor, rows of its own, or a
 * refusal. A fragment like one that was accepted before in this stream is not read as JSON again:
 *
 *   event ──► bytes of a known frame? ── yes ──► accepted as that one was
 *                    │ no
 *                    ▼
 *             normalised, validated ──► a fragment: its frame is known from now on
 *
 * That is the same answer, because what is done with a fragment depends on nothing that may differ
 * between two of one frame. To the versions before 1.0.0, which take whatever it takes of a fragment,
 * `delta` is any string and the time any number; neither is renamed, and normalisation rounds fractions
 * only; and what is redacted of a frame is redacted of all that have it. test/property/push-stream-intake.test.ts puts wild events to both ways.
 */
import type { RawEvent } from "../../../gen/ambient/v1/event_stream_pb.ts";
import { isCompressible } from "../../agui/catalogue.ts";
import type { ValidationMode } from "../../agui/conform.ts";
import type { EventPlace } from "../../agui/place.ts";
import { type EventRow as AguiRow, rawEventRows } from "../../agui/rows.ts";
import type { Span } from "../../agui/spans.ts";
import { invalidArgument, ServiceError } from "../../base/errors.ts";
import type { IncomingEvent } from "../../compressor/compressor.ts";
import { Frame, type Framed, type Gaps, gapsOf, type Pieces } from "../../compressor/frame.ts";
import type { Redactor } from "../../redaction/redactor.ts";
import { checkText, checkTime, refuseLargePayload, violationsOf } from "../../contract/checks.ts";
import { microsOf } from "../../contract/times.ts";

/** Frames that are remembered: messages, tool calls and subagents whose fragments alternate. */
const FRAMES_MAX = 4;

/**
 * Of a payload whose frame is remembered. A frame keeps the text alive that it was cut from, and nobody
 * counts it as unacknowledged: four of a megabyte were 4 MiB for each stream that is open. Larger
 * fragments are rare, and read each time.
 */
const FRAME_UNITS_MAX = 16_384;

export interface IntakeOptions {
  readonly validation: ValidationMode;
  readonly payloadBytesMax: number;
  /** False: each fragment is a row of its own. */
  readonly merges: boolean;
  /** Undefined: nothing is redacted. The deltas of fragments are left to stream-rows.ts. */
  readonly redactor: Redactor | undefined;
}

/** A fragment of a text that a version of AG-UI accepts. */
export interface FragmentEvent extends IncomingEvent {
  readonly place: EventPlace | undefined;
}

export interface TakenFragment {
  readonly kind: "fragment";
  readonly event: FragmentEvent;
  /** Its payload taken apart; undefined where nothing can merge with it. */
  readonly framed: Framed | undefined;
}

export type Taken =
  | TakenFragment
  | { readonly kind: "rows"; readonly rows: readonly AguiRow[] }
  | { readonly kind: "refused"; readonly error: ServiceError };

interface Known {
  /** As the event said it; it may have left it to the payload. */
  readonly saidType: string;
  readonly eventType: string;
  readonly frame: Frame;
  /** Of the payload as it is stored; the same one where nothing was edited. */
  readonly stored: Frame;
  /** It is the frame that the compressor would find, too. */
  readonly isMerging: boolean;
  readonly place: EventPlace | undefined;
}

interface Accepted {
  readonly rows: readonly AguiRow[];
  /** A `delta` is not redacted yet. */
  readonly leavesDelta: boolean;
}

/** A payload as it is to be stored. */
interface Read {
  readonly payload: string;
  readonly pieces: Pieces | undefined;
  readonly nowMicros: bigint;
}

export class Intake {
  readonly #options: IntakeOptions;
  /** The one that was met last comes first. */
  readonly #known: Known[] = [];

  constructor(options: IntakeOptions) {
    this.#options = options;
  }

  take(event: RawEvent, nowMicros: bigint): Taken {
    return this.#repeated(event, nowMicros) ?? this.#read(event, nowMicros);
  }

  #repeated(event: RawEvent, nowMicros: bigint): Taken | undefined {
    const { payload } = event;
    // What is larger has to be measured, and text with half a character refused.
    if (payload.length * 3 > this.#options.payloadBytesMax || !payload.isWellFormed()) return;
    if (checkTime("occurred_at", event.occurredAt) !== undefined) return;
    const known = this.#known;
    for (let at = 0; at < known.length; at += 1) {
      const one = known[at];
      if (one?.saidType !== event.eventType) continue;
      const pieces = one.frame.match(payload);
      if (pieces === undefined) continue;
      if (at > 0) this.#remember(one);
      const stored = one.stored === one.frame ? payload : printed(one.stored, pieces);
      return this.#fragment(event, one, { payload: stored, pieces, nowMicros });
    }
    return undefined;
  }

  #read(event: RawEvent, nowMicros: bigint): Taken {
    let accepted: Accepted;
    try {
      accepted = this.#accept(event, nowMicros);
    } catch (error) {
      if (error instanceof ServiceError) return { kind: "refused", error };
      throw error;
    }
    const { rows, leavesDelta } = accepted;
    const [row] = rows;
    // The rows of a grouped event begin with a START.
    const isFragment = row?.conformant === true && isCompressible(row.eventType);
    if (!isFragment) return { kind: "rows", rows: leavesDelta ? this.#redacted(rows) : rows };
    const known = knownOf(event, row);
    if (known !== undefined) this.#remember(known);
    const pieces = known?.stored.match(row.payload);
    return this.#fragment(event, known ?? row, { payload: row.payload, pieces, nowMicros });
  }

  /** Checked as a unary push is, in its order. */
  #accept(event: RawEvent, nowMicros: bigint): Accepted {
    const { eventType, payload, occurredAt } = event;
    const violations = violationsOf([
      checkText("event_type", eventType),
      checkText("payload", payload),
      checkTime("occurred_at", occurredAt),
    ]);
    if (violations.length > 0) throw invalidArgument(violations);
    refuseLargePayload(payload, this.#options.payloadBytesMax);
    const kept = this.#options.redactor?.besidesDelta(payload);
    const createdAtMicros = timeOf(event, nowMicros);
    const raw = { eventType, payload: kept?.payload ?? payload, createdAtMicros };
    const accepted = rawEventRows(raw, this.#options.validation);
    if (!accepted.ok) throw invalidArgument(accepted.violations);
    return { rows: accepted.rows, leavesDelta: kept?.leavesDelta === true };
  }

  /** Of events that are no fragments, whatever their `delta` is. */
  #redacted(rows: readonly AguiRow[]): readonly AguiRow[] {
    const { redactor } = this.#options;
    return rows.map((row) => ({ ...row, payload: redactor?.payload(row.payload) ?? row.payload }));
  }

  #fragment(
    event: RawEvent,
    like: Pick<Known, "eventType" | "place"> & Partial<Known>,
    { payload, pieces, nowMicros }: Read,
  ): Taken {
    const { eventType, place, stored, isMerging } = like;
    const { merges } = this.#options;
    const createdAtMicros = timeOf(event, nowMicros);
    return {
      kind: "fragment",
      event: { eventType, payload, createdAtMicros, merges, place },
      framed: isMerging && stored && pieces ? { frame: stored, pieces } : undefined,
    };
  }

  #remember(known: Known): void {
    const index = this.#known.indexOf(known);
    if (index >= 0) this.#known.splice(index, 1);
    this.#known.unshift(known);
    if (this.#known.length > FRAMES_MAX) this.#known.pop();
  }
}

/** Undefined where no later event can have the frame, or it is too large to be kept. */
function knownOf(event: RawEvent, row: AguiRow): Known | undefined {
  if (Math.max(event.payload.length, row.payload.length) > FRAME_UNITS_MAX) return undefined;
  const gaps = gapsOf(event.payload);
  // `"timestamp":null`, as producers in Python dump it, is the same in every event.
  const isTimed = gaps.timestamp === undefined || hasPlainTime(event.payload, gaps.timestamp);
  const frame = frameWith(event.payload, gaps, isTimed);
  const isEdited = row.payload !== event.payload;
  const storedGaps = isEdited ? gapsOf(row.payload) : gaps;
  const stored = isEdited ? frameWith(row.payload, storedGaps, isTimed) : frame;
  if (frame === undefined || stored === undefined) return undefined;
  const isMerging = isTimed || storedGaps.timestamp === undefined;
  const { eventType, place } = row;
  return { saidType: event.eventType, eventType, frame, stored, isMerging, place };
}

/** Of an accepted fragment, so that what is no text in `delta` is nothing that can differ. */
function frameWith(payload: string, gaps: Gaps, isTimed: boolean): Frame | undefined {
  const { delta, timestamp } = gaps;
  if (delta !== undefined && payload.charAt(delta.start - 1) !== '"') return undefined;
  return new Frame(payload, { delta, timestamp: isTimed ? timestamp : undefined });
}

/** As a frame reads it. */
const PLAIN_INTEGER = /^(?:0|-?[1-9][0-9]{0,31})$/;

function hasPlainTime(payload: string, { start, end }: Span): boolean {
  return PLAIN_INTEGER.test(payload.slice(start, end));
}

/** The payload of a frame. */
export function printed(
  frame: Frame,
  {
    delta,
    timestampMs,
  }: {
    readonly delta: { readonly spelled: string } | undefined;
    readonly timestampMs: Pieces["timestampMs"];
  },
): string {
  return frame.print({ delta: delta?.spelled ?? "", timestamp: String(timestampMs ?? "") });
}

function timeOf({ occurredAt }: RawEvent, nowMicros: bigint): bigint {
  return occurredAt === undefined ? nowMicros : microsOf(occurredAt);
}
