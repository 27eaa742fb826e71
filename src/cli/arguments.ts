/** The values of options: parsers for commander, which prints an InvalidArgumentError as usage. */
import { InvalidArgumentError } from "commander";
import { durationMs } from "../base/duration.ts";
import { addressText, loadClientConfig } from "../config/config.ts";

/** The most rows, lines or sessions that `--limit` can ask for. */
export const LIMIT_MAX = 1_000_000_000;
/** A seq is a signed 64-bit number in the contract. */
const SEQ_MAX = 2n ** 63n - 1n;
const DURATION_DIGITS_MAX = 6;
const AGE_DIGITS_MAX = 7;
const AGE_MS_MAX = 3_650 * 86_400_000;

export function seqArgument(text: string): bigint {
  const seq = /^\d{1,19}$/.test(text) ? BigInt(text) : -1n;
  if (seq < 0n || seq > SEQ_MAX) throw new InvalidArgumentError("Expected a number from 0 up.");
  return seq;
}

export function countArgument(max: number): (text: string) => number {
  return (text) => {
    const count = /^\d{1,10}$/.test(text) ? Number(text) : 0;
    if (count >= 1 && count <= max) return count;
    throw new InvalidArgumentError(`Expected a number from 1 to ${max}.`);
  };
}

export function durationArgument(text: string): number {
  const valueMs = durationMs(text, DURATION_DIGITS_MAX);
  if (valueMs === undefined)
    throw new InvalidArgumentError("Expected a duration like 500ms, 60s, 5m, 2h, 1d.");
  return valueMs;
}

/** An age of at least a minute, as for RETENTION_AFTER. */
export function ageArgument(text: string): number {
  const ageMs = /[mhd]$/.test(text) ? (durationMs(text, AGE_DIGITS_MAX) ?? 0) : 0;
  if (ageMs > 0 && ageMs <= AGE_MS_MAX) return ageMs;
  throw new InvalidArgumentError("Expected an age like 30d, 720h, 90m, up to 3650d.");
}

/** Has the rules of the variable that it replaces. */
export function addressArgument(text: string): string {
  const loaded = loadClientConfig({ SESSION_LEDGER_ADDRESS: text });
  if (!loaded.ok) throw new InvalidArgumentError("Expected host:port, like 127.0.0.1:9000.");
  return addressText(loaded.config.address);
}
