/** Compares real answers with the OpenAPI document that the service serves. */
import { z } from "zod";

const responseSchema = z.looseObject({
  content: z.record(z.string(), z.looseObject({ schema: z.unknown() })).optional(),
});
const documentSchema = z.looseObject({
  paths: z.record(
    z.string(),
    z.record(z.string(), z.looseObject({ responses: z.record(z.string(), responseSchema) })),
  ),
  components: z.looseObject({ schemas: z.record(z.string(), z.unknown()) }),
});

export interface Asked {
  readonly method: string;
  /** A path of the document: `/sessions/{id}`. */
  readonly path: string;
}

export class OpenApi {
  readonly #document: z.infer<typeof documentSchema>;

  constructor(document: unknown) {
    this.#document = documentSchema.parse(document);
  }

  /** The difference between an answer and the document; undefined when there is none. */
  async fault({ method, path }: Asked, response: Response): Promise<string | undefined> {
    const { status } = response;
    const responses = this.#document.paths[path]?.[method.toLowerCase()]?.responses;
    if (responses === undefined) return "no such operation";
    const described = responses[status] ?? responses[`${String(status).slice(0, 1)}XX`];
    if (described === undefined) return `no status ${status}`;
    const type = response.headers.get("content-type")?.split(";", 1)[0];
    const text = await response.text();
    if (described.content === undefined || status === 204) {
      return text === "" ? undefined : "a body";
    }
    const content = described.content[type ?? ""];
    if (content === undefined) return `content of type ${type}`;
    if (!type?.endsWith("json")) return undefined;
    const result = this.#schemaOf(content.schema).safeParse(JSON.parse(text));
    return result.success ? undefined : `${z.prettifyError(result.error)} in ${text}`;
  }

  #schemaOf(schema: unknown): z.ZodType {
    const inlined = this.#inlined(schema);
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- The validator of the document's own test says so.
    return z.fromJSONSchema(inlined as Parameters<typeof z.fromJSONSchema>[0]);
  }

  #inlined(schema: unknown): unknown {
    return JSON.parse(JSON.stringify(schema), (_key, value: unknown) => this.#resolved(value));
  }

  #resolved(value: unknown): unknown {
    if (typeof value !== "object" || value === null || !("$ref" in value)) return value;
    const name = String(value.$ref).replace("#/components/schemas/", "");
    return this.#inlined(this.#document.components.schemas[name] ?? { not: {} });
  }
}
