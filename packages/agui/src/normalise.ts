/**
 * Converts the spellings of real producers to the one that clients read, by editing the text:
 *
 *   type                absent: added in front
 *   known fields        snake_case → camelCase (`message_id`), with their own value
 *   optional fields     dropped when null
 *   messageId           of REASONING_*, which requires it: null → empty (see EMPTIED_MESSAGE_ID)
 *   content, message    of TOOL_CALL_RESULT and RUN_ERROR, where they are called result and error
 *   timestamp           a fraction is rounded away
 *   role                of REASONING_MESSAGE_START: `assistant` → `reasoning`
 *
 * Only `strays` runs on every event: it only compares keys, and a payload without a stray is
 * returned as the same object. Known fields are those of the type, and of the
 * protocol's own objects inside it. A Python runner writes MESSAGES_SNAPSHOT with `tool_call_id` in
 * each message and null in each optional field, and RUN_STARTED with its whole input; clients
 * refuse both. The content of users is never edited. An object with a repeated key is not edited
 * either, because an edit could uncover the hidden value. Unknown keys stay, null or not.
 *
 * When one object has both spellings, a null one yields to the other, and equal values count as
 * one. Different values are refused, because only the producer knows the right one.
 */
import { z } from "zod";
import { type Violation, VIOLATIONS_MAX } from "@session-ledger/base/errors";
import type { EventType } from "./catalogue.ts";
import { isObject, type JsonObject, parseObject, pathName } from "./json.ts";
import type { Payload } from "./payload.ts";
import { CURRENT, EARLIER } from "./schemas.ts";
import {
  applyEdits,
  dropEdits,
  type Edit,
  elementSpans,
  type Member,
  memberSpans,
} from "./spans.ts";

export type Normalised =
  | {
      readonly ok: true;
      readonly payload: Payload;
      /** The name from another vocabulary that a field had. */
      readonly renamed?: string;
    }
  | { readonly ok: false; readonly violations: readonly Violation[] };

type FieldPath = readonly (string | number)[];

interface NormaliseFindings {
  readonly text: string;
  readonly edits: Edit[];
  readonly violations: Violation[];
}

export function normalise(type: EventType, payload: Payload): Normalised {
  const fields = fieldsOfType(type);
  if (fields === undefined) return { ok: true, payload };
  const addsType = payload.value["type"] === undefined;
  const rewrites = rewrittenValues(type, payload.value);
  const names = OTHER_NAMES[type];
  const other = names && hasOther(payload.value, names) ? names : undefined;
  if (other !== undefined) {
    const result = normalise(type, withName(payload, other));
    return result.ok ? { ...result, renamed: other.from } : result;
  }
  if (!addsType && rewrites.size === 0 && !strays(payload.value, fields))
    return { ok: true, payload };

  const findings: NormaliseFindings = { text: payload.text, edits: [], violations: [] };
  editObject(findings, { at: 0, path: ["payload"], value: payload.value, fields });
  if (findings.violations.length > 0) return { ok: false, violations: findings.violations };
  for (const { key, valueSpan } of rewrites.size > 0 ? memberSpans(payload.text) : []) {
    const text = rewrites.get(key);
    if (text !== undefined) findings.edits.push({ ...valueSpan, text });
  }
  const edited = applyEdits(payload.text, findings.edits);
  const text = addsType ? withType(edited, type) : edited;
  return { ok: true, payload: { text, value: parseObject(text) } };
}

interface OtherName {
  readonly from: string;
  readonly to: string;
}

/** The names that recorded producers use for a required field of the type. */
const OTHER_NAMES: Readonly<Partial<Record<EventType, OtherName>>> = {
  TOOL_CALL_RESULT: { from: "result", to: "content" },
  RUN_ERROR: { from: "error", to: "message" },
};

/** When the field's own name is present too, the other name is an unknown key. */
function hasOther(value: JsonObject, { from, to }: OtherName): boolean {
  return !Object.hasOwn(value, to) && (value[from] ?? null) !== null;
}

/** A value that is not a text becomes its JSON text. */
function withName({ text, value }: Payload, { from, to }: OtherName): Payload {
  const member = memberSpans(text).find(({ key }) => key === from);
  if (member === undefined) return { text, value };
  const { keySpan, valueSpan } = member;
  const edits: Edit[] = [{ ...keySpan, text: `"${to}"` }];
  if (typeof value[from] !== "string") {
    edits.push({ ...valueSpan, text: JSON.stringify(text.slice(valueSpan.start, valueSpan.end)) });
  }
  const edited = applyEdits(text, edits);
  return { text: edited, value: parseObject(edited) };
}

