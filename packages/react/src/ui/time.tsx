import { useSyncExternalStore } from "react";
import { ago, clockText, timeText } from "./format.ts";

const TICK_MS = 1_000;

let nowMs = Date.now();
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    nowMs = Date.now();
    for (const one of listeners) one();
  }, TICK_MS);
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}

/** The time in steps of a second; one timer for the whole page. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => nowMs);
}

export interface TimeProps {
  readonly atMs: number;
  /** `ago`: how long ago; `clock`: the time of day with milliseconds; else date and time. */
  readonly as?: "ago" | "clock" | "full";
}

/** The full time is in the title. */
export function Time({ atMs, as = "full" }: TimeProps) {
  const text = as === "clock" ? clockText(atMs) : timeText(atMs);
  return (
    <time dateTime={new Date(atMs).toISOString()} title={timeText(atMs)}>
      {as === "ago" ? <Ago atMs={atMs} /> : text}
    </time>
  );
}

function Ago({ atMs }: { readonly atMs: number }) {
  return ago(atMs, useNow());
}
