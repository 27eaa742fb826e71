import { InvalidArgumentError } from "commander";
import { durationMs } from "../base/duration.ts";
import { addressText, loadClientConfig } from "../config/config.ts";

/** A seq is a signed 64-bit number in the contract. */
const SEQ_MAX = 2n ** 63n - 1n;
const LIMIT_MAX = 1_000_000_000;
const DURATION_DIGITS_MAX = 6;

export function seqArgument(text: string): bigint {
  const seq = /^\d{1,19}$/.test(text) ? BigInt(text) : -1n;
  if (seq < 0n || seq > SEQ_MAX) throw new InvalidArgumentError("Expected a number from 0 up.");
  return seq;
}

export function limitArgument(text: string): number {
  const limit = /^\d{1,10}$/.test(text) ? Number(text) : 0;
  if (limit < 1 || limit > LIMIT_MAX) {
    throw new InvalidArgumentError(`Expected a number from 1 to ${LIMIT_MAX}.`);
  }
  return limit;
}

export function durationArgument(text: string): number {
  const valueMs = durationMs(text, DURATION_DIGITS_MAX);
  if (valueMs === undefined)
    throw new InvalidArgumentError("Expected a duration like 500ms, 60s, 5m, 2h, 1d.");
  return valueMs;
}

const AGE_UNITS_MS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000 };
const AGE_MS_MAX = 3_650 * 86_400_000;

/** An age, of at least a minute, as for RETENTION_AFTER. */
export function ageArgument(text: string): number {
  const [, digits, unit = ""] = /^(\d{1,7})([mhd])$/.exec(text) ?? [];
  const ageMs = Number(digits) * (AGE_UNITS_MS[unit] ?? 0);
  if (!(ageMs > 0 && ageMs <= AGE_MS_MAX))
    throw new InvalidArgumentError("Expected an age like 30d, 720h, 90m, up to 3650d.");
  return ageMs;
}

/** Has the rules of the variable that it replaces. */
export function addressArgument(text: string): string {
  const loaded = loadClientConfig({ SESSION_LEDGER_ADDRESS: text });
  if (!loaded.ok) throw new InvalidArgumentError("Expected host:port, like 127.0.0.1:9000.");
  return addressText(loaded.config.address);
}