/** Top-level values in the form of some producers, and their correct form. */
function rewrittenValues(type: EventType, value: JsonObject): ReadonlyMap<string, string> {
  const timestamp = value["timestamp"];
  const rounds =
    typeof timestamp === "number" && Number.isFinite(timestamp) && !Number.isInteger(timestamp);
  // The Claude adapter's model of REASONING_MESSAGE_START has `assistant`.
  const claude = type === "REASONING_MESSAGE_START" && value["role"] === "assistant";
  if (!rounds && !claude) return NO_REWRITES;
  const rewrites = new Map<string, string>();
  if (rounds) rewrites.set("timestamp", String(Math.round(timestamp)));
  if (claude) rewrites.set("role", '"reasoning"');
  return rewrites;
}

const NO_REWRITES: ReadonlyMap<string, string> = new Map();

function strays(value: JsonObject, fields: FieldRules): boolean {
  for (const key of Object.keys(value)) {
    if (fields.bySnakeName.has(key)) return true;
    const field = value[key];
    if (field === null) {
      if (fields.droppable.has(key) || fields.emptied.has(key)) return true;
      continue;
    }
    const inner = fields.inner.get(key);
    if (inner !== undefined && straysInside(field, inner)) return true;
  }
  return false;
}

function straysInside(value: unknown, inner: InnerRules): boolean {
  if (inner.kind === "list")
    return Array.isArray(value) && value.some((element) => straysInside(element, inner.of));
  const fields = isObject(value) ? fieldsInside(value, inner) : undefined;
  return isObject(value) && fields !== undefined && strays(value, fields);
}

/** Undefined for a variant that the protocol does not have. */
function fieldsInside(
  value: JsonObject,
  inner: Exclude<InnerRules, { kind: "list" }>,
): FieldRules | undefined {
  return inner.kind === "object" ? inner.fields : inner.variants.get(value[inner.by]);
}

interface ObjectAt {
  readonly at: number;
  readonly path: FieldPath;
  readonly value: JsonObject;
  readonly fields: FieldRules;
}

function editObject(findings: NormaliseFindings, object: ObjectAt): void {
  const { at, path, value, fields } = object;
  const members = memberSpans(findings.text, at);
  if (members.length !== Object.keys(value).length) return; // A key is repeated.
  const dropped = members.map((member) => isDropped(findings, { ...object, members }, member));
  members.forEach(({ key, keySpan, valueSpan }, index) => {
    if (dropped[index] === true) return;
    const name = fields.bySnakeName.get(key) ?? key;
    if (name !== key) findings.edits.push({ ...keySpan, text: `"${name}"` });
    if (value[key] === null && fields.emptied.has(name))
      findings.edits.push({ ...valueSpan, text: '""' });
    const inner = fields.inner.get(name);
    if (inner !== undefined)
      editInside(findings, {
        at: valueSpan.start,
        path: [...path, name],
        value: value[key],
        inner,
      });
  });
  findings.edits.push(...dropEdits(members, dropped));
}

interface ObjectIn extends ObjectAt {
  readonly members: readonly Member[];
}

interface ValueAt {
  readonly at: number;
  readonly path: FieldPath;
  readonly value: unknown;
  readonly inner: InnerRules;
}

function editInside(findings: NormaliseFindings, { at, path, value, inner }: ValueAt): void {
  if (!straysInside(value, inner)) return;
  if (inner.kind !== "list") {
    const fields = isObject(value) ? fieldsInside(value, inner) : undefined;
    if (isObject(value) && fields !== undefined) editObject(findings, { at, path, value, fields });
  } else if (Array.isArray(value)) {
    const elements: readonly unknown[] = value;
    elementSpans(findings.text, at).forEach((span, index) => {
      const element = { at: span.start, path: [...path, index], value: elements[index] };
      editInside(findings, { ...element, inner: inner.of });
    });
  }
}

/** Whether the member is dropped: a meaningless null, or a second spelling of a present field. */
function isDropped(findings: NormaliseFindings, object: ObjectIn, member: Member): boolean {
  const { path, value, fields, members } = object;
  const name = fields.bySnakeName.get(member.key) ?? member.key;
  const isNull = value[member.key] === null;
  const yields =
    fields.droppable.has(name) || (fields.emptied.has(name) && hasEitherSpelling(object, name));
  if (isNull && yields) return true;
  const other = name === member.key ? undefined : members.find(({ key }) => key === name);
  if (other === undefined) return false;
  if (value[name] === null && yields) return false; // The other spelling is dropped instead.
  if (
    !isSame(findings.text, { value, member, other }) &&
    findings.violations.length < VIOLATIONS_MAX
  ) {
    const field = pathName([...path, name]);
    const second = pathName([...path, member.key]);
    const description = `${field} and ${second} are two spellings of one field, but differ`;
    findings.violations.push({ field, description });
  }
  return true;
}

