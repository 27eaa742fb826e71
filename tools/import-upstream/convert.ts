/**
 * Converts a row of an upstream database to the rows that a lenient push would store. A row that
 * even such a push would refuse is kept unchanged and marked as non-conformant, because an imported
 * log has no caller to refuse. Where a push would be redacted, each row is redacted too,
 * separately.
 */
import { v7 as uuidv7, validate as isUuid } from "uuid";
import { checkEventCount } from "@session-ledger/agui/catalogue";
import { checkMessageType } from "@session-ledger/agui/message-types";
import { type ValidatedEvent, splitEvent } from "@session-ledger/agui/split-event";
import type { SourceRow } from "./source.ts";
import type { StoredRow, StreamName } from "../../src/store/rows.ts";

export interface Converted {
  readonly rows: readonly StoredRow[];
  /**
   * The fault for which every version of AG-UI, or the contract, refuses the row; undefined: no
   * fault.
   */
  readonly fault: string | undefined;
}

/** The redaction, which runs before everything else. */
export interface Redaction {
  /** The payload of an event. */
  readonly payload: (json: string) => string;
  /** Any other text, JSON or not. */
  readonly text: (text: string) => string;
}

export function convert(stream: StreamName, row: SourceRow, redaction?: Redaction): Converted {
  return stream === "messages" ? convertMessage(row, redaction) : convertEvent(row, redaction);
}

function convertMessage(source: SourceRow, redaction: Redaction | undefined): Converted {
  const row = redaction ? { ...source, payload: redaction.text(source.payload) } : source;
  const fault = checkMessageType(row.eventType)?.description;
  const { eventType, payload, createdAtMicros } = row;
  const id = isUuid(row.id) ? row.id : newId(createdAtMicros);
  const base = { sessionId: "", seq: 0n, id, eventType, payload, createdAtMicros };
  return {
    rows: [{ stream: "messages", ...base, sentAtMicros: undefined, sender: undefined }],
    fault,
  };
}

function convertEvent(source: SourceRow, redaction: Redaction | undefined): Converted {
  const row = redaction ? { ...source, payload: redaction.payload(source.payload) } : source;
  const { createdAtMicros, completedAtMicros, eventType, payload } = row;
  const isBackwards = completedAtMicros !== undefined && completedAtMicros < createdAtMicros;
  const push = {
    eventType,
    payload,
    // Upstream's default is 1, which for a group means "unknown".
    eventCount: row.eventCount === 1 ? 0 : row.eventCount,
    createdAtMicros,
    completedAtMicros: isBackwards ? createdAtMicros : completedAtMicros,
    hasFragments: false,
  };
  const options = { nowMicros: createdAtMicros };
  const strict = splitEvent(push, { ...options, mode: "strict" });
  const lenient = strict.ok ? strict : splitEvent(push, { ...options, mode: "lenient" });
  const fault = strict.ok ? undefined : strict.violations[0]?.description;
  if (!lenient.ok) {
    const isCountable = checkEventCount(eventType, row.eventCount) === undefined;
    const eventCount = isCountable && row.eventCount > 0 ? row.eventCount : 1;
    // The payload need not be JSON, so it is redacted as text.
    const kept = redaction ? { ...row, payload: redaction.text(payload) } : row;
    return { rows: [newRow(kept, asItIs(kept, { eventCount, conformant: false }), true)], fault };
  }
  const [first, ...others] = lenient.rows;
  // A clock that stepped back is not a fault of the row: a single row keeps both of its times.
  const isOne = others.length === 0;
  const times = isOne && isBackwards ? { completedAtMicros } : {};
  return {
    rows: [
      newRow(row, { ...first, ...times }, true),
      ...others.map((other) => newRow(row, other, false)),
    ],
    fault,
  };
}

type Fields = Omit<ValidatedEvent, "address">;

function asItIs(
  { eventType, payload, createdAtMicros, completedAtMicros }: SourceRow,
  rest: { readonly eventCount: number; readonly conformant: boolean },
): Fields {
  return { eventType, payload, createdAtMicros, completedAtMicros, mark: undefined, ...rest };
}

/**
 * The first row keeps the id if it is a UUID; other rows get a new one with the time of their
 * event.
 */
function newRow({ id }: SourceRow, row: Fields, isFirst: boolean): StoredRow {
  const { eventType, payload, createdAtMicros, completedAtMicros, eventCount, conformant } = row;
  return {
    stream: "events",
    sessionId: "",
    seq: 0n,
    id: isFirst && isUuid(id) ? id : newId(createdAtMicros),
    eventType,
    payload,
    createdAtMicros,
    completedAtMicros,
    eventCount,
    runId: row.mark?.kind === "open" ? row.mark.runId : "",
    fragments: undefined,
    conformant,
  };
}

function newId(createdAtMicros: bigint): string {
  return uuidv7({ msecs: msOf(createdAtMicros) });
}

/** A UUIDv7 cannot hold a time before 1970. */
function msOf(micros: bigint): number {
  return micros > 0n ? Number(micros / 1_000n) : 0;
}
