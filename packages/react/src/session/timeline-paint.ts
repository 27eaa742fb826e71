/** Draws the window of a scene on a canvas; of shapes that are too small, one a pixel. */
import type { Bar } from "../model/bars.ts";
import { type Scene, ticksIn, type Window } from "../model/scene.ts";
import { clockText, count, duration } from "../ui/format.ts";
import { cut, visible } from "../ui/text.ts";
import { nameOf } from "./described.ts";
import { colourOf, type Palette } from "./palette.ts";

export const LINE_PX = 20;
export const RULER_PX = 20;
const BAR_PX = 16;
const TICK_PX = 96;
const LABEL_PX_MIN = 24;
const LABEL_CHARS_MAX = 200;

export interface Picture {
  readonly scene: Scene;
  readonly window: Window;
  readonly widthPx: number;
  readonly heightPx: number;
  /** Lines that are scrolled away above. */
  readonly scrollPx: number;
  /** The place of the cursor; undefined: it is live. */
  readonly cursor: number | undefined;
  readonly selected: Bar | undefined;
  readonly palette: Palette;
}

export function paint(context: CanvasRenderingContext2D, picture: Picture): void {
  const { widthPx, heightPx, palette } = picture;
  context.clearRect(0, 0, widthPx, heightPx);
  context.font = `11px ${palette.font}`;
  context.textBaseline = "middle";
  paintGrid(context, picture);
  paintFolds(context, picture);
  context.save();
  context.beginPath();
  context.rect(0, RULER_PX, widthPx, heightPx - RULER_PX);
  context.clip();
  paintWaits(context, picture);
  paintMarks(context, picture);
  paintBars(context, picture);
  paintCursor(context, picture);
  context.restore();
}

function scaleOf({ window: { from, to }, widthPx }: Picture): (place: number) => number {
  const perUnit = widthPx / Math.max(to - from, Number.MIN_VALUE);
  return (place) => (place - from) * perUnit;
}

function topOf(line: number, scrollPx: number): number {
  return RULER_PX + line * LINE_PX - scrollPx;
}

function paintGrid(context: CanvasRenderingContext2D, picture: Picture): void {
  const { scene, window, widthPx, heightPx, palette } = picture;
  const xOf = scaleOf(picture);
  const { step, ticks } = ticksIn(scene, window, widthPx / TICK_PX);
  context.strokeStyle = palette.border;
  context.fillStyle = palette.muted;
  context.lineWidth = 1;
  context.beginPath();
  let free = 0;
  const folds = scene.axis.folds.map(({ at }) => xOf(at));
  for (const { place, value } of ticks) {
    const x = Math.round(xOf(place)) + 0.5;
    context.moveTo(x, RULER_PX - 4);
    context.lineTo(x, heightPx);
    const text = scene.by === "events" ? count(value) : timeLabel(value, step);
    const end = x + 4 + context.measureText(text).width;
    // A fold has another text.
    const limit = folds.find((at) => at > x) ?? Number.POSITIVE_INFINITY;
    if (x + 4 < free || end > limit) continue;
    context.fillText(text, x + 4, RULER_PX / 2);
    free = end + 8;
  }
  context.moveTo(0, RULER_PX - 0.5);
  context.lineTo(widthPx, RULER_PX - 0.5);
  context.stroke();
}

/** Milliseconds only where the ticks need them. */
function timeLabel(atMs: number, stepMs: number): string {
  const text = clockText(atMs);
  if (stepMs >= 60_000) return text.slice(0, 5);
  if (stepMs >= 1_000) return text.slice(0, 8);
  const micros = stepMs < 1 ? `.${String(Math.floor((atMs % 1) * 1_000)).padStart(3, "0")}` : "";
  return text.slice(6) + micros;
}

