/** The values of options: parsers for commander, which prints an InvalidArgumentError as usage. */
import { InvalidArgumentError } from "commander";
import { durationMs } from "../base/duration.ts";

export function countArgument(max = 999_999_999): (text: string) => number {
  return (text) => {
    const count = /^\d{1,9}$/.test(text) ? Number(text) : 0;
    if (count >= 1 && count <= max) return count;
    throw new InvalidArgumentError(`Expected a number from 1 to ${max}.`);
  };
}

export function durationArgument(text: string): number {
  const valueMs = durationMs(text);
  if (valueMs === undefined)
    throw new InvalidArgumentError("Expected a duration like 500ms, 60s, 5m, 2h, 1d.");
  return valueMs;
}
