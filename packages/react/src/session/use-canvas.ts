/** A canvas as large as its parent, sharp on any screen, with the colours of the theme. */
import { type RefObject, useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";
import { type Palette, paletteOf } from "./palette.ts";

export interface Canvas {
  readonly canvas: RefObject<HTMLCanvasElement | null>;
  readonly widthPx: number;
  readonly heightPx: number;
  /** Undefined before the first layout. */
  readonly palette: Palette | undefined;
  readonly draw: (paint: (context: CanvasRenderingContext2D) => void) => void;
}

export function useCanvas(): Canvas {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [size, setSize] = useState({ widthPx: 0, heightPx: 0 });
  const [palette, setPalette] = useState<Palette>();
  useLayoutEffect(() => {
    const parent = canvas.current?.parentElement;
    if (parent === null || parent === undefined) return;
    const measure = (): void =>
      setSize({ widthPx: parent.clientWidth, heightPx: parent.clientHeight });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(parent);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    const read = (): void => {
      const parent = canvas.current?.parentElement;
      if (parent !== null && parent !== undefined) setPalette(paletteOf(parent));
    };
    read();
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", read);
    // What the reader of the page, or the app around the view, chose.
    const chosen = new MutationObserver(read);
    const root = canvas.current?.closest(".session-ledger") ?? document.documentElement;
    chosen.observe(root, { attributeFilter: ["data-theme"] });
    return () => {
      dark.removeEventListener("change", read);
      chosen.disconnect();
    };
  }, []);
  const draw = useCallback(
    (paint: (context: CanvasRenderingContext2D) => void): void => {
      const element = canvas.current;
      const context = element?.getContext("2d");
      if (element === null || context === null || context === undefined) return;
      const ratio = devicePixelRatio;
      const [width, height] = [Math.round(size.widthPx * ratio), Math.round(size.heightPx * ratio)];
      if (element.width !== width) element.width = width;
      if (element.height !== height) element.height = height;
      element.style.width = `${size.widthPx}px`;
      element.style.height = `${size.heightPx}px`;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      paint(context);
    },
    [size],
  );
  return { canvas, ...size, palette, draw };
}
