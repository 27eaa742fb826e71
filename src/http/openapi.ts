/** The OpenAPI document, made from the routes' own schemas, so that the two cannot differ. */
import { z } from "zod";
import { answer, DENIALS, sendJson } from "./answers.ts";
import type { App } from "./plumbing/app.ts";
import type { DescribedRoute } from "./openapi-document.ts";
import { NO_QUERY } from "./parameters.ts";

/** Call this before the routes: it listens to their registration. */
export function openApiRoutes(app: App): (app: App) => void {
  const routes: DescribedRoute[] = [];
  let document: string | undefined;
  app.addHook("onRoute", ({ method, url, schema = {} }) => {
    for (const one of [method].flat())
      if (one !== "HEAD") routes.push({ method: one, url, schema });
  });
  return (root) => {
    root.get("/openapi.json", { schema: DOCUMENT }, async (_request, reply) => {
      if (document === undefined) {
        // Loaded here: most services are never asked for the document.
        const { documentOf } = await import("./openapi-document.ts");
        document = await documentOf(routes);
      }
      return sendJson(reply, document);
    });
  };
}

const DOCUMENT = {
  operationId: "getOpenApi",
  summary: "This document",
  tags: ["description"],
  querystring: NO_QUERY,
  response: { 200: answer("OpenAPI 3.1.", z.looseObject({ openapi: z.string() })), ...DENIALS },
};
