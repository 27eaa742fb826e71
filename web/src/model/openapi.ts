/** The OpenAPI document as a page shows it: operations, fields in words, and examples. */
import { isObject, type JsonObject } from "../../../src/agui/json.ts";

export interface Operation {
  readonly id: string;
  readonly method: string;
  readonly path: string;
  readonly tag: string;
  readonly summary: string;
  readonly description: string;
  readonly parameters: readonly Parameter[];
  readonly body: readonly Content[];
  readonly answers: readonly Answer[];
}

export interface Parameter extends Field {
  readonly in: string;
}

export interface Content {
  readonly type: string;
  readonly schema: JsonObject;
}

export interface Answer {
  /** "200", "4XX". */
  readonly status: string;
  readonly description: string;
  readonly content: readonly Content[];
}

/** A parameter, or a member of an object; the members of a member come behind it. */
export interface Field {
  readonly name: string;
  readonly depth: number;
  readonly type: string;
  readonly isRequired: boolean;
  readonly description: string;
}

/** Levels of members that are listed; deeper ones only have their type. */
const DEPTH_MAX = 4;
const METHODS = ["get", "post", "put", "patch", "delete"];

export class ApiDocument {
  readonly version: string;
  readonly operations: readonly Operation[];
  readonly #schemas: JsonObject;

  constructor(document: unknown) {
    const { info, components, paths } = objectOf(document);
    this.version = textOf(objectOf(info)["version"]);
    this.#schemas = objectOf(objectOf(components)["schemas"]);
    this.operations = Object.entries(objectOf(paths)).flatMap(([path, methods]) =>
      Object.entries(objectOf(methods))
        .filter(([method]) => METHODS.includes(method))
        .map(([method, operation]) => this.#operationOf(method, path, objectOf(operation))),
    );
  }

  /** The members of a schema, depth first. */
  fields(schema: JsonObject, depth = 0): readonly Field[] {
    if (depth >= DEPTH_MAX) return [];
    const { properties, required, items, ...rest } = this.#resolved(schema);
    if (isObject(items)) return this.fields(items, depth);
    const choices = choicesIn(rest);
    if (choices.length > 0) return choices.flatMap((choice) => this.fields(choice, depth));
    return Object.entries(objectOf(properties)).flatMap(([name, member]) => {
      const of = objectOf(member);
      const isRequired = Array.isArray(required) && required.includes(name);
      const description = this.#descriptionOf(of);
      const field = { name, depth, type: this.typeOf(of), isRequired, description };
      return [field, ...this.fields(of, depth + 1)];
    });
  }

  /** A type in words, with its limits. */
  typeOf(schema: JsonObject): string {
    const name = nameIn(schema);
    if (name !== undefined) return name;
    const { type, items, format, const: value, enum: values } = schema;
    if (value !== undefined) return JSON.stringify(value);
    if (Array.isArray(values)) return values.map((one) => JSON.stringify(one)).join(" | ");
    const choices = choicesIn(schema);
    if (choices.length > 0) return [...new Set(choices.map((one) => this.typeOf(one)))].join(" | ");
    if (type === "array") return `array of ${this.typeOf(objectOf(items))}`;
    const words = [textOf(type) || "any", ...(typeof format === "string" ? [`(${format})`] : [])];
    return [...words, ...limitsIn(schema)].join(" ");
  }

  /** A value that fits the schema; undefined where none can be made. */
  exampleOf(schema: JsonObject, depth = 0): unknown {
    const resolved = this.#resolved(schema);
    const { type, items, properties, default: fallback, const: value, enum: values } = resolved;
    const { examples } = resolved;
    if (Array.isArray(examples)) return examples[0];
    if (value !== undefined) return value;
    if (fallback !== undefined) return fallback;
    if (Array.isArray(values)) return values[0];
    const [choice] = choicesIn(resolved);
    if (choice !== undefined) return this.exampleOf(choice, depth);
    if (depth > DEPTH_MAX) return undefined;
    if (type === "array") return [this.exampleOf(objectOf(items), depth + 1)];
    if (type === "object") {
      const members = Object.entries(objectOf(properties));
      return Object.fromEntries(
        members.map(([name, member]) => [name, this.exampleOf(objectOf(member), depth + 1)]),
      );
    }
    return plainExample(resolved);
  }

  #operationOf(method: string, path: string, operation: JsonObject): Operation {
    const { operationId, tags, summary, description, parameters, requestBody, responses } =
      operation;
    return {
      id: textOf(operationId) || `${method} ${path}`,
      method: method.toUpperCase(),
      path,
      tag: Array.isArray(tags) ? textOf(tags[0]) : "",
      summary: textOf(summary),
      description: textOf(description),
      parameters: listOf(parameters).map((parameter) => this.#parameterOf(parameter)),
      body: contentOf(requestBody),
      answers: Object.entries(objectOf(responses)).map(([status, answer]) => ({
        status,
        description: textOf(objectOf(answer)["description"]),
        content: contentOf(answer),
      })),
    };
  }

  #parameterOf({ name, in: place, required, description, schema }: JsonObject): Parameter {
    const of = objectOf(schema);
    return {
      name: textOf(name),
      in: textOf(place),
      depth: 0,
      type: `${this.typeOf(of)}${defaultIn(of)}`,
      isRequired: required === true,
      description: textOf(description) || this.#descriptionOf(of),
    };
  }