function paintFolds(context: CanvasRenderingContext2D, picture: Picture): void {
  const { scene, heightPx, widthPx, palette } = picture;
  const xOf = scaleOf(picture);
  for (const { at, end, from, to } of scene.axis.folds) {
    const [left, right] = [xOf(at), xOf(end)];
    if (right < 0 || left > widthPx) continue;
    context.fillStyle = palette.sunken;
    context.fillRect(left, RULER_PX, right - left, heightPx - RULER_PX);
    hatch(context, { left, right, top: RULER_PX, bottom: heightPx }, palette.border);
    // One unit is enough for a pause, and the ruler has no ticks here.
    const text = duration(to - from)
      .split(" ")
      .slice(0, 2)
      .join(" ");
    const { width } = context.measureText(text);
    if (width + 4 > right - left) continue;
    context.fillStyle = palette.muted;
    context.fillText(text, (left + right - width) / 2, RULER_PX / 2);
  }
}

interface Box {
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}

/** Slanted lines: nothing happens here. */
function hatch(context: CanvasRenderingContext2D, box: Box, colour: string): void {
  const { left, right, top, bottom } = box;
  context.save();
  context.beginPath();
  context.rect(left, top, right - left, bottom - top);
  context.clip();
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.beginPath();
  const height = bottom - top;
  for (let x = Math.floor((left - height) / 6) * 6; x < right; x += 6) {
    context.moveTo(x, bottom);
    context.lineTo(x + height, top);
  }
  context.stroke();
  context.restore();
}

/** The part of a stretch that is on the canvas; the hatch of a long one stays cheap. */
function shown(left: number, right: number, widthPx: number): readonly [number, number] {
  return [Math.max(left, -20), Math.min(right, widthPx + 20)];
}

function paintWaits(context: CanvasRenderingContext2D, picture: Picture): void {
  const { scene, scrollPx, widthPx, palette } = picture;
  const { axis, waits } = scene;
  const xOf = scaleOf(picture);
  const top = topOf(scene.waitsLine, scrollPx) + 4;
  const bottom = top + BAR_PX - 4;
  let free = 0;
  for (const [at, { kind, startMs, endMs }] of waits.entries()) {
    const begin = xOf(axis.place(startMs));
    const next = waits[at + 1];
    const limit = next === undefined ? widthPx : xOf(axis.place(next.startMs)) - 6;
    const [left, right] = shown(begin, xOf(axis.place(endMs)), widthPx);
    if (right < 0 || left > widthPx) continue;
    const colour = kind === "interrupt" ? palette.warn : palette.muted;
    if (right - left > 2) {
      hatch(context, { left, right, top: top + 3, bottom: bottom - 3 }, colour);
      const text = duration(endMs - startMs);
      const width = context.measureText(text).width + 8;
      const x = Math.max(left, 0) + 10;
      if (Math.min(right, limit) - x > width && x > free) {
        context.fillStyle = palette.page;
        context.fillRect(x, top, width, bottom - top);
        context.fillStyle = palette.muted;
        context.fillText(text, x + 4, (top + bottom) / 2);
        free = x + width;
      }
    }
    context.fillStyle = colour;
    if (kind === "message") disc(context, begin, (top + bottom) / 2, 4);
    else diamond(context, begin, (top + bottom) / 2, 5);
  }
}

function disc(context: CanvasRenderingContext2D, x: number, y: number, radius: number): void {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
}

function diamond(context: CanvasRenderingContext2D, x: number, y: number, radius: number): void {
  context.beginPath();
  context.moveTo(x, y - radius);
  context.lineTo(x + radius, y);
  context.lineTo(x, y + radius);
  context.lineTo(x - radius, y);
  context.fill();
}

/** States are diamonds, what nobody knows is a cross, and all others are bars of one pixel. */
function paintMarks(context: CanvasRenderingContext2D, picture: Picture): void {
  const { scene, scrollPx, widthPx, palette } = picture;
  const xOf = scaleOf(picture);
  const y = topOf(scene.marksLine, scrollPx) + LINE_PX / 2;
  let last = -1;
  scene.marks.forEach(({ category }, at) => {
    const x = Math.round(xOf(scene.markPlaces[at] ?? 0));
    if (x < -6 || x > widthPx + 6 || x === last) return;
    last = x;
    if (category === "state") {
      context.fillStyle = palette.subagent;
      diamond(context, x, y, 4);
    } else {
      context.fillStyle = category === "custom" ? palette.muted : palette.bad;
      context.fillRect(x - 0.5, y - 5, 1, 10);
    }
  });
}

