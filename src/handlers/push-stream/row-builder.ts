/**
 * Makes rows from raw events, in the order they arrived:
 *
 *   event ──► accepted? ──► the open group ──► redaction, if any ──► rows, until they are taken
 *                │             └─ or a separate row
 *                └─ refused
 */
import type { StreamingRedactor } from "@session-ledger/agui/redaction/streaming-redactor";
import type { ValidatedEvent } from "@session-ledger/agui/split-event";
import type { ServiceError } from "@session-ledger/base/errors";
import {
  type CompressedRow,
  Compressor,
  type CompressorLimits,
} from "@session-ledger/compressor/compressor";
import { encodeFragments } from "@session-ledger/compressor/fragments";
import { gapsOf } from "@session-ledger/compressor/frame";
import type { RawEvent } from "@session-ledger/proto/ambient/v1/event_stream_pb";
import type { EventRow } from "../../store/rows.ts";
import { newEventRow } from "../push.ts";
import {
  type AcceptedFragment,
  type AcceptOptions,
  EventAcceptor,
  type FragmentEvent,
} from "./accept-event.ts";

export interface RowBuilderOptions extends AcceptOptions {
  readonly compressor: Pick<CompressorLimits, "maxAgeMs"> & Partial<CompressorLimits>;
  /** The redactor of the stream that this one continues. */
  readonly streaming?: StreamingRedactor | undefined;
  readonly onGroupClose?: (by: GroupClosing) => void;
}

/** The next event, its age, the caller's flush, bytes, a unary push, the end of the stream. */
export const GROUP_CLOSINGS = ["event", "age", "flush", "bytes", "push", "end"] as const;
type GroupClosing = (typeof GROUP_CLOSINGS)[number];

/** An event stands alone, began a group, or joined it. */
export type GroupStep = "none" | "began" | "joined";

type AddResult =
  | { readonly ok: true; readonly step: GroupStep; readonly eventType: string }
  | { readonly ok: false; readonly error: ServiceError };

/** Rows for one push. */
export interface BuiltRows {
  readonly rows: EventRow[];
  /** Those in which a field was renamed. */
  readonly renamed: ValidatedEvent[];
  /** The count of numbers that the rows take. */
  events: number;
}

/** The last number of the rows of one push: these are consecutive. */
export function lastSeqOfRows({ events }: BuiltRows, firstSeq: bigint): bigint {
  return firstSeq + BigInt(events) - 1n;
}

export class RowBuilder {
  readonly #acceptor: EventAcceptor;
  readonly #compressor: Compressor<FragmentEvent>;
  readonly #onGroupClose: (by: GroupClosing) => void;
  /** Undefined: nothing is redacted. */
  readonly redactor: StreamingRedactor | undefined;
  #built = noRows();

  constructor(options: RowBuilderOptions) {
    const { compressor, redactor, streaming, onGroupClose = () => undefined } = options;
    this.#acceptor = new EventAcceptor(options);
    this.#compressor = new Compressor(compressor);
    this.#onGroupClose = onGroupClose;
    this.redactor = streaming ?? redactor?.streaming();
  }

  /** The time at which the open group becomes a row (`closeDue`); undefined: no group is open. */
  get dueAtMs(): number | undefined {
    return this.#compressor.dueAtMs;
  }

  get rowsWaiting(): number {
    return this.#built.rows.length;
  }

  /** All rows that were not taken before. */
  take(): BuiltRows {
    const built = this.#built;
    this.#built = noRows();
    return built;
  }

  add(
    event: RawEvent,
    { nowMs, nowMicros }: { readonly nowMs: number; readonly nowMicros: bigint },
  ): AddResult {
    const result = this.#acceptor.accept(event, nowMicros);
    if (result.kind === "refused") return { ok: false, error: result.error };
    if (result.kind === "fragment") {
      return { ok: true, step: this.#compress(result, nowMs), eventType: result.event.eventType };
    }
    this.close("event");
    for (const row of result.rows) {
      if (row.address !== undefined) this.redactor?.pass(row.address);
      this.#add(newEventRow(row, undefined));
      if (row.renamed !== undefined) this.#built.renamed.push(row);
    }
    return { ok: true, step: "none", eventType: result.rows[0]?.eventType ?? "" };
  }

  /** Makes a row of the open group; false: none is open. */
  close(by: GroupClosing): boolean {
    const row = this.#compressor.flush();
    if (row === undefined) return false;
    this.#addMerged(row);
    this.#onGroupClose(by);
    return true;
  }

  /** Makes a row of the group if it has waited long enough. */
  closeDue(nowMs: number): boolean {
    return nowMs >= (this.dueAtMs ?? Number.POSITIVE_INFINITY) && this.close("age");
  }

  #compress({ event, framed }: AcceptedFragment, nowMs: number): GroupStep {
    const compressor = this.#compressor;
    const dueMs = compressor.dueAtMs;
    const rows = compressor.push(event, nowMs, framed);
    for (const row of rows) this.#addMerged(row);
    if (dueMs !== undefined && rows.length > 0)
      this.#onGroupClose(nowMs >= dueMs ? "age" : "event");
    if (compressor.dueAtMs === undefined) return "none";
    return dueMs === undefined || rows.length > 0 ? "began" : "joined";
  }

  #addMerged(merged: CompressedRow<FragmentEvent>): void {
    const row = this.redactor === undefined ? merged : redacted(merged, this.redactor);
    const index = row.fragments && encodeFragments(row.fragments);
    this.#add(newEventRow({ ...row, conformant: true, mark: undefined }, index));
  }

  #add(row: EventRow): void {
    this.#built.rows.push(row);
    this.#built.events += row.eventCount;
  }
}

function noRows(): BuiltRows {
  return { rows: [], renamed: [], events: 0 };
}

function redacted(
  row: CompressedRow<FragmentEvent>,
  redactor: StreamingRedactor,
): CompressedRow<FragmentEvent> {
  const { payload, first } = row;
  const { delta } = gapsOf(payload);
  if (first.address === undefined) return row;
  // A CHUNK without text names the text that the next chunk continues.
  if (delta === undefined) redactor.pass(first.address);
  const masked = delta && redactor.mask(first.address, payload.slice(delta.start, delta.end));
  if (masked === undefined) return row;
  return { ...row, payload: payload.slice(0, delta?.start) + masked + payload.slice(delta?.end) };
}
