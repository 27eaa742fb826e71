/** The values of options: parsers for commander, which prints an InvalidArgumentError as usage. */
import { type Command, InvalidArgumentError, Option } from "commander";
import { durationMs } from "../base/duration.ts";
import { UsageError } from "./io.ts";

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

const ZONED = /^\d{4}-\d\d-\d\d(T[\d:.]+(Z|[+-]\d\d:\d\d))?$/i;

/** A time, or how long ago it was. */
export function timeArgument(text: string): Date {
  const ageMs = durationMs(text);
  const time = new Date(ageMs === undefined ? text : Date.now() - ageMs);
  if ((ageMs !== undefined || ZONED.test(text)) && !Number.isNaN(time.getTime())) return time;
  throw new InvalidArgumentError("Expected a time like 2026-01-31T12:00:00Z, or an age like 7d.");
}

/** A seq is a signed 64-bit number in the contract. */
export function seqArgument(text: string): bigint {
  const seq = /^\d{1,19}$/.test(text) ? BigInt(text) : -1n;
  if (seq >= 0n && BigInt.asIntN(64, seq) === seq) return seq;
  throw new InvalidArgumentError("Expected a number from 0 up.");
}

/** The values of options with a text, and `--json`. */
export type TextFlags<Name extends string = never> = {
  readonly [N in Name]?: string;
} & { readonly json?: boolean };

export type Labels = Readonly<Record<string, string>>;

export function labelOption(description: string): Option {
  return new Option("--label <key=value>", description).argParser(labelArgument);
}

function labelArgument(text: string, others: Labels = {}): Labels {
  const [, key = "", value = ""] = /^([^=]+)=([^]*)$/.exec(text) ?? [];
  if (key === "") throw new InvalidArgumentError("Expected key=value.");
  if (Object.hasOwn(others, key)) throw new InvalidArgumentError(`The key ${key} is given twice.`);
  return Object.fromEntries([...Object.entries(others), [key, value]]);
}

/** The session as an argument; `--session` is the older form of it. */
export function addSessionArgument(command: Command, description: string): Command {
  return command
    .argument("[session]", description)
    .option("-s, --session <id>", "the session, instead of the argument");
}

/** Of a command with `addSessionArgument`. */
export interface SessionFlag {
  readonly session?: string;
}

/** The session that the argument or the option names; undefined: neither does. */
export function namedSession(
  argument: string | undefined,
  { session: option }: SessionFlag,
): string | undefined {
  if (argument !== undefined && option !== undefined)
    throw new UsageError("session: expected the argument or --session, and not both");
  return argument ?? option;
}

export function requiredSession(...named: Parameters<typeof namedSession>): string {
  const sessionId = namedSession(...named);
  if (sessionId !== undefined) return sessionId;
  throw new UsageError("session: expected the id of a session as the argument, or --session <id>");
}
