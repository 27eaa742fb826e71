/** The OpenAPI document, made of the routes' own schemas, so that it cannot say what they do not. */
import swagger from "@fastify/swagger";
import { createJsonSchemaTransform, jsonSchemaTransformObject } from "fastify-type-provider-zod";
import { z } from "zod";
import { packageVersion } from "../observability/version.ts";
import { answer, DENIALS, sendJson } from "./answers.ts";
import type { App } from "./plumbing/app.ts";
import { NO_QUERY } from "./parameters.ts";

/** Before the routes: it listens to their registration. */
export function describeRoutes(app: App): void {
  void app.register(swagger, {
    openapi: {
      openapi: "3.1.1",
      info: {
        title: "session-ledger",
        version: packageVersion(),
        description: "The durable record of AI-agent sessions, over HTTP.",
      },
      servers: [{ url: "/" }],
      components: { securitySchemes: { bearer: { type: "http", scheme: "bearer" } } },
      // A service that has no tokens asks for none.
      security: [{ bearer: [] }, {}],
    },
    convertConstToEnum: false,
    transform: createJsonSchemaTransform({ zodToJsonConfig: { override: describe } }),
    transformObject: (document) => withoutUnused(jsonSchemaTransformObject(document)),
  });
}

/**
 * Zod leaves the default out where text is read as something else, as of every parameter that has one.
 * In place of the plug-in's own way with what JSON Schema cannot say, of which one is used here: an
 * answer that is undefined has no content.
 */
function describe({
  zodSchema,
  jsonSchema,
}: {
  readonly zodSchema: z.core.$ZodType;
  readonly jsonSchema: z.core.JSONSchema.BaseSchema;
}): void {
  const described = z.globalRegistry.get(zodSchema)?.["default"];
  if (described !== undefined) jsonSchema.default = described;
  if (zodSchema instanceof z.ZodUndefined) jsonSchema.type = "null";
}

/** Each schema is described twice, as it is read and as it is written; nothing of ours is both. */
function withoutUnused<D extends object>(document: D): D {
  const text = JSON.stringify(document);
  return JSON.parse(text, function (this: unknown, key: string, value: unknown) {
    const isUnused = /^[A-Z]\w*Input$/.test(key) && !text.includes(`"#/components/schemas/${key}"`);
    return isUnused ? undefined : value;
  });
}

export function openApiRoutes(app: App): void {
  let document: string | undefined;
  app.get("/openapi.json", { schema: DOCUMENT }, async (_request, reply) => {
    document ??= JSON.stringify(app.swagger());
    return sendJson(reply, document);
  });
}

const DOCUMENT = {
  operationId: "getOpenApi",
  summary: "This document",
  tags: ["description"],
  querystring: NO_QUERY,
  response: { 200: answer("OpenAPI 3.1.", z.looseObject({ openapi: z.string() })), ...DENIALS },
};
