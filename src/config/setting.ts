import { BlockList, isIP } from "node:net";
import { type Address, parseAddress } from "../base/address.ts";
import { durationMs } from "../base/duration.ts";

/**
 * One setting of the environment: its variable, its allowed texts, and its value. The table of all
 * settings (table.ts) is the source of the parser, of `--help` and of docs/operations.md, so the
 * three always agree.
 */
export interface Setting<T> {
  readonly name: string;
  /** The default text of the variable; undefined where an absent variable has a meaning. */
  readonly fallback: string | undefined;
  /** Completes "expected …". */
  readonly expected: string;
  /** A sentence for the operator. */
  readonly meaning: string;
  /** The value holds a password: no problem, log or error may quote it. */
  readonly secret: boolean;
  /** Undefined when the text is not what was expected. */
  readonly parse: (text: string) => Parsed<T> | undefined;
}

interface Parsed<T> {
  readonly value: T;
}

interface Described {
  readonly name: string;
  readonly meaning: string;
}

/** An address to listen on. */
export function address(described: Described & { readonly fallback: string }): Setting<Address> {
  return {
    ...described,
    expected: "host:port, like 127.0.0.1:9000 or [::1]:9000; port 0 takes a free one",
    secret: false,
    parse: (text) => wrap(parseAddress(text)),
  };
}

/** The address of another service, so a port is required. */
export function remoteAddress(
  described: Described & { readonly fallback: string },
): Setting<Address> {
  return {
    ...described,
    expected: "host:port, like ledger.example:9000 or [::1]:9000",
    secret: false,
    parse: (text) => {
      const parsed = parseAddress(text);
      return parsed !== undefined && parsed.port > 0 ? { value: parsed } : undefined;
    },
  };
}

export function choice<const T extends string>(
  described: Described & { readonly fallback: T; readonly among: readonly T[] },
): Setting<T> {
  return {
    ...described,
    expected: `one of ${described.among.join(", ")}`,
    secret: false,
    parse: (text) => wrap(described.among.find((one) => one === text)),
  };
}

export function flag(described: Described & { readonly fallback: boolean }): Setting<boolean> {
  const spellings = new Map([
    ["true", true],
    ["1", true],
    ["false", false],
    ["0", false],
  ]);
  return {
    ...described,
    fallback: String(described.fallback),
    expected: "true or false",
    secret: false,
    parse: (text) => wrap(spellings.get(text)),
  };
}

/** A whole number; the unit is the end of the variable's name. */
export function amount(
  described: Described & { readonly fallback: number; readonly min: number; readonly max: number },
): Setting<number> {
  const { min, max } = described;
  return {
    ...described,
    fallback: String(described.fallback),
    expected: `a whole number from ${min} to ${max}`,
    secret: false,
    parse: (text) => {
      const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
      return value >= min && value <= max ? { value } : undefined;
    },
  };
}

export function directory(described: Described & { readonly fallback: string }): Setting<string> {
  return {
    ...described,
    expected: "the path of a directory; it is made when missing",
    secret: false,
    parse: wrap,
  };
}

/** An absent value selects the embedded database. */
export function postgresUrl(described: Described): Setting<string | undefined> {
  return {
    ...described,
    fallback: undefined,
    expected: "postgres://user:password@host:port/database, special characters percent-encoded",
    secret: true,
    parse: (text) => {
      const url = URL.parse(text);
      return url?.protocol === "postgres:" || url?.protocol === "postgresql:"
        ? { value: text }
        : undefined;
    },
  };
}

/** A span of time as people write it: `30s`, `10m`, `30d`; the value is in milliseconds. */
export function duration(
  described: Described & {
    readonly fallback?: string;
    readonly minMs: number;
    readonly maxMs: number;
  },
): Setting<number> {
  const { minMs, maxMs } = described;
  return {
    fallback: undefined,
    ...described,
    expected: `a number and ms, s, m, h or d, from ${minMs}ms to ${maxMs / HOUR_MS}h`,
    secret: false,
    parse: (text) => {
      const valueMs = durationMs(text, DURATION_DIGITS_MAX) ?? Number.NaN;
      return valueMs >= minMs && valueMs <= maxMs ? { value: valueMs } : undefined;
    },
  };
}

