/**
 * Makes rows from the accepted events, in the order they arrived:
 *
 *   taken ──► redaction, where there is one ──► the open group ──► rows, to commits.ts
 *             may hold what ends like the         └─ or a row of its own
 *             beginning of a secret
 *
 * A close of the group needs every received event committed, so redaction then releases the text it
 * holds.
 */
import { Compressor, type CompressorLimits } from "../../compressor/compressor.ts";
import { gapsOf } from "../../compressor/frame.ts";
import type { RedactionLine, Texts } from "../../redaction/line.ts";
import type { Redactor } from "../../redaction/redactor.ts";
import type { GroupStep, RowSink } from "./commits.ts";
import { type FragmentEvent, printed, type Taken, type TakenFragment } from "./intake.ts";
import type { GroupClosing, StreamMeter } from "./meter.ts";

export interface StreamRowsOptions {
  readonly compressor: Pick<CompressorLimits, "maxAgeMs"> & Partial<CompressorLimits>;
  /** Undefined: nothing is redacted. */
  readonly redactor: Redactor | undefined;
  /** Secrets that were incomplete at the end of the previous stream. */
  readonly texts?: Texts | undefined;
}

/** An event and its role in the stream. */
export interface Arrival {
  readonly taken: Taken;
  readonly payloadBytes: number;
  readonly nowMs: number;
}

export class StreamRows {
  readonly #commits: RowSink;
  readonly #meter: Pick<StreamMeter, "groupClosed">;
  readonly #compressor: Compressor<FragmentEvent>;
  readonly #line: RedactionLine<Arrival> | undefined;

  constructor(
    commits: RowSink,
    meter: Pick<StreamMeter, "groupClosed">,
    { compressor, redactor, texts }: StreamRowsOptions,
  ) {
    this.#commits = commits;
    this.#meter = meter;
    this.#compressor = new Compressor(compressor);
    this.#line = redactor?.line<Arrival>(
      (arrival, delta) => this.#settle(delta === undefined ? arrival : withDelta(arrival, delta)),
      { maxAgeMs: compressor.maxAgeMs, texts },
    );
  }

  /** True when some events are not rows yet. */
  get isOpen(): boolean {
    return this.#compressor.dueAtMs !== undefined || this.#line?.dueAtMs !== undefined;
  }

  /** Incomplete secrets, for the stream that continues. */
  get openTexts(): Texts | undefined {
    return this.#line?.openTexts;
  }

  /** The time for the next call of `due`. */
  get dueAtMs(): number | undefined {
    const group = this.#compressor.dueAtMs;
    const held = this.#line?.dueAtMs;
    return group === undefined || held === undefined ? (group ?? held) : Math.min(group, held);
  }

  add(arrival: Arrival): void {
    this.#commits.numbers.receive(arrival.payloadBytes);
    if (this.#line === undefined) this.#settle(arrival);
    else this.#redact(this.#line, arrival);
  }

  /** Makes rows of all received events. */
  close(by: GroupClosing): void {
    this.#line?.letGo();
    this.#closeGroup(by);
  }

  /** Makes rows of the events that have waited long enough. */
  due(nowMs: number): void {
    if (nowMs >= (this.#line?.dueAtMs ?? Number.POSITIVE_INFINITY)) this.#line?.letGo();
    if (nowMs >= (this.#compressor.dueAtMs ?? Number.POSITIVE_INFINITY)) this.#closeGroup("age");
  }

  #redact(line: RedactionLine<Arrival>, arrival: Arrival): void {
    const { taken, nowMs } = arrival;
    if (taken.kind === "fragment") {
      const { place } = taken.event;
      const spelled = deltaOf(taken);
      if (place !== undefined && spelled !== undefined)
        line.takeText(arrival, { place, spelled }, nowMs);
      // A CHUNK without text names the text that the next chunk continues.
      else line.take(arrival, [place], nowMs);
    } else {
      const places = taken.kind === "rows" ? taken.rows.map(({ place }) => place) : NO_PLACES;
      line.take(arrival, places, nowMs);
    }
  }

  #settle({ taken, payloadBytes, nowMs }: Arrival): void {
    const { numbers } = this.#commits;
    switch (taken.kind) {
      case "fragment":
        numbers.accepted(payloadBytes, this.#compress(taken, nowMs));
        break;
      case "rows":
        this.#closeGroup("event");
        for (const row of taken.rows) this.#commits.add(row);
        numbers.accepted(payloadBytes, "none");
        break;
      case "refused":
        numbers.refused(payloadBytes);
    }
  }

  #compress({ event, framed }: TakenFragment, nowMs: number): GroupStep {
    const compressor = this.#compressor;
    const dueMs = compressor.dueAtMs;
    const rows = compressor.push(event, nowMs, framed);
    for (const row of rows) this.#commits.addMerged(row);
    if (dueMs !== undefined && rows.length > 0)
      this.#meter.groupClosed(nowMs >= dueMs ? "age" : "event");
    if (compressor.dueAtMs === undefined) return "none";
    return dueMs === undefined || rows.length > 0 ? "began" : "joined";
  }

  #closeGroup(by: GroupClosing): void {
    const row = this.#compressor.flush();
    if (row === undefined) return;
    this.#commits.addMerged(row);
    this.#commits.numbers.groupClosed();
    this.#meter.groupClosed(by);
  }
}

const NO_PLACES: readonly never[] = [];

/** The delta as spelled in the payload; undefined where it is absent. */
function deltaOf({ event, framed }: TakenFragment): string | undefined {
  if (framed !== undefined) return framed.pieces.delta?.spelled;
  const { delta } = gapsOf(event.payload);
  return delta && event.payload.slice(delta.start, delta.end);
}

/** The same arrival with another text. `framed` is dropped, because it describes the old text. */
function withDelta({ taken, ...arrival }: Arrival, spelled: string): Arrival {
  if (taken.kind !== "fragment") return { taken, ...arrival };
  const { event, framed } = taken;
  const { delta } = framed === undefined ? gapsOf(event.payload) : {};
  const payload =
    framed === undefined
      ? event.payload.slice(0, delta?.start) + spelled + event.payload.slice(delta?.end)
      : printed(framed.frame, { ...framed.pieces, delta: { spelled } });
  return {
    ...arrival,
    taken: { kind: "fragment", event: { ...event, payload }, framed: undefined },
  };
}
