/**
 * A timeline as it is drawn: each bar, mark and wait with its places on one axis and its line. The
 * axis is time, or the numbers of the events, which shows a log whose times tell nothing.
 *
 *   first     what waited, if anything did: user messages, and interrupts (only in time)
 *   second    marks, if any: states, activities, custom events
 *   below     the bars, as `lanes.ts` has them
 */
import { Axis } from "./axis.ts";
import type { Bar, Mark, Stretch } from "./bars.ts";
import { lanesOf } from "./lanes.ts";
import type { Wait } from "./waits.ts";

export type By = "time" | "events";

export interface SceneParts {
  /** The first bars are of a beginning behind which rows are missing: open ones reach up to its end. */
  readonly beginning?: { readonly bars: number; readonly endMs: number; readonly lastSeq: number };
  readonly bars: readonly Bar[];
  readonly marks: readonly Mark[];
  readonly waits: readonly Wait[];
  readonly span: Stretch;
  readonly lastSeq: number;
}

export interface SceneOptions {
  readonly by: By;
  readonly folds: boolean;
  readonly nowMs: number;
}

export interface Scene extends SceneParts {
  readonly by: By;
  readonly axis: Axis;
  readonly lines: Int32Array;
  readonly starts: Float64Array;
  readonly ends: Float64Array;
  readonly markPlaces: Float64Array;
  readonly waitsLine: number;
  readonly marksLine: number;
  /** All lines, with those above the bars. */
  readonly height: number;
}

export function sceneOf(parts: SceneParts, { by, folds, nowMs }: SceneOptions): Scene {
  const { bars, marks, waits, lastSeq } = parts;
  const known = parts.beginning?.bars ?? 0;
  const isOpen = bars.some(
    ({ state, parent }, at) => state === "open" && parent === undefined && at >= known,
  );
  const latestMs = isOpen ? Math.max(parts.span.endMs, nowMs) : parts.span.endMs;
  const span = { startMs: parts.span.startMs, endMs: latestMs };
  const axis = by === "events" ? new Axis(1, lastSeq) : timeAxis({ ...parts, span }, folds);
  const { lines, height } = lanesOf(bars);
  const waiting = by === "time" ? waits : [];
  const waitsLine = waiting.length === 0 ? -1 : 0;
  const marksLine = marks.length === 0 ? -1 : waitsLine + 1;
  const above = Math.max(waitsLine, marksLine) + 1;
  const starts = new Float64Array(bars.length);
  const ends = new Float64Array(bars.length);
  bars.forEach(({ startMs, endMs, fromSeq, toSeq, state }, at) => {
    const isEnded = state !== "open";
    const soFar = at < known ? parts.beginning : { endMs: latestMs, lastSeq };
    starts[at] = axis.place(by === "events" ? fromSeq : startMs);
    if (by === "events") ends[at] = axis.place((isEnded ? toSeq : (soFar?.lastSeq ?? toSeq)) + 1);
    else ends[at] = axis.place(isEnded ? endMs : (soFar?.endMs ?? endMs));
    lines[at] = (lines[at] ?? 0) + above;
  });
  const markPlaces = Float64Array.from(marks, ({ seq, atMs }) =>
    axis.place(by === "events" ? seq : atMs),
  );
  const drawn = { starts, ends, markPlaces, lines, waitsLine, marksLine, height: height + above };
  return { ...parts, span, waits: waiting, by, axis, ...drawn };
}

