/**
 * Raw events to rows, as they come. Consecutive fragments of one text become one row; everything else
 * is a row of its own; nothing is lost, and nothing changes its place.
 *
 *                 joins the open group
 *            ┌────────────────────────────┐
 *   push ────┤ a fragment that does not ──┼──► closes it, and opens one
 *            └ any other event ───────────┴──► closes it, and is a row
 *
 * A fragment joins when it is of the group's type and its payload is the same bytes but for the values
 * of `delta` and `timestamp`. The ids of its message, tool call and subagent are among those bytes,
 * and so is every field that nobody has thought of yet: what differs anywhere is never merged.
 *
 * A group that could go on is closed by a limit: text, events, bytes, age. There is no timer and no
 * clock in here. Whoever calls says what time it is, and flushes by `dueAtMs` when no event comes, at
 * the end of the stream, and when something fails. What is held is one group, never more.
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

  /** Limits that are left out are COMPRESSOR_LIMITS. */
  constructor(limits: Partial<CompressorLimits> = {}) {
    this.#limits = checkedLimits(limits);
  }

  /**
   * The rows that this event completed, in order: none while it waits in a group, at most two. `nowMs`
   * is of a clock that never steps back; a group that is due by then is closed before the event.
   * `framed` is what the caller knows of this very payload, so that it is not looked through again.
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

  /** When the open group has to be flushed, on the clock of `push`; undefined when none is open. */
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

/** Half a surrogate pair would reach protobuf, and PostgreSQL, as U+FFFD; as an escape it is kept. */
function wellFormed(payload: string): string {
  if (payload.isWellFormed() || !readPayload(payload).ok) return payload;
  return withEscapedHalves(payload);
}
