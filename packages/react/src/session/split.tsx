/** Two panes with a border that is dragged, or moved by arrow keys; the browser remembers its place. */
import { type KeyboardEvent, type PointerEvent, type ReactNode, useRef } from "react";
import { useRemembered } from "./use-remembered.ts";
import "./split.css";

/** Parts of the whole, in percent. */
const MIN = 15;
const MAX = 85;
const STEP = 2;

interface SplitProps {
  readonly name: string;
  readonly label: string;
  readonly direction: "row" | "column";
  /** Of the first pane, in percent, before a reader has moved the border. */
  readonly initial: number;
  readonly children: readonly [ReactNode, ReactNode];
}

export function Split({ name, label, direction, initial, children }: SplitProps) {
  const [remembered, remember] = useRemembered(`split.${name}`, String(initial));
  const size = Number(remembered) || initial;
  const box = useRef<HTMLDivElement>(null);
  const isRow = direction === "row";
  const move = (to: number): void => remember(String(Math.min(Math.max(to, MIN), MAX)));
  const drag = ({ currentTarget, pointerId, clientX, clientY }: PointerEvent): void => {
    if (!currentTarget.hasPointerCapture(pointerId) || box.current === null) return;
    const { left, top, width, height } = box.current.getBoundingClientRect();
    move(isRow ? (100 * (clientX - left)) / width : (100 * (clientY - top)) / height);
  };
  const press = (event: KeyboardEvent): void => {
    const [less, more] = isRow ? ["ArrowLeft", "ArrowRight"] : ["ArrowUp", "ArrowDown"];
    if (event.key !== less && event.key !== more) return;
    event.preventDefault();
    move(size + (event.key === less ? -STEP : STEP));
  };
  return (
    <div ref={box} className={`split split-${direction}`}>
      <div className="split-pane" style={{ flexBasis: `${size}%` }}>
        {children[0]}
      </div>
      <div
        className="split-border"
        role="separator"
        tabIndex={0}
        aria-label={label}
        aria-orientation={isRow ? "vertical" : "horizontal"}
        aria-valuemin={MIN}
        aria-valuemax={MAX}
        aria-valuenow={Math.round(size)}
        onPointerDown={({ currentTarget, pointerId, button }) => {
          if (button === 0) currentTarget.setPointerCapture(pointerId);
        }}
        onPointerMove={drag}
        onDoubleClick={() => move(initial)}
        onKeyDown={press}
      />
      <div className="split-pane split-rest">{children[1]}</div>
    </div>
  );
}