function paintBars(context: CanvasRenderingContext2D, picture: Picture): void {
  const { scene, scrollPx, widthPx, heightPx } = picture;
  const { bars, lines, starts, ends } = scene;
  const xOf = scaleOf(picture);
  const filled = new Float64Array(scene.height).fill(-10);
  for (let at = 0; at < bars.length; at += 1) {
    const line = lines[at] ?? 0;
    const top = topOf(line, scrollPx) + 2;
    if (top > heightPx || top + BAR_PX < RULER_PX) continue;
    const left = xOf(starts[at] ?? 0);
    const right = Math.max(xOf(ends[at] ?? 0), left + 2);
    if (right < 0 || left > widthPx) continue;
    // What ends in the pixel that is drawn already adds nothing to it.
    if (right < (filled[line] ?? 0) + 0.5) continue;
    filled[line] = right;
    const bar = bars[at];
    if (bar !== undefined) paintBar(context, picture, { bar, left, right, top });
  }
}

interface Spot {
  readonly bar: Bar;
  readonly left: number;
  readonly right: number;
  readonly top: number;
}

function paintBar(
  context: CanvasRenderingContext2D,
  picture: Picture,
  { bar, left, right, top }: Spot,
): void {
  const { palette, widthPx, selected } = picture;
  const colour = colourOf(bar, palette);
  const [from, to] = shown(left, right, widthPx);
  const bottom = top + BAR_PX;
  context.fillStyle = palette.page;
  context.fillRect(from, top, to - from, BAR_PX);
  context.fillStyle = colour;
  for (const [begin, end, alpha] of partsOf(picture, { bar, left, right, top })) {
    context.globalAlpha = alpha;
    const [x, until] = shown(Math.max(begin, left), Math.min(end, right), widthPx);
    if (until > x) context.fillRect(x, top, until - x, BAR_PX);
  }
  context.globalAlpha = 1;
  context.fillRect(left, top, 2, BAR_PX);
  if (bar.state === "failed") context.fillRect(from, bottom - 2, to - from, 2);
  if (bar.state === "cut" || bar.state === "open") dashedEnd(context, right, top);
  if (bar === selected) {
    context.strokeStyle = palette.accent;
    context.lineWidth = 2;
    context.strokeRect(from, top, Math.max(to - from, 3), BAR_PX);
  }
  label(context, picture, { bar, left, right, top });
}

const STRONG = 0.36;
const PALE = 0.16;

/** Pale is where nothing comes: a run is silent, or a call waits for its result. */
function partsOf(
  picture: Picture,
  { bar, left, right }: Spot,
): readonly (readonly [from: number, to: number, alpha: number])[] {
  const { axis, by } = picture.scene;
  if (by === "events" || right - left < 4) return [[left, right, STRONG]];
  const xOf = scaleOf(picture);
  if (bar.kind === "tool" && bar.calledMs !== undefined) {
    const called = xOf(axis.place(bar.calledMs));
    return [
      [left, called, STRONG],
      [called, right, PALE],
    ];
  }
  const parts: (readonly [number, number, number])[] = [];
  let from = left;
  for (const { startMs, endMs } of bar.run?.quiet ?? []) {
    const [start, end] = [xOf(axis.place(startMs)), xOf(axis.place(endMs))];
    if (end - start < 1) continue;
    parts.push([from, start, STRONG], [start, end, PALE]);
    from = end;
  }
  return [...parts, [from, right, STRONG]];
}

function dashedEnd(context: CanvasRenderingContext2D, right: number, top: number): void {
  for (let y = top; y < top + BAR_PX; y += 4) context.fillRect(right - 2, y, 2, 2);
}

