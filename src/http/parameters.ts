/**
 * The parameters of the routes. A query parameter is text; a wrong or repeated one is refused by
 * name. The descriptions go into the OpenAPI document.
 */
import { z } from "zod";
import { invalidArgument } from "@session-ledger/base/errors";
import { ID_BYTES_MAX, SESSION_ID_PATTERN } from "@session-ledger/base/ids";
import { INT64_MAX } from "../contract/checks.ts";
import { timestampOf } from "../contract/times.ts";

const DIGITS = /^\d{1,19}$/;
/** RFC 3339, section 5.6: a zone is required. Digits finer than a microsecond are cut off. */
const TIME = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)$/i;
/** Matched only for a better error message. */
const ENDS_WITHOUT_ZONE = /T\d\d:\d\d(?::\d\d(?:\.\d*)?)?$/i;
const PLUS_BECAME_SPACE = /T[\d:.]+ \d\d:?\d\d$/i;
const MICROS_PER_MS = 1_000n;
/** 0001-01-01T00:00:00Z to the last microsecond of 9999, the range sent to PostgreSQL. */
const MICROS_MIN = -62_135_596_800_000_000n;
const MICROS_MAX = 253_402_300_799_999_999n;

/** The schema of the OpenAPI document. */
export const SESSION_ID = {
  pattern: SESSION_ID_PATTERN,
  minLength: 1,
  maxLength: ID_BYTES_MAX,
} as const;

/** The handlers check the form, so that gRPC and HTTP give the same errors. */
export const sessionParams = z.object({
  id: z.string().meta({ description: "The session.", ...SESSION_ID }),
});

/** An unknown parameter is refused: most often it is a mistyped one. */
export const NO_QUERY = z.strictObject({});

export function seqParameter(description: string) {
  return z
    .preprocess(seqOf, z.bigint({ error: `must be a whole number from 0 to ${INT64_MAX}` }))
    .optional()
    .meta({ description, type: "integer", format: "int64", minimum: 0 });
}

const headerValue = seqParameter("");

/** The number in a header, which the framework would name in lower case in errors. */
export function seqHeader(name: string, value: unknown): bigint | undefined {
  const read = headerValue.safeParse(value);
  if (read.success) return read.data;
  throw invalidArgument([{ field: name, description: `${name} ${read.error.issues[0]?.message}` }]);
}

interface CountLimits {
  readonly fallback: number;
  readonly max: number;
}

export function countParameter(description: string, limits: CountLimits) {
  return optionalCountParameter(description, limits)
    .default(limits.fallback)
    .meta({ description, default: limits.fallback });
}

/** For a route that must know whether the parameter was given; the fallback is only described. */
export function optionalCountParameter(description: string, { fallback, max }: CountLimits) {
  const error = `must be a whole number from 1 to ${max}`;
  return z
    .preprocess(
      (text) => (isDigits(text) ? Number(text) : text),
      z.int({ error }).min(1, { error }).max(max, { error }).optional(),
    )
    .meta({ description, default: fallback });
}

export function flagParameter(description: string, fallback = false) {
  return z
    .preprocess(
      (text) => (text === "true" ? true : text === "false" ? false : text),
      z.boolean({ error: "must be true or false" }),
    )
    .default(fallback)
    .meta({ description, default: fallback });
}

/** Microseconds since 1970. */
export function timeParameter(description: string) {
  const error = `must be ${TIME_WANTED}`;
  return z
    .preprocess(
      microsOf,
      z
        .bigint({ error: ({ input }) => timeError(input) })
        .min(MICROS_MIN, { error })
        .max(MICROS_MAX, { error }),
    )
    .optional()
    .meta({ description, type: "string", format: "date-time" });
}

/** The same, as the contract has it. */
export function timestampParameter(description: string) {
  return timeParameter(description).transform((micros) =>
    micros === undefined ? undefined : timestampOf(micros),
  );
}

export function listParameter(description: string, item: z.ZodType<string> = z.string()) {
  return z
    .preprocess((value) => (typeof value === "string" ? [value] : value), z.array(item))
    .default([])
    .meta({ description });
}

export const labelsParameter = listParameter(
  "`key=value`, repeatable: only sessions whose labels are a JSON object with all of these texts.",
  z.string().regex(/^[^=]*=/, { error: "must be key=value" }),
).transform((pairs) => Object.fromEntries(pairs.map(pairOf)));

function pairOf(text: string): readonly [key: string, value: string] {
  const at = text.indexOf("=");
  return [text.slice(0, at), text.slice(at + 1)];
}

export function textParameter(description: string) {
  return z.string({ error: "must be given once" }).default("").meta({ description });
}

/** Of a body. */
export function textMember() {
  return z.string({ error: "must be a text" });
}

/** Read by the routes: the framework would name it in lower case in errors. */
export function keyHeader(description: string) {
  return z.object({ "idempotency-key": z.string().optional().meta({ description }) });
}

type Camel<S> = S extends `${infer Head}_${infer Tail}` ? `${Head}${Capitalize<Camel<Tail>>}` : S;

/** The given values by the names of the contract's fields in code: `project_id` as `projectId`. */
export function inCamelCase<T extends object>(
  given: T,
): { [K in keyof T as Camel<K>]: Exclude<T[K], undefined> };
export function inCamelCase(given: object): object {
  return Object.fromEntries(
    Object.entries(given)
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => [
        name.replaceAll(/_./g, (part) => part.slice(1).toUpperCase()),
        value,
      ]),
  );
}

const TIME_WANTED = "a time like 2026-01-31T12:00:00.000001Z, in the years 1 to 9999";

function timeError(text: unknown): string {
  const value = typeof text === "string" ? text : "";
  if (PLUS_BECAME_SPACE.test(value))
    return `must be ${TIME_WANTED}; a + in a URL is written as %2B`;
  if (ENDS_WITHOUT_ZONE.test(value)) return `must have a zone, as ${TIME_WANTED} has`;
  return `must be ${TIME_WANTED}`;
}

function seqOf(text: unknown): unknown {
  if (typeof text === "number")
    return Number.isSafeInteger(text) && text >= 0 ? BigInt(text) : text;
  if (text === undefined || !isDigits(text)) return text;
  const seq = BigInt(text);
  return seq <= INT64_MAX ? seq : text;
}

function isDigits(text: unknown): text is string {
  return typeof text === "string" && DIGITS.test(text);
}

function microsOf(text: unknown): unknown {
  if (typeof text !== "string") return text;
  const [, seconds = "", fraction = "", zone = ""] = TIME.exec(text) ?? [];
  const ms = Date.parse(`${seconds}${zone}`.toUpperCase());
  if (Number.isNaN(ms)) return text;
  const micros = BigInt(ms) * MICROS_PER_MS + BigInt(fraction.slice(0, 6).padEnd(6, "0"));
  return isDay(seconds) ? micros : text;
}

/** Date.parse takes a 31st of February for the 3rd of March. */
function isDay(seconds: string): boolean {
  const day = seconds.slice(0, 10);
  const ms = Date.parse(`${day}T00:00:00Z`);
  return !Number.isNaN(ms) && new Date(ms).toISOString().slice(0, 10) === day;
}
