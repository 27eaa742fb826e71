/**
 * Makes rows from the accepted events, in the order they arrived:
 *
 *   event ──► the open group ──► redaction, if any ──► rows, to commits.ts
 *              └─ or a separate row
 */
import type { Redactor } from "@session-ledger/agui/redaction/redactor";
import type { StreamingRedactor } from "@session-ledger/agui/redaction/streaming-redactor";
import type { GroupStep, RowSink } from "./commits.ts";
import type { FragmentEvent, AcceptResult, AcceptedFragment } from "./accept-event.ts";
import type { GroupClosing, StreamMetrics } from "./stream-metrics.ts";
import {
  type CompressedRow,
  Compressor,
  type CompressorLimits,
} from "@session-ledger/compressor/compressor";
import { gapsOf } from "@session-ledger/compressor/frame";

export interface RowBuilderOptions {
  readonly compressor: Pick<CompressorLimits, "maxAgeMs"> & Partial<CompressorLimits>;
  /** Undefined: nothing is redacted. */
  readonly redactor: Redactor | undefined;
  /** The redactor of the stream that this one continues. */
  readonly streaming?: StreamingRedactor | undefined;
}

export class RowBuilder {
  readonly #commits: RowSink;
  readonly #streamMetrics: Pick<StreamMetrics, "onGroupClose">;
  readonly #compressor: Compressor<FragmentEvent>;
  /** Undefined: nothing is redacted. */
  readonly redactor: StreamingRedactor | undefined;

  constructor(
    commits: RowSink,
    streamMetrics: Pick<StreamMetrics, "onGroupClose">,
    { compressor, redactor, streaming }: RowBuilderOptions,
  ) {
    this.#commits = commits;
    this.#streamMetrics = streamMetrics;
    this.#compressor = new Compressor(compressor);
    this.redactor = streaming ?? redactor?.streaming();
  }

  /** True when some events are not rows yet. */
  get isOpen(): boolean {
    return this.dueAtMs !== undefined;
  }

  /** The time for the next call of `due`. */
  get dueAtMs(): number | undefined {
    return this.#compressor.dueAtMs;
  }

  add(
    result: AcceptResult,
    { payloadBytes, nowMs }: Readonly<Record<"payloadBytes" | "nowMs", number>>,
  ): void {
    const { numbers } = this.#commits;
    switch (result.kind) {
      case "fragment":
        numbers.addAccepted(payloadBytes, this.#compress(result, nowMs));
        break;
      case "rows":
        this.close("event");
        for (const row of result.rows) {
          if (row.address !== undefined) this.redactor?.pass(row.address);
          this.#commits.add(row);
        }
        numbers.addAccepted(payloadBytes, "none");
        break;
      case "refused":
        numbers.addRefused(payloadBytes);
    }
  }

  /** Makes a row of the open group. */
  close(by: GroupClosing): void {
    const row = this.#compressor.flush();
    if (row === undefined) return;
    this.#addMerged(row);
    this.#commits.numbers.closeGroup();
    this.#streamMetrics.onGroupClose(by);
  }

  /** Makes rows of the events that have waited long enough. */
  closeDue(nowMs: number): void {
    if (nowMs >= (this.dueAtMs ?? Number.POSITIVE_INFINITY)) this.close("age");
  }

  #compress({ event, framed }: AcceptedFragment, nowMs: number): GroupStep {
    const compressor = this.#compressor;
    const dueMs = compressor.dueAtMs;
    const rows = compressor.push(event, nowMs, framed);
    for (const row of rows) this.#addMerged(row);
    if (dueMs !== undefined && rows.length > 0)
      this.#streamMetrics.onGroupClose(nowMs >= dueMs ? "age" : "event");
    if (compressor.dueAtMs === undefined) return "none";
    return dueMs === undefined || rows.length > 0 ? "began" : "joined";
  }

  #addMerged(row: CompressedRow<FragmentEvent>): void {
    this.#commits.addMerged(this.redactor === undefined ? row : redacted(row, this.redactor));
  }
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
