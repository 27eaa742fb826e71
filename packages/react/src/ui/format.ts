/** Numbers, sizes and times as people read them; pure. */
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function count(value: number): string {
  return whole.format(value);
}

/** 0.0123 is "$0.012": two digits that count, and cents at least. */
export function money(usd: number): string {
  if (usd >= 0.1) return `$${usd.toFixed(2)}`;
  return `$${Number(usd.toPrecision(2)).toFixed(Math.min(6, 1 - Math.floor(Math.log10(usd))))}`;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"] as const;

/** 1536 is "1.5 KiB". */
export function bytes(value: number): string {
  let [rest, unit] = [value, 0];
  while (rest >= 1_000 && unit < UNITS.length - 1) {
    rest /= 1_024;
    unit += 1;
  }
  const digits = unit === 0 || rest >= 100 ? 0 : 1;
  return `${rest.toFixed(digits)} ${UNITS[unit]}`;
}

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

/** 1234 is "1.23 s"; two units from a minute on: "2 m 5 s". */
export function duration(ms: number): string {
  if (ms < 0) return `-${duration(-ms)}`;
  if (ms < 1) return `${ms === 0 ? 0 : ms.toFixed(1)} ms`;
  if (ms < SECOND_MS) return `${Math.round(ms)} ms`;
  if (ms < 10 * SECOND_MS) return `${(ms / SECOND_MS).toFixed(2)} s`;
  if (ms < MINUTE_MS) return `${(ms / SECOND_MS).toFixed(1)} s`;
  if (ms < HOUR_MS) return pair(ms, [MINUTE_MS, "m"], [SECOND_MS, "s"]);
  if (ms < DAY_MS) return pair(ms, [HOUR_MS, "h"], [MINUTE_MS, "m"]);
  return pair(ms, [DAY_MS, "d"], [HOUR_MS, "h"]);
}

type Unit = readonly [ms: number, name: string];

function pair(ms: number, [largeMs, large]: Unit, [smallMs, small]: Unit): string {
  const rest = Math.floor((ms % largeMs) / smallMs);
  return `${Math.floor(ms / largeMs)} ${large}${rest === 0 ? "" : ` ${rest} ${small}`}`;
}

/** How long ago, in one unit: "12 s ago". */
export function ago(atMs: number, nowMs: number): string {
  const ms = Math.max(0, nowMs - atMs);
  if (ms < 2 * SECOND_MS) return "now";
  if (ms < MINUTE_MS) return `${Math.floor(ms / SECOND_MS)} s ago`;
  if (ms < HOUR_MS) return `${Math.floor(ms / MINUTE_MS)} min ago`;
  if (ms < DAY_MS) return `${Math.floor(ms / HOUR_MS)} h ago`;
  return `${Math.floor(ms / DAY_MS)} d ago`;
}

const day = new Intl.DateTimeFormat("en-CA", { dateStyle: "short" });
const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });

/** "2026-11-23 14:02:05", in the reader's zone. */
export function timeText(atMs: number): string {
  return `${day.format(atMs)} ${clock.format(atMs)}`;
}

/** "14:02:05.123", in the reader's zone. */
export function clockText(atMs: number): string {
  const millis = ((Math.floor(atMs) % SECOND_MS) + SECOND_MS) % SECOND_MS;
  return `${clock.format(atMs)}.${String(millis).padStart(3, "0")}`;
}
