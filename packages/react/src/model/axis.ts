/**
 * The axis of a timeline, from places of the log (milliseconds, or numbers of events) to places on
 * the drawing and back. A night between two runs would make both of them too small to see, so the
 * pauses between what happened can be folded: each keeps a short, equal length.
 *
 *   log       ├─run─┤        eight hours        ├─run─┤
 *   drawing   ├─run─┤▒├─run─┤
 */
import type { Stretch } from "./bars.ts";

/** A pause that was folded; `from` and `to` are places of the log, `at` and `end` of the drawing. */
export interface Fold {
  readonly from: number;
  readonly to: number;
  readonly at: number;
  readonly end: number;
}

/** A pause is folded when it is longer than this share of all that is not a pause. */
const PAUSE_SHARE = 0.08;
const FOLDED_SHARE = 0.025;
const PAUSE_MS_MIN = 2_000;

export class Axis {
  readonly from: number;
  /** The length of the drawing, in units of the log. */
  readonly length: number;
  readonly folds: readonly Fold[];

  /** An axis without folds. */
  constructor(from: number, length: number, folds: readonly Fold[] = []) {
    this.from = from;
    this.length = length;
    this.folds = folds;
  }

  /** Folds the pauses between the stretches, which may overlap and come in any order. */
  static folded(stretches: readonly Stretch[]): Axis {
    const busy = merged(stretches);
    const first = busy[0];
    const last = busy.at(-1);
    if (first === undefined || last === undefined) return new Axis(0, 0);
    const sumMs = busy.reduce((sum, { startMs, endMs }) => sum + endMs - startMs, 0);
    // In steps: while a session grows, its folds keep their lengths, and a reader the place.
    const busyMs = 2 ** Math.ceil(Math.log2(Math.max(1, sumMs)));
    const pauseMs = Math.max(PAUSE_MS_MIN, busyMs * PAUSE_SHARE);
    const foldedMs = Math.max(PAUSE_MS_MIN / 4, busyMs * FOLDED_SHARE);
    const folds: Fold[] = [];
    let saved = 0;
    busy.forEach(({ startMs: to }, index) => {
      const from = busy[index - 1]?.endMs ?? to;
      if (to - from <= pauseMs) return;
      const at = from - first.startMs - saved;
      folds.push({ from, to, at, end: at + foldedMs });
      saved += to - from - foldedMs;
    });
    return new Axis(first.startMs, last.endMs - first.startMs - saved, folds);
  }

  /** From a place of the log to a place of the drawing. */
  place(value: number): number {
    const fold = lastWhere(this.folds, ({ from }) => from <= value);
    if (fold === undefined) return value - this.from;
    if (value >= fold.to) return fold.end + value - fold.to;
    return fold.at + ((value - fold.from) / (fold.to - fold.from)) * (fold.end - fold.at);
  }

  /** From a place of the drawing to a place of the log. */
  value(place: number): number {
    const fold = lastWhere(this.folds, ({ at }) => at <= place);
    if (fold === undefined) return this.from + place;
    if (place >= fold.end) return fold.to + place - fold.end;
    return fold.from + ((place - fold.at) / (fold.end - fold.at)) * (fold.to - fold.from);
  }
}

function merged(stretches: readonly Stretch[]): readonly Stretch[] {
  const all: { startMs: number; endMs: number }[] = [];
  for (const { startMs, endMs } of stretches.toSorted((a, b) => a.startMs - b.startMs)) {
    const last = all.at(-1);
    if (last !== undefined && startMs <= last.endMs) last.endMs = Math.max(last.endMs, endMs);
    else all.push({ startMs, endMs });
  }
  return all;
}

/** The last item that fits, of items of which a beginning fits. */
function lastWhere<T>(items: readonly T[], fits: (item: T) => boolean): T | undefined {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const item = items[middle];
    if (item !== undefined && fits(item)) low = middle + 1;
    else high = middle;
  }
  return items[low - 1];
}
