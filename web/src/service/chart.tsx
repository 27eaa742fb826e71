/** A small chart of values over time, with the same values as text. */
import { type ReactNode, useEffect, useId, useRef, useState, useSyncExternalStore } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import "./chart.css";
import { clockText } from "../ui/format.ts";
import { useTheme } from "../ui/theme.ts";

export interface Series {
  readonly name: string;
  /** A name of tokens.css. */
  readonly color: "--accent" | "--kind-tool" | "--kind-step" | "--warn";
  /** Undefined: nothing was measured. */
  readonly values: readonly (number | undefined)[];
}

const HEIGHT = 96;
const AXIS_WIDTH = 56;
const SPAN_SECONDS_MIN = 60;
const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300];
const POWERS_OF_TWO = Array.from({ length: 50 }, (_, power) => 2 ** power);
const STEPS = Array.from({ length: 13 }, (_, power) =>
  [1, 2, 5].map((n) => n * 10 ** power),
).flat();

export function Chart({
  title,
  atMs,
  series,
  format,
  isBinary = false,
  children,
}: {
  readonly title: string;
  readonly atMs: readonly number[];
  readonly series: readonly Series[];
  readonly format: (value: number) => string;
  /** Steps of the axis in powers of two. */
  readonly isBinary?: boolean;
  readonly children?: ReactNode;
}) {
  const id = useId();
  const { theme } = useTheme();
  const isDark = useDark();
  return (
    <figure className="chart" aria-labelledby={id}>
      <figcaption className="chart-head">
        <h2 id={id}>{title}</h2>
        {children}
      </figcaption>
      <dl className="chart-values">
        {series.map(({ name, color, values }) => (
          <div key={name}>
            <dt>
              <Key color={color} /> {name}
            </dt>
            <dd>{shown(values.at(-1), format)}</dd>
            <dd className="chart-range">{rangeOf(values, format)}</dd>
          </div>
        ))}
      </dl>
      {atMs.length === 0 ? (
        <p className="chart-plot">The first measure comes in a few seconds.</p>
      ) : (
        // Colours and series are read when it is made.
        <Plot
          key={`${theme} ${isDark}`}
          atMs={atMs}
          series={series}
          format={format}
          isBinary={isBinary}
        />
      )}
    </figure>
  );
}

function Key({ color }: { readonly color: Series["color"] }) {
  return <span className="chart-key" style={{ background: `var(${color})` }} aria-hidden="true" />;
}

function shown(value: number | undefined, format: (value: number) => string): string {
  return value === undefined ? "–" : format(value);
}

function rangeOf(values: Series["values"], format: (value: number) => string): string {
  const known = values.filter((value) => value !== undefined);
  if (known.length === 0) return "nothing measured yet";
  return `${format(Math.min(...known))} to ${format(Math.max(...known))}`;
}

interface PlotProps {
  readonly atMs: readonly number[];
  readonly series: readonly Series[];
  readonly format: (value: number) => string;
  readonly isBinary: boolean;
}

/** The drawing itself tells a screen reader nothing: the values are text beside it. */
function Plot({ atMs, series, ...first }: PlotProps) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(undefined);
  const [shape] = useState({ ...first, colors: series.map(({ color }) => color) });
  useEffect(() => {
    const element = place.current;
    if (element === null) return undefined;
    const made = new uPlot(optionsOf(element, shape), [[]], element);
    plot.current = made;
    const observer = new ResizeObserver(() =>
      made.setSize({ width: element.clientWidth, height: HEIGHT }),
    );
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
    };
  }, [shape]);
  useEffect(() => {
    const seconds = atMs.map((ms) => ms / 1_000);
    const values = series.map(({ values: list }) => list.map((value) => value ?? null));
    plot.current?.setData([seconds, ...values]);
  });
  return <div ref={place} className="chart-plot" aria-hidden="true" />;
}

interface Shape extends Pick<PlotProps, "format" | "isBinary"> {
  readonly colors: readonly Series["color"][];
}

function optionsOf(element: HTMLElement, { colors, format, isBinary }: Shape): uPlot.Options {
  const style = getComputedStyle(element);
  const colorOf = (name: string): string => resolved(element, name);
  const font = `11px ${style.getPropertyValue("--font")}`;
  const grid = { stroke: colorOf("--border"), width: 1 };
  const axis = { stroke: colorOf("--ink-muted"), font, grid, ticks: { show: false } };
  return {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    padding: [8, 8, 0, 0],
    cursor: { show: false },
    scales: {
      x: { range: (_plot, min, max) => [Math.min(min, max - SPAN_SECONDS_MIN), max] },
      y: { range: (_plot, _min, max) => [0, Math.max(max * 1.1, 1)] },
    },
    axes: [
      {
        ...axis,
        size: 20,
        grid: { show: false },
        space: 88,
        incrs: SECONDS,
        values: (_plot, ticks) => ticks.map((tick) => clockText(tick * 1_000).slice(0, 8)),
      },
      {
        ...axis,
        size: AXIS_WIDTH,
        space: 24,
        incrs: isBinary ? POWERS_OF_TWO : STEPS,
        values: (_plot, ticks) => ticks.map((tick) => format(tick)),
      },
    ],
    series: [
      {},
      ...colors.map((color) => ({
        stroke: colorOf(color),
        width: 1.5,
        points: { size: 4 },
      })),
    ],
  };
}

const dark = matchMedia("(prefers-color-scheme: dark)");

function useDark(): boolean {
  return useSyncExternalStore(
    (listener) => {
      dark.addEventListener("change", listener);
      return () => dark.removeEventListener("change", listener);
    },
    () => dark.matches,
  );
}

/** A canvas knows no `light-dark()`, so a property of an element is read back. */
function resolved(element: HTMLElement, name: string): string {
  const before = element.style.color;
  element.style.color = `var(${name})`;
  const { color } = getComputedStyle(element);
  element.style.color = before;
  return color;
}
