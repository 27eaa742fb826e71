/** The kinds of value that settings take, and how a row of the table states one. */
import { type Address, parseAddress } from "@session-ledger/base/address";
import { durationMs } from "../base/duration.ts";
import { urlsOfHosts } from "../base/postgres-hosts.ts";

interface SettingKind<T> {
  /** Completes "expected …". */
  readonly expected: string;
  /** Undefined when the text is not what was expected. */
  readonly parse: (text: string) => T | undefined;
  /** Only for a kind that may hold a secret: the part of a valid text that may be shown. */
  readonly publicPart?: (text: string) => string;
}

export interface Setting<T> extends SettingKind<T> {
  readonly name: string;
  /** The default text of the variable; undefined where an absent variable has a meaning. */
  readonly fallback: string | undefined;
  /** Sentences for the operator. */
  readonly meaning: string;
}

export function setting<T>(name: string, kind: SettingKind<T>, fallback: string): Described<T> {
  return { means: (meaning) => ({ ...kind, name, fallback, meaning }) };
}

export function optional<T>(name: string, kind: SettingKind<T>): Described<T | undefined> {
  return { means: (meaning) => ({ ...kind, name, fallback: undefined, meaning }) };
}

type Described<T> = { readonly means: (meaning: string) => Setting<T> };

export function choice<const T extends string>(...among: readonly T[]): SettingKind<T> {
  return {
    expected: `one of ${among.join(", ")}`,
    parse: (text) => among.find((one) => one === text),
  };
}

/** One or more of a few words, separated by commas. */
export function list(...among: readonly string[]): SettingKind<readonly string[]> {
  return {
    expected: `some of ${among.join(", ")}, separated by commas`,
    parse(text) {
      const words = text.split(",").map((word) => word.trim());
      return words.every((word) => among.includes(word)) ? words : undefined;
    },
  };
}

/** A whole number; the unit is the end of the variable's name. */
export function amount(min: number, max: number): SettingKind<number> {
  return {
    expected: `a whole number from ${min} to ${max}`,
    parse(text) {
      const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
      return value >= min && value <= max ? value : undefined;
    },
  };
}

/** A span of time as people write it: `30s`, `10m`, `30d`; the value is in milliseconds. */
export function duration(min: string, max: string): SettingKind<number> {
  const [minMs = 0, maxMs = 0] = [durationMs(min), durationMs(max)];
  return {
    expected: `a number and ms, s, m, h or d, from ${min} to ${max}`,
    parse(text) {
      const ms = durationMs(text);
      return ms !== undefined && ms >= minMs && ms <= maxMs ? ms : undefined;
    },
  };
}

export function textOf(expected: string): SettingKind<string> {
  return { expected, parse: (text) => text };
}

/** A text that no log and no error may show. */
export function secretText(expected: string): SettingKind<string> {
  return { ...textOf(expected), publicPart: () => "set" };
}

export const ADDRESS: SettingKind<Address> = {
  expected: "host:port, like 127.0.0.1:9000 or [::1]:9000; port 0 takes a free one",
  parse: parseAddress,
};

/** The address of another service, so a port is required. */
export const REMOTE_ADDRESS: SettingKind<Address> = {
  expected: "host:port, like ledger.example:9000 or [::1]:9000",
  parse: (text) => (parseAddress(text)?.port === 0 ? undefined : parseAddress(text)),
};

export const FLAG: SettingKind<boolean> = {
  expected: "true or false",
  parse(text) {
    if (["true", "yes", "1"].includes(text)) return true;
    return ["false", "no", "0"].includes(text) ? false : undefined;
  },
};

export const RATIO: SettingKind<number> = {
  expected: "a number from 0 to 1",
  parse: (text) => (/^(?:0|1|0?\.\d{1,9}|1\.0{1,9})$/.test(text) ? Number(text) : undefined),
};

export const TEXT = textOf("a text");
export const DIRECTORY = textOf("the path of a directory; it is created when missing");
export const FILE = textOf("the path of a file");

function urlOf(
  protocols: readonly string[],
  expected: string,
  fits: (url: URL) => boolean = () => true,
): SettingKind<string> {
  const isFit = (url: URL | null) => url !== null && protocols.includes(url.protocol) && fits(url);
  return { expected, parse: (text) => (isFit(URL.parse(text)) ? text : undefined) };
}

export const WEB_URL = urlOf(
  ["http:", "https:"],
  "http://host… or https://host…",
  // A password would appear in every log line that names the address.
  ({ username, password }) => username === "" && password === "",
);

const ONE_POSTGRES_URL = urlOf(
  ["postgres:", "postgresql:"],
  "postgres://user:password@host:port/database, special characters percent-encoded; several hosts as host1:port1,host2:port2, with target_session_attrs=primary",
);

export const POSTGRES_URL: SettingKind<string> = {
  expected: ONE_POSTGRES_URL.expected,
  parse(text) {
    const urls = urlsOfHosts(text);
    const isPrimary = /[?&]target_session_attrs=primary(?:&|$)/.test(text);
    if (urls.length > 1 && !isPrimary) return undefined;
    return urls.every((url) => ONE_POSTGRES_URL.parse(url) !== undefined) ? text : undefined;
  },
  publicPart: withoutSecrets,
};

export function or<const W extends string, T>(
  word: W,
  { expected, parse, publicPart }: SettingKind<T>,
): SettingKind<T | W> {
  return {
    expected: `${expected}; or ${word}`,
    parse: (text) => (text === word ? word : parse(text)),
    ...(publicPart && { publicPart: (text) => (text === word ? text : publicPart(text)) }),
  };
}

function withoutSecrets(url: string): string {
  const urls = urlsOfHosts(url).map((one) => new URL(one));
  const hosts = urls.map(({ host }) => host).join(",");
  return `${urls[0]?.protocol}//${hosts}${urls[0]?.pathname}`;
}

/** Lower-case: the same with and without quotes. Short: a channel name contains it. */
export const SCHEMA_NAME: SettingKind<string> = {
  expected: "up to 48 lower-case letters, digits and _, without a digit or pg_ at the beginning",
  parse: (text) => (/^(?!pg_)[a-z_][a-z0-9_]{0,47}$/.test(text) ? text : undefined),
};

export const TERABYTE = 1_000_000_000_000;
/** A second; 0: no limit. */
export const BYTES = amount(0, TERABYTE);

/** By model, of a million tokens, in USD. */
export const MODEL_PRICES: SettingKind<
  Readonly<Record<string, { readonly input: number; readonly output: number }>>
> = {
  expected: "a list like small=0.5/2,large=3/15: models with the prices of input and output",
  parse(text) {
    const rows = text.split(",").filter((row) => row.trim() !== "");
    const prices = rows.flatMap((row) => {
      const price = /^\s*(.+)=(\d+(?:\.\d+)?)\/(\d+(?:\.\d+)?)\s*$/.exec(row);
      const [, model = "", input, output] = price ?? [];
      return price === null
        ? []
        : [[model, { input: Number(input), output: Number(output) }] as const];
    });
    return prices.length === rows.length ? Object.fromEntries(prices) : undefined;
  },
};
