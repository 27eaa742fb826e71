/** The OpenAPI document, made from the routes' own schemas, so that the two cannot differ. */
import swagger from "@fastify/swagger";
import { createJsonSchemaTransform, jsonSchemaTransformObject } from "fastify-type-provider-zod";
import { z } from "zod";
import { packageVersion } from "../observability/version.ts";
import { answer, DENIALS, sendJson } from "./answers.ts";
import type { App } from "./plumbing/app.ts";
import { NO_QUERY } from "./parameters.ts";

/** Call this before the routes: it listens to their registration. */
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
      // A service without tokens needs no authentication.
      security: [{ bearer: [] }, {}],
    },
    convertConstToEnum: false,
    transform: createJsonSchemaTransform({ zodToJsonConfig: { override: describe } }),
    transformObject: (document) => withoutUnused(jsonSchemaTransformObject(document)),
  });
}

/**
 * Zod omits the default from the schema of a parameter that is parsed from text; this adds it. It
 * replaces the plug-in's own handling of types that JSON Schema cannot express. We use one of them:
 * an undefined answer has no content.
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

/** Each schema is described twice, as input and as output; ours are only ever one of the two. */
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