/** The path of a file; its reader finds out whether it can be read. */
export function file(described: Described): Setting<string> {
  return {
    ...described,
    fallback: undefined,
    expected: "the path of a file",
    secret: false,
    parse: wrap,
  };
}

export function anyText(
  described: Described & { readonly fallback?: string; readonly expected?: string },
): Setting<string> {
  return { fallback: undefined, expected: "a text", ...described, secret: false, parse: wrap };
}

/** A text that no log and no error may show. */
export function secretText(described: Described & { readonly expected: string }): Setting<string> {
  return { ...described, fallback: undefined, secret: true, parse: wrap };
}

export function webUrl(described: Described): Setting<string> {
  return {
    ...described,
    fallback: undefined,
    expected: "http://host… or https://host…",
    secret: false,
    parse: (given) => {
      const url = URL.parse(given);
      const isWeb = url?.protocol === "http:" || url?.protocol === "https:";
      // A password would appear in every log line that names the address.
      return isWeb && url.username === "" && url.password === "" ? { value: given } : undefined;
    },
  };
}

/** One or more of a few words, separated by commas. */
export function list<const T extends string>(
  described: Described & { readonly fallback: string; readonly among: readonly T[] },
): Setting<readonly T[]> {
  const { among } = described;
  return {
    ...described,
    expected: `some of ${among.join(", ")}, separated by commas`,
    secret: false,
    parse: (given) => {
      const found = given.split(",").map((word) => among.find((one) => one === word.trim()));
      const known = found.filter((one) => one !== undefined);
      return known.length === found.length ? { value: known } : undefined;
    },
  };
}

/** From 0 to 1. */
export function ratio(described: Described & { readonly fallback: string }): Setting<number> {
  return {
    ...described,
    expected: "a number from 0 to 1",
    secret: false,
    parse: (given) => {
      const value = /^(?:0|1|0?\.\d{1,9}|1\.0{1,9})$/.test(given) ? Number(given) : Number.NaN;
      return value >= 0 && value <= 1 ? { value } : undefined;
    },
  };
}

/** An absent value has a meaning. */
export function optional<T>(setting: Setting<T>): Setting<T | undefined> {
  return setting;
}

const HOUR_MS = 3_600_000;
const DURATION_DIGITS_MAX = 9;

/** Absent: not used. */
export function natsUrl(described: Described): Setting<string | undefined> {
  return {
    ...described,
    fallback: undefined,
    expected: "nats://host:port or tls://host:port, with user:password@ or token@ before the host",
    secret: true,
    parse: (text) => {
      const url = URL.parse(text);
      const isNats = url?.protocol === "nats:" || url?.protocol === "tls:";
      return isNats && url.hostname !== "" ? { value: text } : undefined;
    },
  };
}

/**
 * Letters, digits, `_` and `-`, with dots between: no wildcard, because the subject is also
 * published to.
 */
export function natsSubject(described: Described & { readonly fallback: string }): Setting<string> {
  return {
    ...described,
    expected: "a NATS subject of letters, digits, _ and -, its parts separated by dots",
    secret: false,
    parse: (text) =>
      text.length <= 200 && /^[\w-]+(?:\.[\w-]+)*$/.test(text) ? { value: text } : undefined,
  };
}

/**
 * Lower-case, so that it means the same with and without quotes; short, because a channel name
 * contains it.
 */
export function schemaName(described: Described): Setting<string | undefined> {
  return {
    ...described,
    fallback: undefined,
    expected: "up to 48 lower-case letters, digits and _, without a digit or pg_ at the beginning",
    secret: false,
    parse: (text) => (/^(?!pg_)[a-z_][a-z0-9_]{0,47}$/.test(text) ? { value: text } : undefined),
  };
}

/** The form of the environment and of a gRPC target. */
export function addressText({ host, port }: Address): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

/** True when no other machine can reach it, in any network. */
export function isLoopback({ host }: Address): boolean {
  const family = isIP(host);
  // Names are not resolved: the address of a name can change while the service runs. RFC 6761
  // section 6.3 defines `localhost`.
  if (family === 0) return host.toLowerCase() === "localhost";
  return LOOPBACK.check(host, family === 4 ? "ipv4" : "ipv6");
}

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet("127.0.0.0", 8, "ipv4");
LOOPBACK.addAddress("::1", "ipv6");

function wrap<T>(value: T | undefined): Parsed<T> | undefined {
  return value === undefined ? undefined : { value };
}
