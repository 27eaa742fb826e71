/** Checks the values of options: each check throws with the option's name, before work begins. */
import { parseAddress } from "@session-ledger/base/address";
import { isSendable } from "./credentials.ts";

/** Throws a TypeError or a RangeError that names the option; an absent value is mostly allowed. */
export type OptionCheck = (name: string, value: unknown) => void;

/** A check for each option of T, and therefore also the list of its names. */
export type Checks<T> = Readonly<Record<keyof T, OptionCheck>>;

/** For an object with these properties only: a misspelled option would otherwise count as absent. */
export function checkOptions(
  name: string,
  value: unknown,
  checks: Readonly<Record<string, OptionCheck>>,
  prefix = "",
): void {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new TypeError(`${name} must be an object`);
  }
  const given = new Map<string, unknown>(Object.entries(value));
  const keys = Object.keys(checks);
  const unknown = [...given.keys()].find((key) => !keys.includes(key));
  if (unknown !== undefined) {
    const names = keys.join(", ");
    throw new TypeError(`${name} has no option ${JSON.stringify(unknown)}; it has ${names}`);
  }
  for (const [key, check] of Object.entries(checks)) check(`${prefix}${key}`, given.get(key));
}

export function objectOf(checks: Readonly<Record<string, OptionCheck>>): OptionCheck {
  return (name, value) => {
    if (value !== undefined) checkOptions(name, value, checks, `${name}.`);
  };
}

export function oneOf(...allowed: readonly string[]): OptionCheck {
  const names = allowed.map((one) => JSON.stringify(one)).join(" or ");
  return (name, value) => {
    if (value === undefined || allowed.some((one) => one === value)) return;
    throw new TypeError(`${name} must be ${names}`);
  };
}

export function ofType(type: "function" | "boolean" | "bigint" | "string"): OptionCheck {
  return (name, value) => {
    if (value !== undefined && typeof value !== type)
      throw new TypeError(`${name} must be a ${type}`);
  };
}

export function integer(min: number, max: number): OptionCheck {
  return (name, value) => {
    const isInteger = typeof value === "number" && Number.isInteger(value);
    if (value === undefined || (isInteger && value >= min && value <= max)) return;
    throw new RangeError(`${name} must be an integer from ${min} to ${max}`);
  };
}

/** For objects of the caller, which are used as they are. */
export function unchecked(): void {}

export function checkAddress(name: string, value: unknown): void {
  const address = typeof value === "string" ? parseAddress(value) : undefined;
  if (address !== undefined && address.port > 0) return;
  throw new TypeError(`${name} must be host:port, like 127.0.0.1:9000 or [::1]:9000`);
}

/** The error never quotes the token. */
export function checkToken(name: string, value: unknown): void {
  if (value === undefined || typeof value === "function") return;
  if (typeof value === "string" && isSendable(value)) return;
  throw new TypeError(
    `${name} must be a function, or a text that a header can hold: printable ASCII, not empty`,
  );
}

export function checkTls(name: string, value: unknown): void {
  if (typeof value !== "boolean") TLS(name, value);
}

const TLS = objectOf({ ca: checkPem, cert: checkPem, key: checkPem });

function checkPem(name: string, value: unknown): void {
  if (value === undefined || (typeof value === "string" && value !== "")) return;
  throw new TypeError(`${name} must be a text in PEM`);
}
