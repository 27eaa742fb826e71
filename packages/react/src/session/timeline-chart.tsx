/** The bars on a canvas, with pointer, wheel and keys. */
import {
  type KeyboardEvent,
  type PointerEvent,
  type RefObject,
  useEffect,
  useLayoutEffect,
  useRef,
  useState,
} from "react";
import type { Bar } from "../model/bars.ts";
import {
  eventAt,
  type Hit,
  hitAt,
  clamped,
  panned,
  type Scene,
  type Window,
  zoomed,
} from "../model/scene.ts";
import { useInSession } from "./in-session.ts";
import { LINE_PX, paint, RULER_PX } from "./timeline-paint.ts";
import { useCanvas } from "./use-canvas.ts";

interface ChartProps {
  readonly scene: Scene;
  readonly window: Window;
  readonly cursor: number | undefined;
  readonly selected: Bar | undefined;
  readonly show: (window: Window) => void;
  readonly select: (bar: Bar | undefined) => void;
  /** Zooms to the bar. */
  readonly reach: (bar: Bar) => void;
  readonly hover: (hit: Hit | undefined) => void;
}

/** A press that moves less is a click. */
const CLICK_PX = 4;
const REACH_PX = 5;
const WHEEL_ZOOM = 1.0015;
const WHEEL_LINE_PX = 20;

interface ChartDrag {
  readonly clientX: number;
  readonly clientY: number;
  readonly window: Window;
  readonly scrollPx: number;
  readonly selects: boolean;
  hasMoved: boolean;
}

export function TimelineChart(props: ChartProps) {
  const { scene, window, cursor, selected, select, reach, hover } = props;
  const box = useRef<HTMLDivElement>(null);
  const [scrollPx, setScrollPx] = useState(0);
  const { canvas, widthPx, heightPx, palette, draw } = useCanvas();
  useLayoutEffect(() => {
    if (palette === undefined) return;
    draw((context) =>
      paint(context, { scene, window, widthPx, heightPx, scrollPx, cursor, selected, palette }),
    );
  });
  const perPx = (window.to - window.from) / Math.max(1, widthPx);
  const pointer = usePointer({ ...props, box, perPx });
  const step = (event: KeyboardEvent): void => {
    const next = nextBar(scene, selected, event.key);
    if (next === undefined && event.key !== "Enter") return;
    event.preventDefault();
    event.stopPropagation();
    if (next !== undefined) {
      select(next);
      scrollTo(box.current, scene, next);
    } else if (selected !== undefined) reach(selected);
  };
  return (
    // No role describes this control: its keys are in its name.
    // oxlint-disable-next-line jsx-a11y/no-noninteractive-element-interactions
    <div
      ref={box}
      className="timeline-chart"
      role="group"
      // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex
      tabIndex={0}
      aria-label="Chart of the timeline. Left and right go through the bars, up and down to the outer and the inner one, Enter zooms to it."
      {...pointer.listeners}
      onPointerLeave={() => hover(undefined)}
      onDoubleClick={() => selected !== undefined && reach(selected)}
      onKeyDown={step}
      onScroll={({ currentTarget }) => setScrollPx(currentTarget.scrollTop)}
    >
      <canvas ref={canvas} className="timeline-canvas" aria-hidden="true" />
      <div style={{ height: Math.max(0, RULER_PX + scene.height * LINE_PX - heightPx) }} />
      {pointer.brush !== undefined && (
        <div
          className="timeline-brush"
          style={{
            left: Math.min(...pointer.brush),
            width: Math.abs(pointer.brush[1] - pointer.brush[0]),
          }}
        />
      )}
    </div>
  );
}

interface Pointed extends ChartProps {
  readonly box: RefObject<HTMLDivElement | null>;
  /** Of the axis. */
  readonly perPx: number;
}

interface At {
  readonly clientX: number;
  readonly clientY: number;
}

interface Drawn {
  readonly scene: Scene;
  readonly window: Window;
  readonly box: HTMLElement | null;
  readonly perPx: number;
}

function underPointer({ clientX, clientY }: At, { scene, window, box, perPx }: Drawn) {
  const { left, top } = box?.getBoundingClientRect() ?? { left: 0, top: 0 };
  const x = clientX - left;
  const place = window.from + x * perPx;
  const y = clientY - top - RULER_PX;
  const line = y < 0 ? -1 : Math.floor((y + (box?.scrollTop ?? 0)) / LINE_PX);
  return { x, place, hit: hitAt(scene, { place, line, reach: REACH_PX * perPx }) };
}

