/**
 * Makes the OpenAPI document from the routes' own schemas. Loaded when the document is asked for.
 */
import swagger from "@fastify/swagger";
import { fastify, type FastifySchema, type HTTPMethods } from "fastify";
import { createJsonSchemaTransform, jsonSchemaTransformObject } from "fastify-type-provider-zod";
import { z } from "zod";
import { packageVersion } from "../observability/version.ts";
import { CHECKED_BY_ZOD } from "./plumbing/app.ts";

export interface DescribedRoute {
  readonly method: HTTPMethods;
  readonly url: string;
  readonly schema: FastifySchema;
}

/** The plug-in describes the routes of an app; this app has them without their handlers. */
export async function documentOf(routes: readonly DescribedRoute[]): Promise<string> {
  const app = fastify({ ...CHECKED_BY_ZOD, exposeHeadRoutes: false });
  await app.register(swagger, {
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
  for (const route of routes) app.route({ ...route, handler: () => undefined });
  await app.ready();
  return JSON.stringify(app.swagger());
}

/**
 * Adds the default of a parameter that is parsed from text, which zod omits. Replaces the plug-in's
 * handling of types without JSON Schema; we use one: an undefined answer.
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

/**
 * Each schema is described as input and as output, and ours are only one of the two. What only an
 * unused schema refers to is unused too.
 */
function withoutUnused<D extends object>(document: D): D {
  const text = JSON.stringify(document);
  const rest: D = JSON.parse(text, function (this: unknown, key: string, value: unknown) {
    const isUnused = /^[A-Z]\w*Input$/.test(key) && !text.includes(`"#/components/schemas/${key}"`);
    return isUnused ? undefined : value;
  });
  return JSON.stringify(rest) === text ? rest : withoutUnused(rest);
}
