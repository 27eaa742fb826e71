/**
 * The fields of each event type, read from its schema: the spellings for normalisation, the fields
 * that may be dropped when they are null, and the fields that hold protocol objects (messages, the
 * run's input, an outcome), whose fields are treated in the same way.
 */
import { z } from "zod";
import type { EventType } from "./catalogue.ts";
import { CURRENT, EARLIER } from "./schemas.ts";

export interface Fields {
  /** snake_case spelling → the field. */
  readonly bySnakeName: ReadonlyMap<string, string>;
  /**
   * Optional fields in which null has no meaning; fields where null is a value (`state`) are
   * absent.
   */
  readonly droppable: ReadonlySet<string>;
  /** Required ids that existing runners send as null; they are stored as empty ids. */
  readonly emptied: ReadonlySet<string>;
  /** Fields that hold protocol objects. */
  readonly inner: ReadonlyMap<string, Inner>;
}

export type Inner =
  | { readonly kind: "object"; readonly fields: Fields }
  | { readonly kind: "list"; readonly of: Inner }
  | {
      readonly kind: "variant";
      /** The field of the object that names its variant. */
      readonly by: string;
      readonly variants: ReadonlyMap<unknown, Fields>;
    };

/**
 * The thinking-block handler of the Claude runner has no id, and sends null for it. No version
 * accepts that. But an audit trail without the agent's thinking is worse than one with an empty id,
 * which every version accepts. The constructs follow one another, so the id need not distinguish
 * them.
 */
const EMPTIED_MESSAGE_ID: ReadonlySet<string> = new Set<EventType>([
  "REASONING_START",
  "REASONING_END",
  "REASONING_MESSAGE_START",
  "REASONING_MESSAGE_CONTENT",
  "REASONING_MESSAGE_END",
]);
const MESSAGE_ID: ReadonlySet<string> = new Set(["messageId"]);
const NONE: ReadonlySet<string> = new Set();

const BY_TYPE: ReadonlyMap<string, Fields> = new Map(
  // 1.0.0 wins, because it has more fields.
  [...EARLIER, ...CURRENT].map(([type, schema]) => [
    type,
    { ...fieldsOf(schema), emptied: EMPTIED_MESSAGE_ID.has(type) ? MESSAGE_ID : NONE },
  ]),
);

export function fieldsOfType(type: string): Fields | undefined {
  return BY_TYPE.get(type);
}

/** Names in the protocol's own objects, at any depth, in the spelling of the schemas. */
export function protocolNames(): ReadonlySet<string> {
  const names = new Set<string>();
  for (const [, schema] of [...EARLIER, ...CURRENT]) addNames(schema, names);
  return names;
}

function addNames(schema: unknown, names: Set<string>): void {
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodDefault)
    addNames(schema.unwrap(), names);
  else if (schema instanceof z.ZodArray) addNames(schema.element, names);
  else if (schema instanceof z.ZodUnion) for (const one of schema.options) addNames(one, names);
  else if (schema instanceof z.ZodObject)
    for (const [name, field] of Object.entries<unknown>(schema.shape)) {
      names.add(name);
      addNames(field, names);
    }
}

export function snakeName(field: string): string {
  return field.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

function fieldsOf(schema: z.ZodObject): Fields {
  const bySnakeName = new Map<string, string>();
  const droppable = new Set<string>();
  const inner = new Map<string, Inner>();
  for (const [name, field] of Object.entries(schema.shape)) {
    const snake = snakeName(name);
    if (snake !== name) bySnakeName.set(snake, name);
    const accepts = (value: unknown): boolean => z.safeParse(field, value).success;
    if (accepts(undefined) && !accepts(null)) droppable.add(name);
    const inside = innerOf(field);
    if (inside !== undefined) inner.set(name, inside);
  }
  return { bySnakeName, droppable, emptied: NONE, inner };
}

/**
 * Undefined where normalisation must not look, or need not. The content from users and providers
 * has no shape in the schemas (`value`, `snapshot`, `state`, `event`, `rawEvent`, `metadata`,
 * `forwardedProps`, …), or is text (tool arguments), or is one of the two (`content`, whose parts
 * are kept unchanged). Its keys belong to the users, with any name, and so does a null in it.
 */
function innerOf(schema: unknown): Inner | undefined {
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodDefault)
    return innerOf(schema.unwrap());
  if (schema instanceof z.ZodArray) {
    const of = innerOf(schema.element);
    return of && { kind: "list", of };
  }
  if (schema instanceof z.ZodObject) {
    const fields = fieldsOf(schema);
    return matters(fields) ? { kind: "object", fields } : undefined;
  }
  if (schema instanceof z.ZodDiscriminatedUnion) {
    const by = schema.def.discriminator;
    const variants = new Map<unknown, Fields>();
    for (const option of schema.options) {
      if (!(option instanceof z.ZodObject)) continue;
      const name: unknown = option.shape[by];
      if (name instanceof z.ZodLiteral) variants.set(name.value, fieldsOf(option));
    }
    return [...variants.values()].some(matters) ? { kind: "variant", by, variants } : undefined;
  }
  return undefined;
}

function matters({ bySnakeName, droppable, inner }: Fields): boolean {
  return bySnakeName.size > 0 || droppable.size > 0 || inner.size > 0;
}
