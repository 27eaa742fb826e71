/** The colours of the timeline, as a canvas takes them. */
import type { Bar, BarKind } from "../model/bars.ts";

/** Names of tokens.css. */
const COLOURS = {
  page: "--page",
  ink: "--ink",
  muted: "--ink-muted",
  border: "--border",
  sunken: "--sunken",
  accent: "--accent",
  selected: "--selected",
  bad: "--bad",
  warn: "--warn",
  run: "--kind-run",
  step: "--kind-step",
  subagent: "--kind-state",
  tool: "--kind-tool",
  text: "--kind-text",
  reasoning: "--kind-thinking",
  waiting: "--kind-waiting",
} as const;

export type Palette = Readonly<Record<keyof typeof COLOURS | "font", string>>;

/** Reads what the names mean now; a custom property itself is text, so a colour is asked for each. */
export function paletteOf(element: HTMLElement): Palette {
  const probe = document.createElement("span");
  // With a transition, however short, the colour would still be the one before.
  probe.style.setProperty("transition", "none", "important");
  element.append(probe);
  const style = getComputedStyle(probe);
  const palette: Record<keyof Palette, string> = { ...COLOURS, font: style.fontFamily };
  for (const [name, property] of Object.entries(COLOURS)) {
    probe.style.color = `var(${property})`;
    Object.assign(palette, { [name]: style.color });
  }
  probe.remove();
  return palette;
}

export function colourOf({ kind, state }: Bar, palette: Palette): string {
  if (state === "failed") return palette.bad;
  return palette[KIND_COLOURS[kind]];
}

const KIND_COLOURS: Readonly<Record<BarKind, keyof Palette>> = {
  run: "run",
  step: "step",
  subagent: "subagent",
  tool: "tool",
  text: "text",
  reasoning: "reasoning",
};
