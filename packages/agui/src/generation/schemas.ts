/**
 * The schemas that an event, or a part of one, must pass for a generation of clients. A client
 * states its protocol version from 1.0.0 on; others are served as 0.0.59, with events that pass
 * 1.0.0 and EARLIER. EARLIER alone accepts fields that 0.0.57 did not know, with any value; 0.0.59
 * checks them as 1.0.0 (`metadata`, `subagentRunId`, `usage`).
 */
import { z } from "zod";
import { CURRENT, EARLIER } from "../schemas.ts";

export type Generation = "1.0.0" | "0.0.59";

type SchemaList = readonly z.ZodObject[];

const OF_NOTHING: SchemaList = [];

const SOURCES = { "1.0.0": [CURRENT], "0.0.59": [CURRENT, EARLIER] } as const satisfies Record<
  Generation,
  readonly ReadonlyMap<string, z.ZodObject>[]
>;

/** Schemas of objects in events: by kind, and by the role or type that distinguishes them. */
interface InnerSchemas {
  readonly message: ReadonlyMap<unknown, SchemaList>;
  readonly part: ReadonlyMap<unknown, SchemaList>;
  readonly toolCall: SchemaList;
  readonly interrupt: SchemaList;
  readonly input: SchemaList;
  readonly tool: SchemaList;
  readonly context: SchemaList;
  readonly resume: SchemaList;
}

const BY_TYPE = { "1.0.0": byType("1.0.0"), "0.0.59": byType("0.0.59") };
const INNER = { "1.0.0": innerOf("1.0.0"), "0.0.59": innerOf("0.0.59") };

/** The schemas of an event; none: the generation does not have the type. */
export function eventSchemas(generation: Generation, type: string): SchemaList {
  return BY_TYPE[generation].get(type) ?? OF_NOTHING;
}

export function innerSchemas(generation: Generation): InnerSchemas {
  return INNER[generation];
}

function byType(generation: Generation): ReadonlyMap<string, SchemaList> {
  const schemasOf = (type: string): SchemaList =>
    SOURCES[generation].flatMap((schemas) => schemas.get(type) ?? []);
  return new Map([...CURRENT.keys()].map((type) => [type, schemasOf(type)]));
}

function innerOf(generation: Generation): InnerSchemas {
  const at = (type: string, ...path: readonly string[]): readonly unknown[] =>
    eventSchemas(generation, type).map((schema) => path.reduce(field, schema));
  const messages = at("MESSAGES_SNAPSHOT", "messages").map(element);
  const message = variants(messages, "role");
  const userContents = message.get("user")?.map((schema) => listOf(schema.shape["content"])) ?? [];
  const assistants = message.get("assistant") ?? [];
  const outcomes = variants(at("RUN_FINISHED", "outcome"), "type");
  const input = at("RUN_STARTED", "input");
  return {
    message,
    part: variants(userContents.map(element), "type"),
    toolCall: objects(assistants.map((schema) => element(schema.shape["toolCalls"]))),
    interrupt: objects(
      (outcomes.get("interrupt") ?? []).map((o) => element(o.shape["interrupts"])),
    ),
    input: objects(input),
    tool: objects(input.map((schema) => element(field(schema, "tools")))),
    context: objects(input.map((schema) => element(field(schema, "context")))),
    resume: objects(input.map((schema) => element(field(schema, "resume")))),
  };
}

function unwrapped(schema: unknown): unknown {
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodDefault)
    return unwrapped(schema.unwrap());
  return schema;
}

function field(schema: unknown, name: string): unknown {
  return schema instanceof z.ZodObject ? unwrapped(schema.shape[name]) : undefined;
}

function element(schema: unknown): unknown {
  const list = unwrapped(schema);
  return list instanceof z.ZodArray ? unwrapped(list.element) : undefined;
}

/** The list schema of a union of a text and a list. */
function listOf(schema: unknown): unknown {
  const union = unwrapped(schema);
  if (!(union instanceof z.ZodUnion)) return union;
  return union.options.find((option) => option instanceof z.ZodArray);
}

function objects(schemas: readonly unknown[]): SchemaList {
  return schemas.filter((schema) => schema instanceof z.ZodObject);
}

/** The variants that all unions have. */
function variants(unions: readonly unknown[], by: string): ReadonlyMap<unknown, SchemaList> {
  const found = new Map<unknown, z.ZodObject[]>();
  for (const union of unions) {
    if (!(union instanceof z.ZodDiscriminatedUnion)) continue;
    for (const option of union.options) {
      const name = field(option, by);
      if (!(option instanceof z.ZodObject) || !(name instanceof z.ZodLiteral)) continue;
      found.set(name.value, [...(found.get(name.value) ?? []), option]);
    }
  }
  return new Map([...found].filter(([, schemas]) => schemas.length === unions.length));
}
