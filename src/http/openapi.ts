/** The OpenAPI document, made of the routes' own schemas, so that it cannot say what they do not. */
import swagger from "@fastify/swagger";
import { jsonSchemaTransform, jsonSchemaTransformObject } from "fastify-type-provider-zod";
import { z } from "zod";
import { answer, sendJson } from "./answers.ts";
import type { App } from "./app.ts";
import { NO_QUERY } from "./parameters.ts";

/** Before the routes: it listens to their registration. */
export function describeRoutes(app: App): void {
  void app.register(swagger, {
    openapi: {
      openapi: "3.1.1",
      info: {
        title: "session-ledger",
        version: "1",
        description: "The durable record of AI-agent sessions, over HTTP.",
      },
    },
    convertConstToEnum: false,
    transform: jsonSchemaTransform,
    transformObject: (document) => withoutUnused(jsonSchemaTransformObject(document)),
  });
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
  response: { 200: answer("OpenAPI 3.1.", z.looseObject({ openapi: z.string() })) },
};