/** Quiet times in a run are kept: only where nothing was open or waited for long is a pause. */
function timeAxis({ bars, marks, waits, span, beginning }: SceneParts, folds: boolean): Axis {
  const { startMs, endMs } = withWaits(span, waits);
  if (!folds) return new Axis(startMs, endMs - startMs);
  const top = bars.flatMap((bar, at) => {
    if (bar.parent !== undefined) return [];
    const soFarMs = at < (beginning?.bars ?? 0) ? beginning?.endMs : span.endMs;
    const isOpen = bar.state === "open";
    return [{ startMs: bar.startMs, endMs: isOpen ? (soFarMs ?? bar.endMs) : bar.endMs }];
  });
  const loose = marks
    .filter(({ parent }) => parent === undefined)
    .map(({ atMs }) => ({ startMs: atMs, endMs: atMs }));
  // A message that waits for hours is a pause too; its beginning is not.
  const asked = waits.flatMap((wait) => [
    { startMs: wait.startMs, endMs: wait.startMs },
    { startMs: wait.endMs, endMs: wait.endMs },
  ]);
  return Axis.folded([...top, ...loose, ...asked]);
}

function withWaits(span: Stretch, waits: readonly Wait[]): Stretch {
  const startMs = Math.min(span.startMs, ...waits.slice(0, 1).map((wait) => wait.startMs));
  return { startMs, endMs: waits.reduce((end, wait) => Math.max(end, wait.endMs), span.endMs) };
}

/** The part of the axis that is shown, in places of the drawing. */
export interface Window {
  readonly from: number;
  readonly to: number;
}

/** The least that a window shows: a microsecond, or a twentieth of an event. */
const WINDOW_MIN = { time: 0.001, events: 0.05 } as const;
const MARGIN = 0.01;

export function wholeOf({ axis, by }: Scene): Window {
  const length = Math.max(axis.length, by === "events" ? 1 : 10);
  return { from: -length * MARGIN, to: length * (1 + MARGIN) };
}

/** The window around a place that stays where it is; a factor below 1 shows less. */
export function zoomed(
  scene: Scene,
  { from, to }: Window,
  zoom: { at: number; factor: number },
): Window {
  const whole = wholeOf(scene);
  const length = Math.min(
    Math.max((to - from) * zoom.factor, WINDOW_MIN[scene.by]),
    whole.to - whole.from,
  );
  const share = to > from ? (zoom.at - from) / (to - from) : 0.5;
  return clamped(scene, { from: zoom.at - share * length, to: zoom.at + (1 - share) * length });
}

export function panned(scene: Scene, { from, to }: Window, by: number): Window {
  return clamped(scene, { from: from + by, to: to + by });
}

/** The same length, moved into the whole. */
export function clamped(scene: Scene, { from, to }: Window): Window {
  const whole = wholeOf(scene);
  if (to - from >= whole.to - whole.from) return whole;
  const by = Math.max(whole.from - from, Math.min(0, whole.to - to));
  return { from: from + by, to: to + by };
}

export function around(scene: Scene, at: number): Window {
  const [start, end] = [scene.starts[at] ?? 0, scene.ends[at] ?? 0];
  const room = Math.max((end - start) * 0.15, WINDOW_MIN[scene.by] / 2);
  return clamped(scene, { from: start - room, to: end + room });
}

/** The hit at a place: the index of a bar, of a mark, or of a wait. */
export type Hit =
  | { readonly kind: "bar"; readonly at: number }
  | { readonly kind: "mark"; readonly at: number }
  | { readonly kind: "wait"; readonly at: number };

/** The nearest to the place on the line, not further than `reach`. */
export function hitAt(
  scene: Scene,
  { place, line, reach }: { readonly place: number; readonly line: number; readonly reach: number },
): Hit | undefined {
  const nearest = { at: -1, distance: reach };
  const look = (at: number, start: number, end: number): void => {
    const distance = place < start ? start - place : Math.max(0, place - end);
    // Of two that are as near, the later one is drawn above.
    if (distance <= nearest.distance) Object.assign(nearest, { at, distance });
  };
  if (line < 0) return undefined;
  if (line === scene.marksLine) {
    scene.markPlaces.forEach((at, index) => look(index, at, at));
    return nearest.at < 0 ? undefined : { kind: "mark", at: nearest.at };
  }
  if (line === scene.waitsLine) {
    const { axis } = scene;
    scene.waits.forEach(({ startMs, endMs }, at) =>
      look(at, axis.place(startMs), axis.place(endMs)),
    );
    return nearest.at < 0 ? undefined : { kind: "wait", at: nearest.at };
  }
  scene.lines.forEach((own, at) => {
    if (own === line) look(at, scene.starts[at] ?? 0, scene.ends[at] ?? 0);
  });
  return nearest.at < 0 ? undefined : { kind: "bar", at: nearest.at };
}