/** The name of a bar, and its time where it has room. */
function label(
  context: CanvasRenderingContext2D,
  { scene, palette, widthPx }: Picture,
  { bar, left, right, top }: Spot,
): void {
  const from = Math.max(left, 0) + 6;
  const room = Math.min(right, widthPx) - from - 4;
  if (room < LABEL_PX_MIN) return;
  const name = visible(cut(`${bar.kind === "run" ? "Run " : ""}${nameOf(bar)}`, LABEL_CHARS_MAX));
  const at = top + BAR_PX / 2 + 0.5;
  context.fillStyle = palette.ink;
  const fitted = fit(context, `${SHAPES[bar.state] ?? ""}${name}`, room);
  context.fillText(fitted.text, from, at);
  const took = scene.by === "time" ? duration(bar.endMs - bar.startMs) : "";
  const rest = room - fitted.width - 8;
  if (took === "" || bar.state === "open" || context.measureText(took).width > rest) return;
  context.fillStyle = palette.muted;
  context.fillText(took, from + fitted.width + 8, at);
}

const SHAPES: Readonly<Partial<Record<Bar["state"], string>>> = {
  failed: "✕ ",
  interrupted: "△ ",
  cancelled: "⊘ ",
  cut: "┄ ",
  open: "● ",
};

function fit(
  context: CanvasRenderingContext2D,
  text: string,
  room: number,
): { readonly text: string; readonly width: number } {
  const width = context.measureText(text).width;
  if (width <= room) return { text, width };
  // Bidirectional text is as wide in any order, so a share of its characters is near enough.
  const short = `${cut(text, Math.max(1, Math.floor((text.length * (room - 8)) / width)))}…`;
  return { text: short, width: context.measureText(short).width };
}

function paintCursor(context: CanvasRenderingContext2D, picture: Picture): void {
  const { cursor, widthPx, heightPx, palette } = picture;
  if (cursor === undefined) return;
  const x = Math.round(scaleOf(picture)(cursor)) + 0.5;
  if (x < widthPx) {
    context.globalAlpha = 0.35;
    context.fillStyle = palette.page;
    context.fillRect(Math.max(x, 0), RULER_PX, widthPx - x, heightPx);
    context.globalAlpha = 1;
  }
  context.strokeStyle = palette.accent;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(x, RULER_PX);
  context.lineTo(x, heightPx);
  context.stroke();
}

/** The whole of a session in a strip: the runs below, and where its events are, above. */
export function paintOverview(context: CanvasRenderingContext2D, picture: Picture): void {
  const { scene, widthPx, heightPx, palette } = picture;
  const xOf = scaleOf(picture);
  context.clearRect(0, 0, widthPx, heightPx);
  const density = new Float64Array(Math.ceil(widthPx) + 1);
  for (let at = 0; at < scene.bars.length; at += 1) {
    const { kind } = scene.bars[at] ?? { kind: "run" };
    if (kind === "run") continue;
    const from = Math.max(0, Math.floor(xOf(scene.starts[at] ?? 0)));
    const to = Math.min(density.length - 1, Math.floor(xOf(scene.ends[at] ?? 0)));
    for (let x = from; x <= to; x += 1) density[x] = (density[x] ?? 0) + 1;
  }
  const most = Math.max(1, ...density);
  context.fillStyle = palette.tool;
  density.forEach((value, x) => {
    const height = value === 0 ? 0 : Math.max(1, (value / most) * (heightPx - 8));
    context.fillRect(x, heightPx - 6 - height, 1, height);
  });
  scene.bars.forEach((bar, at) => {
    if (bar.kind !== "run") return;
    const left = xOf(scene.starts[at] ?? 0);
    context.fillStyle = colourOf(bar, palette);
    context.fillRect(left, heightPx - 4, Math.max(1, xOf(scene.ends[at] ?? 0) - left), 3);
  });
}
