/**
 * The answer that an interrupt asks for. AG-UI gives a `responseSchema`, a JSON Schema, or only a
 * `reason`:
 *
 *   schema of one yes or no, or a reason that asks for approval   two buttons
 *   schema of some texts                                          a button for each
 *   schema of an object of simple members                         a form
 *   any other schema                                              JSON
 *   nothing of these                                              a text
 */
import { isObject, type JsonObject } from "@session-ledger/agui/json";

interface Field {
  readonly name: string;
  readonly title: string;
  readonly about: string | undefined;
  readonly kind: "text" | "number" | "yes_no" | "choice";
  readonly choices: readonly string[];
  readonly isRequired: boolean;
}

export type Asked =
  /** `member`: of the payload that has the answer; undefined: the payload is the answer. */
  | { readonly kind: "approval"; readonly member: string | undefined }
  | { readonly kind: "fields"; readonly fields: readonly Field[] }
  | { readonly kind: "choice"; readonly choices: readonly string[] }
  | { readonly kind: "text" | "json" };

/** A larger form is more easily written as JSON. */
const FIELDS_MAX = 16;

/** `approval` and `tool_approval` of this project's bridges, `confirmation` and `tool_call` of AG-UI. */
const ASKS_APPROVAL = /approv|confirm|^tool_call$/i;

export function askedBy({ reason, responseSchema: schema }: JsonObject): Asked {
  if (isObject(schema) && Object.keys(schema).length > 0) return askedIn(schema);
  const asksApproval = typeof reason === "string" && ASKS_APPROVAL.test(reason);
  return asksApproval ? { kind: "approval", member: "approved" } : { kind: "text" };
}

function askedIn(schema: JsonObject): Asked {
  const { type, properties } = schema;
  if (type === "boolean") return { kind: "approval", member: undefined };
  const choices = textsIn(schema["enum"]);
  if (choices.length > 0) return { kind: "choice", choices };
  if (type === "string") return { kind: "text" };
  if (!isObject(properties)) return { kind: "json" };
  const required = Array.isArray(schema["required"]) ? schema["required"] : [];
  const fields = Object.entries(properties).map(([name, member]) =>
    fieldOf(name, member, required),
  );
  const [only] = fields;
  if (fields.length === 1 && only?.kind === "yes_no")
    return { kind: "approval", member: only.name };
  if (fields.length === 0 || fields.length > FIELDS_MAX) return { kind: "json" };
  const known = fields.filter((field) => field !== undefined);
  return known.length === fields.length ? { kind: "fields", fields: known } : { kind: "json" };
}

function fieldOf(name: string, schema: unknown, required: readonly unknown[]): Field | undefined {
  if (!isObject(schema)) return undefined;
  const { type, title, description, enum: listed } = schema;
  const choices = textsIn(listed);
  const kind = choices.length === 0 && listed !== undefined ? undefined : kindOf(type, choices);
  if (kind === undefined) return undefined;
  return {
    name,
    title: typeof title === "string" ? title : name,
    about: typeof description === "string" ? description : undefined,
    kind,
    choices,
    isRequired: required.includes(name),
  };
}

/** Empty if one of them is no text. */
function textsIn(listed: unknown): readonly string[] {
  if (!Array.isArray(listed)) return [];
  const texts = listed.filter((one) => typeof one === "string");
  return texts.length === listed.length ? texts : [];
}

function kindOf(type: unknown, choices: readonly string[]): Field["kind"] | undefined {
  if (choices.length > 0) return "choice";
  if (type === "boolean") return "yes_no";
  if (type === "number" || type === "integer") return "number";
  return type === "string" ? "text" : undefined;
}

export function approvalPayload(
  { member }: Extract<Asked, { kind: "approval" }>,
  isApproved: boolean,
): unknown {
  return member === undefined ? isApproved : { [member]: isApproved };
}

/** The payload of a form as its inputs give it; empty members that are not required are left out. */
export function formPayload(
  fields: readonly Field[],
  valueOf: (name: string) => string,
): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    fields.flatMap(({ name, kind, isRequired }): readonly (readonly [string, unknown])[] => {
      const given = valueOf(name);
      if (kind === "yes_no") return [[name, given !== ""]];
      if (given === "" && !isRequired) return [];
      return [[name, kind === "number" ? Number(given) : given]];
    }),
  );
}
