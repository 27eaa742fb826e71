/** The table of cases in cases.json: its schema, and how an answer is compared with the expected one. */
import { readFileSync } from "node:fs";
import { z } from "zod";

/** What a client can do. A case that needs another feature than a driver has is skipped. */
export const FEATURES = ["writer", "messages", "replay", "reader", "turns"] as const;

/**
 * A complete client may lack these. `replay` is for agents that make the same events again after a
 * restart; a writer that keeps in a file what is not stored, as that in TypeScript, sends the rest.
 */
export const OPTIONAL: ReadonlySet<Feature> = new Set(["replay"]);
const featureSchema = z.enum(FEATURES);
export type Feature = z.infer<typeof featureSchema>;

const object = z.record(z.string(), z.unknown());
/** The same step again, with `$n` replaced by 1, 2, 3 … in all texts. */
const times = z.int().positive().optional();

const stepSchema = z.union([
  /** A command for the driver, and members of its answer or of its error. */
  z.strictObject({
    driver: z.string(),
    with: object.optional(),
    times,
    answer: object.optional(),
    error: object.optional(),
    /** The answer is awaited by the next step `answered`. */
    later: z.literal(true).optional(),
  }),
  z.strictObject({ answered: object }),
  z.strictObject({ service: z.literal("say"), text: z.string() }),
  z.strictObject({
    service: z.literal("event"),
    event: object,
    epoch: z.string().optional(),
    times,
  }),
  z.strictObject({ service: z.literal("claim"), run_id: z.string(), epoch: z.string() }),
  z.strictObject({ service: z.literal("cancel"), reason: z.string() }),
  z.strictObject({ service: z.literal("delete") }),
  /** The connections of the driver: test/support/broken-network.ts. */
  z.strictObject({ network: z.enum(["hold", "hold_answers", "cut"]) }),
  /** SIGKILL, and a new process. */
  z.strictObject({ process: z.enum(["kill", "start"]) }),
  /** Waits until exactly these rows are stored, events without merging. */
  z.strictObject({ stored: z.enum(["events", "messages"]), rows: z.array(object) }),
  /** Waits until at least this number of rows is stored; members of the last one. */
  z.strictObject({
    stored: z.enum(["events", "messages"]),
    rows_min: z.int(),
    last: object.optional(),
  }),
]);
export type Step = z.infer<typeof stepSchema>;

const caseSchema = z.strictObject({
  name: z.string(),
  needs: z.array(featureSchema),
  steps: z.array(stepSchema),
});
export type Case = z.infer<typeof caseSchema>;

const file = new URL("cases.json", import.meta.url);
export const CASES: readonly Case[] = z
  .array(caseSchema)
  .parse(JSON.parse(readFileSync(file, "utf8")));

/** The value with `$n` replaced in all its texts. */
export function numbered(value: unknown, n: number): unknown {
  if (typeof value === "string") return value.replaceAll("$n", String(n));
  if (Array.isArray(value)) return value.map((one) => numbered(one, n));
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, numbered(one, n)]));
}

/**
 * Undefined, or the first difference. An expected object may lack members, `{"$min": 3}` is any number
 * from 3 on, and `{"$times": 3, "of": x}` in a list stands for three elements.
 */
export function difference(
  actual: unknown,
  expected: unknown,
  path = "answer",
): string | undefined {
  if (Array.isArray(expected)) {
    const all = expected.flatMap(repeated);
    if (!Array.isArray(actual)) return `${path}: ${shown(actual)} is no list`;
    for (const [at, one] of all.entries()) {
      const found = difference(actual[at], one, `${path}[${at}]`);
      if (found !== undefined) return found;
    }
    if (actual.length === all.length) return undefined;
    return `${path}: ${actual.length} elements, ${all.length} expected`;
  }
  if (!isObject(expected)) {
    return actual === expected
      ? undefined
      : `${path}: ${shown(actual)}, expected ${shown(expected)}`;
  }
  const { $min: min } = expected;
  if (typeof min === "number") {
    const isEnough = typeof actual === "number" && actual >= min;
    return isEnough ? undefined : `${path}: ${shown(actual)}, at least ${min} expected`;
  }
  if (!isObject(actual)) return `${path}: ${shown(actual)} is no object`;
  for (const [name, one] of Object.entries(expected)) {
    const found = difference(actual[name], one, `${path}.${name}`);
    if (found !== undefined) return found;
  }
  return undefined;
}

function repeated(one: unknown): readonly unknown[] {
  if (!isObject(one) || typeof one["$times"] !== "number") return [one];
  return Array.from({ length: one["$times"] }, (_, at) => numbered(one["of"], at + 1));
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function shown(value: unknown): string {
  return (JSON.stringify(value) ?? "nothing").slice(0, 300);
}
