import { InvalidArgumentError } from "commander";
import { addressText, loadClientConfig } from "../config.ts";

/** A seq is a signed 64-bit number in the contract. */
const SEQ_MAX = 2n ** 63n - 1n;
const LIMIT_MAX = 1_000_000_000;
const UNITS_MS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };

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
  const [, digits, unit = ""] = /^(\d{1,6})(ms|s|m|h)$/.exec(text) ?? [];
  const unitMs = UNITS_MS[unit];
  if (unitMs === undefined)
    throw new InvalidArgumentError("Expected a duration like 500ms, 60s, 5m.");
  return Number(digits) * unitMs;
}

/** The rules of the variable that it stands in for. */
export function addressArgument(text: string): string {
  const loaded = loadClientConfig({ SESSION_LEDGER_ADDRESS: text });
  if (!loaded.ok) throw new InvalidArgumentError("Expected host:port, like 127.0.0.1:9000.");
  return addressText(loaded.config.address);
}