/** Wheel: zoom; drag: move; with shift: choose a part; press: move the cursor. */
function usePointer({ scene, window, box, perPx, show, select, hover }: Pointed) {
  const { log, moveTo } = useInSession();
  const drag = useRef<ChartDrag>(undefined);
  const [brush, setBrush] = useState<readonly [number, number]>();
  const under = (at: At) => underPointer(at, { scene, window, box: box.current, perPx });
  useWheel(box, (event) => {
    const { deltaX, deltaY, deltaMode, shiftKey, altKey } = event;
    const factor = deltaMode === WheelEvent.DOM_DELTA_LINE ? WHEEL_LINE_PX : 1;
    if (altKey) box.current?.scrollBy(0, deltaY * factor);
    else if (shiftKey || Math.abs(deltaX) > Math.abs(deltaY)) {
      show(panned(scene, window, (shiftKey ? deltaX + deltaY : deltaX) * factor * perPx));
    } else {
      const { place } = under(event);
      show(zoomed(scene, window, { at: place, factor: WHEEL_ZOOM ** (deltaY * factor) }));
    }
  });
  const press = ({ hit, place }: ReturnType<typeof under>): void => {
    if (hit?.kind === "bar") {
      select(scene.bars[hit.at]);
      return;
    }
    const mark = hit?.kind === "mark" ? scene.marks[hit.at]?.seq : undefined;
    const wait = hit?.kind === "wait" ? scene.waits[hit.at]?.run?.fromSeq : undefined;
    moveTo(mark ?? wait ?? eventAt(scene, { place, rows: log.rows }));
  };
  const listeners = {
    onPointerDown(event: PointerEvent<HTMLDivElement>) {
      if (event.button !== 0) return;
      event.currentTarget.setPointerCapture(event.pointerId);
      const scrollPx = event.currentTarget.scrollTop;
      const from = { clientX: event.clientX, clientY: event.clientY, window, scrollPx };
      drag.current = { ...from, selects: event.shiftKey, hasMoved: false };
    },
    onPointerMove(event: PointerEvent<HTMLDivElement>) {
      const from = drag.current;
      if (from === undefined) {
        hover(under(event).hit);
        return;
      }
      const [dx, dy] = [event.clientX - from.clientX, event.clientY - from.clientY];
      if (Math.abs(dx) + Math.abs(dy) >= CLICK_PX) from.hasMoved = true;
      if (!from.hasMoved) return;
      if (from.selects) setBrush([under(from).x, under(event).x]);
      else {
        show(panned(scene, from.window, -dx * perPx));
        event.currentTarget.scrollTop = from.scrollPx - dy;
      }
    },
    onPointerUp(event: PointerEvent<HTMLDivElement>) {
      const from = drag.current;
      drag.current = undefined;
      setBrush(undefined);
      if (from === undefined) return;
      if (!from.hasMoved) press(under(event));
      else if (from.selects) {
        const [one, other] = [under(from).place, under(event).place];
        show(clamped(scene, { from: Math.min(one, other), to: Math.max(one, other) }));
      }
    },
    onPointerCancel() {
      drag.current = undefined;
      setBrush(undefined);
    },
  };
  return { listeners, brush };
}

/** React listens to the wheel passively, and the page must not scroll too. */
function useWheel(box: RefObject<HTMLElement | null>, turned: (event: WheelEvent) => void): void {
  const latest = useRef(turned);
  useEffect(() => {
    latest.current = turned;
  });
  useEffect(() => {
    const element = box.current;
    const listen = (event: WheelEvent): void => {
      event.preventDefault();
      latest.current(event);
    };
    element?.addEventListener("wheel", listen, { passive: false });
    return () => element?.removeEventListener("wheel", listen);
  }, [box]);
}

function nextBar({ bars }: Scene, selected: Bar | undefined, key: string): Bar | undefined {
  const at = selected === undefined ? -1 : bars.indexOf(selected);
  switch (key) {
    case "Home":
      return bars[0];
    case "End":
      return bars.at(-1);
    case "ArrowRight":
      return bars[at + 1];
    case "ArrowLeft":
      return at < 0 ? bars.at(-1) : bars[at - 1];
    case "ArrowUp":
      return selected?.parent;
    case "ArrowDown":
      return bars.slice(at + 1).find(({ parent }) => parent === selected);
    default:
      return undefined;
  }
}

function scrollTo(box: HTMLElement | null, { bars, lines }: Scene, bar: Bar): void {
  if (box === null) return;
  const top = (lines[bars.indexOf(bar)] ?? 0) * LINE_PX;
  const room = box.clientHeight - RULER_PX - LINE_PX;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top > box.scrollTop + room) box.scrollTop = top - room;
}