  #descriptionOf(schema: JsonObject): string {
    return textOf(schema["description"]) || textOf(this.#resolved(schema)["description"]);
  }

  #resolved(schema: JsonObject): JsonObject {
    const name = nameIn(schema);
    return name === undefined ? schema : objectOf(this.#schemas[name]);
  }
}

/** How a shell calls the operation; `origin` is the address of the service. */
export function curlOf(operation: Operation, origin: string, example: unknown): string {
  const required = operation.parameters.filter(
    ({ in: place, isRequired }) => place === "query" && isRequired,
  );
  const query = required.map(({ name }) => `${name}=…`).join("&");
  const url = `${origin}${operation.path}${query === "" ? "" : `?${query}`}`;
  const isGet = operation.method === "GET";
  const parts = [
    `curl${isGet ? "" : ` -X ${operation.method}`} '${url}'`,
    `-H "Authorization: Bearer $TOKEN"`,
  ];
  if (example !== undefined) {
    const body = JSON.stringify(example).replaceAll("'", String.raw`'\''`);
    parts.push("-H 'Content-Type: application/json'", `-d '${body}'`);
  }
  return parts.join(" \\\n  ");
}

/** Operations that have all of the words somewhere. */
export function found(operations: readonly Operation[], words: string): readonly Operation[] {
  const wanted = words
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== "");
  return operations.filter(({ id, method, path, summary, tag }) => {
    const text = `${id} ${method} ${path} ${summary} ${tag}`.toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
}

const REF = "#/components/schemas/";

function nameIn({ $ref: reference }: JsonObject): string | undefined {
  return typeof reference === "string" && reference.startsWith(REF)
    ? reference.slice(REF.length)
    : undefined;
}

function choicesIn({ anyOf, oneOf, allOf }: JsonObject): readonly JsonObject[] {
  return listOf(anyOf ?? oneOf ?? allOf);
}

function defaultIn({ default: value }: JsonObject): string {
  return value === undefined || value === "" ? "" : `, else ${JSON.stringify(value)}`;
}

function limitsIn({ minimum, maximum, minLength, maxLength }: JsonObject): readonly string[] {
  const low = JSON.stringify(
    minimum === Number.MIN_SAFE_INTEGER ? undefined : (minimum ?? minLength),
  );
  const high = JSON.stringify(
    maximum === Number.MAX_SAFE_INTEGER ? undefined : (maximum ?? maxLength),
  );
  const unit = minLength === undefined && maxLength === undefined ? "" : " characters";
  if (low === undefined && high === undefined) return [];
  if (high === undefined) return [`from ${low}${unit}`];
  return [low === undefined ? `up to ${high}${unit}` : `${low} to ${high}${unit}`];
}

function plainExample({ type, format, minimum }: JsonObject): unknown {
  if (type === "boolean") return true;
  if (type === "integer" || type === "number")
    return typeof minimum === "number" ? Math.max(1, minimum) : 1;
  if (type !== "string") return undefined;
  if (format === "date-time") return "2026-01-31T12:00:00.000001Z";
  return format === "uuid" ? "01a200f6-75a7-76d9-9409-6a772bdc4d12" : "…";
}

function contentOf(holder: unknown): readonly Content[] {
  return Object.entries(objectOf(objectOf(holder)["content"])).map(([type, content]) => {
    return { type, schema: objectOf(objectOf(content)["schema"]) };
  });
}

function objectOf(value: unknown): JsonObject {
  return isObject(value) ? value : {};
}

function listOf(value: unknown): readonly JsonObject[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}
