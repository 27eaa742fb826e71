/**
 * Turns raw events into rows, one after the other. Consecutive fragments of one text become one
 * row; every other event becomes a row of its own. No event is lost, and no event changes its
 * place.
 *
 *                 joins the open group
 *            ┌────────────────────────────┐
 *   push ────┤ a fragment that does not ──┼──► closes it, and opens one
 *            └ any other event ───────────┴──► closes it, and is a row
 *
 * A fragment joins when it has the group's type, and its payload has the same bytes except the
 * values of `delta` and `timestamp`. Those bytes include the ids of its message, tool call and
 * subagent, and every unknown field: payloads that differ anywhere else are never merged.
 *
 * A limit also closes a group: text, events, bytes, age. There is no timer and no clock here. The
 * caller passes the time. The caller must flush at `dueAtMs` when no event comes, at the end of the
 * stream, and after a failure. The compressor holds at most one group.
 */
import { isCompressible } from "../agui/catalogue.ts";
import { readPayload } from "../agui/payload.ts";
import { type Framed, framedOf } from "./frame.ts";
import { type CompressedRow, Group, type IncomingEvent, rowOfOne } from "./group.ts";
import { checkedLimits, type CompressorLimits } from "./limits.ts";
import { withEscapedHalves } from "./text.ts";

export type { CompressedRow, IncomingEvent } from "./group.ts";

export class Compressor<E extends IncomingEvent = IncomingEvent> {
  readonly #limits: CompressorLimits;
  #group: Group<E> | undefined;
  #dueAtMs = 0;

  /** Missing limits are taken from COMPRESSOR_LIMITS. */
  constructor(limits: Partial<CompressorLimits> = {}) {
    this.#limits = checkedLimits(limits);
  }

  /**
   * Returns the rows that this event completed, in order: none while it waits in a group, at most
   * two. `nowMs` is from a monotonic clock; a group that is due by then is closed before the event.
   * `framed` is the caller's earlier result for this same payload, so that it is not parsed again.
   */
  push(event: E, nowMs: number, framed?: Framed): readonly CompressedRow<E>[] {
    const payload = wellFormed(event.payload);
    const known = payload === event.payload ? framed : undefined;
    const merges = event.merges !== false;
    const group = this.#group;
    const isYoung = nowMs < this.#dueAtMs;
    if (merges && group !== undefined && isYoung && group.add(event, payload, known))
      return group.isFull ? this.#closed() : NO_ROWS;
    const rows = this.#closed();
    const opened = merges ? this.#opened(event, payload, known) : undefined;
    if (opened === undefined) return [...rows, rowOfOne(event, payload)];
    this.#group = opened;
    this.#dueAtMs = nowMs + this.#limits.maxAgeMs;
    return rows;
  }

  /** Closes the open group, if there is one. */
  flush(): CompressedRow<E> | undefined {
    const row = this.#group?.close();
    this.#group = undefined;
    return row;
  }

  /**
   * The time when the open group must be flushed, on the clock of `push`; undefined when none is
   * open.
   */
  get dueAtMs(): number | undefined {
    return this.#group && this.#dueAtMs;
  }

  #opened(event: E, payload: string, known: Framed | undefined): Group<E> | undefined {
    if (!isCompressible(event.eventType)) return undefined;
    const framed = known ?? framedOf(payload);
    return framed && Group.open(event, { ...framed, payload }, this.#limits);
  }

  #closed(): readonly CompressedRow<E>[] {
    const row = this.flush();
    return row === undefined ? NO_ROWS : [row];
  }
}

const NO_ROWS: readonly never[] = [];

/** Half a surrogate pair would reach protobuf, and PostgreSQL, as U+FFFD; an escape keeps it. */
function wellFormed(payload: string): string {
  if (payload.isWellFormed() || !readPayload(payload).ok) return payload;
  return withEscapedHalves(payload);
}
