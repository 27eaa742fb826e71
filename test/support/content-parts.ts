/** Random parts of messages, drawn from the schemas of AG-UI's own packages, of both generations. */
import { ContentPartSchema } from "@ag-ui/core/schemas";
import { InputContentSchema } from "agui-core-0";
import * as fc from "fast-check";
import { z } from "zod";

type JsonSchema = z.core.JSONSchema.BaseSchema;

function drawn(schema: z.core.JSONSchema._JSONSchema): fc.Arbitrary<unknown> {
  if (typeof schema === "boolean") return fc.jsonValue({ maxDepth: 2 });
  const { oneOf, properties, required = [] }: JsonSchema = schema;
  if ("const" in schema) return fc.constant(schema.const);
  if (oneOf !== undefined) return fc.oneof(...oneOf.map(drawn));
  if (properties !== undefined) {
    const fields = Object.entries(properties).map(([name, field]) => [name, drawn(field)] as const);
    const requiredKeys = fields.map(([name]) => name).filter((name) => required.includes(name));
    return fc.record(Object.fromEntries(fields), { requiredKeys, noNullPrototype: true });
  }
  return schema.type === "string" ? value : fc.jsonValue({ maxDepth: 2 });
}

const MIME_TYPES = ["image/png", "audio/wav", "video/mp4", "application/pdf", "text/csv"];
const value = fc.oneof(
  fc.string({ unit: "binary", maxLength: 12 }),
  fc.constantFrom(...MIME_TYPES, "AA==", "Zm9v", "https://a.example/b"),
);

const newer = drawn(z.toJSONSchema(ContentPartSchema, { unrepresentable: "any" }));
const older = fc.record(
  {
    type: fc.constant("binary"),
    mimeType: value,
    id: value,
    url: value,
    data: value,
    filename: value,
  },
  { requiredKeys: ["type", "mimeType"], noNullPrototype: true },
);

/** A part that a client of one of the generations may send. */
export const contentPart: fc.Arbitrary<Readonly<Record<string, unknown>>> = fc
  .oneof({ weight: 4, arbitrary: newer }, { weight: 1, arbitrary: older })
  .filter((part) => z.looseObject({}).safeParse(part).success)
  .map((part) => z.looseObject({}).parse(part))
  .filter(
    (part) =>
      ContentPartSchema.safeParse(part).success || InputContentSchema.safeParse(part).success,
  );
