/**
 * The lines of the bars of a timeline. Bars that overlap and have one parent get lanes, the first
 * that is free; a lane is as high as its highest bar with all that is inside it. So the bars inside a
 * bar are below it, and never in the lanes of another one.
 *
 *   line 0   [run                                    ]
 *   line 1    [step        ] [step                  ]
 *   line 2     [tool  ][text] [tool          ]  lane 0
 *   line 3                     [tool     ]      lane 1
 *
 * The lane of a bar depends only on bars that began earlier, so a live tail changes no lane, except
 * when a call without a result ends with its run.
 */
import type { Bar } from "./bars.ts";

export interface Lanes {
  /** The line of each bar, in the order of the bars. */
  readonly lines: Int32Array;
  /** The number of lines. */
  readonly height: number;
}

/** Above it, a bar that overlaps those of the first lanes gets a new lane without a search. */
const LANES_SEARCHED_MAX = 200;

export function lanesOf(bars: readonly Bar[]): Lanes {
  const places = new Map(bars.map((bar, at) => [bar, at]));
  const inside = new Map<number, number[]>();
  bars.forEach(({ parent }, at) => {
    const above = parent === undefined ? ROOT : (places.get(parent) ?? ROOT);
    const siblings = inside.get(above);
    if (siblings === undefined) inside.set(above, [at]);
    else siblings.push(at);
  });
  const heights = new Int32Array(bars.length).fill(1);
  const offsets = new Int32Array(bars.length);
  // A parent is before its children, so backwards every bar's height is known in time.
  for (let at = bars.length - 1; at >= 0; at -= 1) {
    const own = inside.get(at);
    if (own !== undefined) heights[at] = 1 + packed(bars, own, { heights, offsets });
  }
  const height = packed(bars, inside.get(ROOT) ?? [], { heights, offsets });
  const lines = new Int32Array(bars.length);
  bars.forEach(({ parent }, at) => {
    const above = parent === undefined ? undefined : places.get(parent);
    lines[at] = (above === undefined ? 0 : (lines[above] ?? 0) + 1) + (offsets[at] ?? 0);
  });
  return { lines, height };
}

const ROOT = -1;

interface Lane {
  endMs: number;
  toSeq: number;
  height: number;
  readonly bars: number[];
}

interface Measures {
  readonly heights: Int32Array;
  /** Filled here: lines between a bar's parent and the bar. */
  readonly offsets: Int32Array;
}

/** Returns the height of all lanes. */
function packed(bars: readonly Bar[], own: number[], { heights, offsets }: Measures): number {
  const lanes: Lane[] = [];
  for (const at of inOrder(bars, own)) {
    const bar = bars[at];
    if (bar === undefined) continue;
    const isOpen = bar.state === "open";
    const endMs = isOpen ? Number.POSITIVE_INFINITY : bar.endMs;
    const toSeq = isOpen ? Number.POSITIVE_INFINITY : bar.toSeq;
    const height = heights[at] ?? 1;
    const lane = freeLane(lanes, bar);
    if (lane === undefined) {
      lanes.push({ endMs, toSeq, height, bars: [at] });
      continue;
    }
    lane.endMs = endMs;
    lane.toSeq = Math.max(lane.toSeq, toSeq);
    lane.height = Math.max(lane.height, height);
    lane.bars.push(at);
  }
  let offset = 0;
  for (const lane of lanes) {
    for (const at of lane.bars) offsets[at] = offset;
    offset += lane.height;
  }
  return offset;
}

/** Free in time and in numbers, so that bars overlap on neither axis. */
function freeLane(lanes: readonly Lane[], { startMs, fromSeq }: Bar): Lane | undefined {
  const searched = Math.min(lanes.length, LANES_SEARCHED_MAX);
  for (let at = 0; at < searched; at += 1) {
    const lane = lanes[at];
    if (lane !== undefined && lane.endMs <= startMs && lane.toSeq < fromSeq) return lane;
  }
  return undefined;
}

/** By their beginnings: the times of a producer may go back. */
function inOrder(bars: readonly Bar[], own: number[]): readonly number[] {
  const startOf = (at: number): number => bars[at]?.startMs ?? 0;
  const isSorted = own.every(
    (at, index) => index === 0 || startOf(own[index - 1] ?? at) <= startOf(at),
  );
  return isSorted ? own : own.toSorted((a, b) => startOf(a) - startOf(b) || a - b);
}
