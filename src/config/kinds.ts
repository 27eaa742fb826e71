/** The kinds of settings: the texts that each accepts, and the values that it makes of them. */
import { BlockList, isIP } from "node:net";
import { type Address, parseAddress } from "../base/address.ts";
import { durationMs } from "../base/duration.ts";

export interface Kind<T> {
  /** Completes "expected …". */
  readonly expected: string;
  /** Undefined when the text is not what was expected. */
  readonly parse: (text: string) => T | undefined;
  /** Only for a kind that may hold a secret: the part of a valid text that may be shown. */
  readonly publicPart?: (text: string) => string;
}

/**
 * One setting of the environment: its variable, its kind, and its default. The table of all settings
 * (table.ts) is the source of the parser, of `--help` and of docs/operations.md, so the three always
 * agree.
 */
export interface Setting<T> extends Kind<T> {
  readonly name: string;
  /** The default text of the variable; undefined where an absent variable has a meaning. */
  readonly fallback: string | undefined;
  /** Sentences for the operator. */
  readonly meaning: string;
}

export function setting<T>(name: string, kind: Kind<T>, fallback: string): Described<T> {
  return { means: (meaning) => ({ ...kind, name, fallback, meaning }) };
}

/** A setting without a default: an absent value has a meaning. */
export function optional<T>(name: string, kind: Kind<T>): Described<T | undefined> {
  return { means: (meaning) => ({ ...kind, name, fallback: undefined, meaning }) };
}

interface Described<T> {
  readonly means: (meaning: string) => Setting<T>;
}

/** An address to listen on. */
export const ADDRESS: Kind<Address> = {
  expected: "host:port, like 127.0.0.1:9000 or [::1]:9000; port 0 takes a free one",
  parse: parseAddress,
};

/** The address of another service, so a port is required. */
export const REMOTE_ADDRESS: Kind<Address> = {
  expected: "host:port, like ledger.example:9000 or [::1]:9000",
  parse(text) {
    const parsed = parseAddress(text);
    return parsed?.port === 0 ? undefined : parsed;
  },
};

export const FLAG: Kind<boolean> = {
  expected: "true or false",
  parse(text) {
    if (text === "true" || text === "1") return true;
    return text === "false" || text === "0" ? false : undefined;
  },
};

export function choice<const T extends string>(...among: readonly T[]): Kind<T> {
  return {
    expected: `one of ${among.join(", ")}`,
    parse: (text) => among.find((one) => one === text),
  };
}

/** One or more of a few words, separated by commas. */
export function list(among: string): Kind<readonly string[]> {
  const known = wordsIn(among);
  return {
    expected: `some of ${among}, separated by commas`,
    parse(text) {
      const words = wordsIn(text);
      return words.every((word) => known.includes(word)) ? words : undefined;
    },
  };
}

function wordsIn(text: string): readonly string[] {
  return text.split(",").map((word) => word.trim());
}

/** A whole number; the unit is the end of the variable's name. */
export function amount(min: number, max: number): Kind<number> {
  return {
    expected: `a whole number from ${min} to ${max}`,
    parse(text) {
      const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
      return value >= min && value <= max ? value : undefined;
    },
  };
}

const DURATION_DIGITS_MAX = 9;

/** A span of time as people write it: `30s`, `10m`, `30d`; the value is in milliseconds. */
export function duration(min: string, max: string): Kind<number> {
  const [minMs, maxMs] = [msIn(min), msIn(max)];
  return {
    expected: `a number and ms, s, m, h or d, from ${min} to ${max}`,
    parse(text) {
      const ms = msIn(text);
      return ms >= minMs && ms <= maxMs ? ms : undefined;
    },
  };
}

function msIn(text: string): number {
  return durationMs(text, DURATION_DIGITS_MAX) ?? Number.NaN;
}

export const RATIO: Kind<number> = {
  expected: "a number from 0 to 1",
  parse: (text) => (/^(?:0|1|0?\.\d{1,9}|1\.0{1,9})$/.test(text) ? Number(text) : undefined),
};

export const TEXT: Kind<string> = textOf("a text");

export function textOf(expected: string): Kind<string> {
  return { expected, parse: (text) => text };
}

/** A text that no log and no error may show. */
export function secretText(expected: string): Kind<string> {
  return { ...textOf(expected), publicPart: () => "set" };
}

export const DIRECTORY: Kind<string> = textOf(
  "the path of a directory; it is created when missing",
);

/** The reader of the file finds out whether it can be read. */
export const FILE: Kind<string> = textOf("the path of a file");

export const WEB_URL: Kind<string> = {
  expected: "http://host… or https://host…",
  parse(text) {
    const url = URL.parse(text);
    const isWeb = url?.protocol === "http:" || url?.protocol === "https:";
    // A password would appear in every log line that names the address.
    return isWeb && url.username === "" && url.password === "" ? text : undefined;
  },
};

export const POSTGRES_URL: Kind<string> = {
  expected: "postgres://user:password@host:port/database, special characters percent-encoded",
  parse(text) {
    const protocol = URL.parse(text)?.protocol;
    return protocol === "postgres:" || protocol === "postgresql:" ? text : undefined;
  },
  publicPart: withoutSecrets,
};

export const NATS_URL: Kind<string> = {
  expected: "nats://host:port or tls://host:port, with user:password@ or token@ before the host",
  parse(text) {
    const url = URL.parse(text);
    const isNats = url?.protocol === "nats:" || url?.protocol === "tls:";
    return isNats && url.hostname !== "" ? text : undefined;
  },
  publicPart: withoutSecrets,
};

function withoutSecrets(url: string): string {
  const { protocol, host, pathname } = new URL(url);
  return `${protocol}//${host}${pathname}`;
}

/** No wildcard, because the subject is also published to. */
export const NATS_SUBJECT: Kind<string> = {
  expected: "a NATS subject of letters, digits, _ and -, its parts separated by dots",
  parse: (text) => (text.length <= 200 && /^[\w-]+(?:\.[\w-]+)*$/.test(text) ? text : undefined),
};

/**
 * Lower-case, so that it means the same with and without quotes; short, because a channel name
 * contains it.
 */
export const SCHEMA_NAME: Kind<string> = {
  expected: "up to 48 lower-case letters, digits and _, without a digit or pg_ at the beginning",
  parse: (text) => (/^(?!pg_)[a-z_][a-z0-9_]{0,47}$/.test(text) ? text : undefined),
};

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