export interface Tick {
  readonly place: number;
  readonly value: number;
}

const NICE = [1, 2, 5, 10, 20, 50, 100, 200, 500];
const NICE_SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600];
const DAY_SECONDS = 86_400;

/** A step that people count in, at least as long as asked for. */
export function niceStep(atLeast: number, by: By): number {
  if (by === "time" && atLeast > 500) {
    const seconds = NICE_SECONDS.find((one) => one * 1_000 >= atLeast);
    if (seconds !== undefined) return seconds * 1_000;
    return Math.ceil(atLeast / (DAY_SECONDS * 1_000)) * DAY_SECONDS * 1_000;
  }
  const power = 10 ** Math.floor(Math.log10(Math.max(atLeast, 1e-6)));
  const step = (NICE.find((one) => one * power >= atLeast * 0.999_999) ?? 10) * power;
  return by === "events" ? Math.max(1, step) : step;
}

interface Ticks {
  readonly step: number;
  readonly ticks: readonly Tick[];
}

/** At most about `max` ticks in a window, none inside a fold. */
export function ticksIn({ axis, by }: Scene, { from, to }: Window, max: number): Ticks {
  const step = niceStep((to - from) / Math.max(1, max), by);
  const ends = [...axis.folds.map(({ from: end }) => end), Number.POSITIVE_INFINITY];
  const ticks: Tick[] = [];
  let begin = Math.max(axis.from, axis.value(from));
  for (const end of ends) {
    for (let value = Math.ceil(begin / step) * step; value <= end; value += step) {
      const place = axis.place(value);
      if (place > to || ticks.length > 2 * max) return { step, ticks };
      if (place >= from) ticks.push({ place, value });
    }
    begin = axis.folds.find(({ from: own }) => own === end)?.to ?? begin;
    begin = Math.max(begin, axis.value(from));
  }
  return { step, ticks };
}

/** The place of an event. Time: of its row, so the events of a merged row share a stretch. */
export function placeOfEvent(
  { by, axis }: Scene,
  { seq, rows }: { readonly seq: number; readonly rows: readonly TimedEvent[] },
): number {
  if (by === "events") return axis.place(seq + 1);
  const row = rows[lastAt(rows, (one) => one.seq <= seq)];
  if (row === undefined) return 0;
  const share = row.lastSeq > row.seq ? Math.min(1, (seq - row.seq) / (row.lastSeq - row.seq)) : 0;
  return axis.place(row.atMs + share * (row.endMs - row.atMs));
}

/** The number of the event at a place: the last one that had come. */
export function eventAt(
  { by, axis, lastSeq }: Scene,
  { place, rows }: { readonly place: number; readonly rows: readonly TimedEvent[] },
): number {
  const value = axis.value(place);
  if (by === "events") return Math.min(Math.max(1, Math.floor(value)), Math.max(1, lastSeq));
  return (
    rows[
      Math.max(
        0,
        lastAt(rows, ({ atMs }) => atMs <= value),
      )
    ]?.seq ?? 1
  );
}

interface TimedEvent {
  readonly seq: number;
  readonly lastSeq: number;
  readonly atMs: number;
  readonly endMs: number;
}

/** The index of the last row that fits, of rows of which a beginning fits; -1: none. */
function lastAt(rows: readonly TimedEvent[], fits: (row: TimedEvent) => boolean): number {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const row = rows[middle];
    if (row !== undefined && fits(row)) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
