/** The whole session in a strip. Drag to choose what the chart shows, or drag the chosen part. */
import { type PointerEvent, useLayoutEffect, useRef } from "react";
import { clamped, type Scene, type Window, wholeOf } from "../model/scene.ts";
import { paintOverview } from "./timeline-paint.ts";
import { useCanvas } from "./use-canvas.ts";

interface OverviewProps {
  readonly scene: Scene;
  readonly window: Window;
  readonly show: (window: Window | undefined) => void;
}

/** A shorter drag is a click, which moves the window. */
const BRUSH_PX_MIN = 4;

export function TimelineOverview({ scene, window, show }: OverviewProps) {
  const pressed = useRef<{ readonly at: number; readonly moves: boolean }>(undefined);
  const { canvas, widthPx, heightPx, palette, draw } = useCanvas();
  const whole = wholeOf(scene);
  const perPx = (whole.to - whole.from) / Math.max(1, widthPx);
  useLayoutEffect(() => {
    if (palette === undefined) return;
    const still = { scrollPx: 0, cursor: undefined, selected: undefined };
    draw((context) =>
      paintOverview(context, {
        scene,
        window: wholeOf(scene),
        widthPx,
        heightPx,
        palette,
        ...still,
      }),
    );
  }, [scene, widthPx, heightPx, palette, draw]);
  const placeOf = (event: PointerEvent<HTMLDivElement>): number => {
    const { left } = event.currentTarget.getBoundingClientRect();
    return whole.from + (event.clientX - left) * perPx;
  };
  const isWhole = window.to - window.from >= (whole.to - whole.from) * 0.999;
  const press = (event: PointerEvent<HTMLDivElement>): void => {
    if (event.button !== 0) return;
    event.currentTarget.setPointerCapture(event.pointerId);
    const at = placeOf(event);
    const moves = !isWhole && at >= window.from && at <= window.to;
    pressed.current = { at: moves ? at - window.from : at, moves };
  };
  const drag = (event: PointerEvent<HTMLDivElement>): void => {
    const from = pressed.current;
    if (from === undefined) return;
    const at = placeOf(event);
    if (from.moves) {
      const start = at - from.at;
      show(clamped(scene, { from: start, to: start + window.to - window.from }));
    } else if (Math.abs(at - from.at) >= BRUSH_PX_MIN * perPx) {
      show(clamped(scene, { from: Math.min(at, from.at), to: Math.max(at, from.at) }));
    }
  };
  return (
    <div
      className="timeline-overview"
      title="Drag to zoom; double-click to show all"
      onPointerDown={press}
      onPointerMove={drag}
      onPointerUp={() => (pressed.current = undefined)}
      onPointerCancel={() => (pressed.current = undefined)}
      onDoubleClick={() => show(undefined)}
    >
      <canvas ref={canvas} aria-hidden="true" />
      {!isWhole && (
        <div
          className="timeline-window"
          style={{
            left: (window.from - whole.from) / perPx,
            width: Math.max(4, (window.to - window.from) / perPx),
          }}
        />
      )}
    </div>
  );
}
