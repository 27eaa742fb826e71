import type { ReactNode } from "react";
import "./badge.css";

export type Tone = "neutral" | "good" | "warn" | "bad" | "accent";

/** Each tone has a shape too: colour alone tells nothing to many readers. */
const SHAPES: Record<Tone, string> = {
  neutral: "○",
  good: "✓",
  warn: "△",
  bad: "✕",
  accent: "●",
};

/** A status in a word, with the shape and the colour of its tone. */
export function Badge({ tone, children }: { readonly tone: Tone; readonly children: ReactNode }) {
  return (
    <span className={`badge badge-${tone}`}>
      <span aria-hidden="true">{SHAPES[tone]}</span>
      {children}
    </span>
  );
}