/** Whether one of the spellings of a field has a value. */
function hasEitherSpelling({ value, fields }: ObjectIn, name: string): boolean {
  return Object.keys(value).some(
    (key) => (fields.bySnakeName.get(key) ?? key) === name && value[key] !== null,
  );
}

/** Compares strings by value, others by text: a producer prints equal values alike. */
function isSame(
  text: string,
  { value, member, other }: { value: JsonObject; member: Member; other: Member },
): boolean {
  if (typeof value[member.key] === "string") return value[member.key] === value[other.key];
  const printed = ({ valueSpan }: Member): string => text.slice(valueSpan.start, valueSpan.end);
  return printed(member) === printed(other);
}

function withType(text: string, type: EventType): string {
  const brace = text.indexOf("{");
  const rest = text.slice(brace + 1);
  const separator = /^\s*\}/.test(rest) ? "" : ",";
  return `${text.slice(0, brace)}{"type":"${type}"${separator}${rest}`;
}

/** The fields of each event type from its schema: spellings, droppable fields, protocol objects. */

interface FieldRules {
  /** snake_case spelling → the field. */
  readonly bySnakeName: ReadonlyMap<string, string>;
  /** Optional fields in which null has no meaning; fields where null is a value are absent. */
  readonly droppable: ReadonlySet<string>;
  /** Required ids that existing runners send as null; they are stored as empty ids. */
  readonly emptied: ReadonlySet<string>;
  readonly inner: ReadonlyMap<string, InnerRules>;
}

type InnerRules =
  | { readonly kind: "object"; readonly fields: FieldRules }
  | { readonly kind: "list"; readonly of: InnerRules }
  | {
      readonly kind: "variant";
      /** The field of the object that names its variant. */
      readonly by: string;
      readonly variants: ReadonlyMap<unknown, FieldRules>;
    };

/** The Claude runner sends null as the id of thinking; every version takes an empty id. */
const EMPTIED_MESSAGE_ID: ReadonlySet<string> = new Set<EventType>([
  "REASONING_START",
  "REASONING_END",
  "REASONING_MESSAGE_START",
  "REASONING_MESSAGE_CONTENT",
  "REASONING_MESSAGE_END",
]);
const MESSAGE_ID: ReadonlySet<string> = new Set(["messageId"]);
const NONE: ReadonlySet<string> = new Set();

/** Found at the first event of a type: all of them would be 3 % of the CPU time of a start. */
const BY_TYPE = new Map<string, FieldRules>();

export function fieldsOfType(type: string): FieldRules | undefined {
  return BY_TYPE.get(type) ?? findFields(type);
}

function findFields(type: string): FieldRules | undefined {
  const schema = CURRENT.get(type) ?? EARLIER.get(type); // 1.0.0 first: it has more fields.
  if (schema === undefined) return undefined;
  const emptied = EMPTIED_MESSAGE_ID.has(type) ? MESSAGE_ID : NONE;
  const fields = { ...fieldsOf(schema), emptied };
  BY_TYPE.set(type, fields);
  return fields;
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

function fieldsOf(schema: z.ZodObject): FieldRules {
  const bySnakeName = new Map<string, string>();
  const droppable = new Set<string>();
  const inner = new Map<string, InnerRules>();
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
 * Undefined where normalisation does not look: content of users and providers, which has any keys
 * (`value`, `snapshot`, `state`, `event`, `rawEvent`, `metadata`, `forwardedProps`, …), or is text.
 */
function innerOf(schema: unknown): InnerRules | undefined {
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
    const variants = new Map<unknown, FieldRules>();
    for (const option of schema.options) {
      if (!(option instanceof z.ZodObject)) continue;
      const name: unknown = option.shape[by];
      if (name instanceof z.ZodLiteral) variants.set(name.value, fieldsOf(option));
    }
    return [...variants.values()].some(matters) ? { kind: "variant", by, variants } : undefined;
  }
  return undefined;
}

function matters({ bySnakeName, droppable, inner }: FieldRules): boolean {
  return bySnakeName.size > 0 || droppable.size > 0 || inner.size > 0;
}
