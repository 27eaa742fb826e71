/** The document and the routes match: neither has a part that the other lacks. */
import { createServer } from "node:http";
import { Validator } from "@seriousme/openapi-schema-validator";
import { beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { ROUTE_ACTIONS } from "../../src/auth/actions.ts";
import { createAdmission } from "../../src/http/plumbing/admission.ts";
import { createApp } from "../../src/http/plumbing/app.ts";
import { OpenRequests } from "../../src/http/plumbing/open-requests.ts";
import { RequestRecords } from "../../src/http/plumbing/request-records.ts";
import { serveRoutes } from "../../src/http/server.ts";
import { HTTP_OPTIONS, httpParts } from "../support/http-fixture.ts";

const parameterSchema = z.looseObject({
  name: z.string(),
  in: z.enum(["path", "query", "header"]),
  required: z.boolean(),
  schema: z.looseObject({}),
  description: z.string().default(""),
});
const operationSchema = z.looseObject({
  operationId: z.string().default(""),
  summary: z.string().min(1),
  parameters: z.array(parameterSchema).default([]),
  requestBody: z.unknown().optional(),
  responses: z.record(z.string(), z.looseObject({ description: z.string() })),
});
const documentSchema = z.looseObject({
  openapi: z.string().startsWith("3.1"),
  paths: z.record(z.string(), z.record(z.string(), operationSchema)),
});

interface Registered {
  readonly method: string;
  readonly url: string;
  readonly schema: Readonly<Record<string, unknown>>;
}

const registered: Registered[] = [];
let document: z.infer<typeof documentSchema>;
let text: string;

beforeAll(async () => {
  const parts = httpParts();
  const records = new RequestRecords(parts, HTTP_OPTIONS);
  const app = createApp(
    {
      openRequests: new OpenRequests(),
      records,
      admission: createAdmission(parts),
      isOnLoopback: true,
      serverFactory: (handle) => createServer(handle),
    },
    HTTP_OPTIONS,
  );
  app.addHook("onRoute", ({ method, url, schema }) => {
    if (ROUTE_ACTIONS[`GET ${url}`] === "public") return; // Pages for people.
    for (const one of [method].flat()) {
      if (one !== "HEAD") registered.push({ method: one, url, schema: { ...schema } });
    }
  });
  serveRoutes(app, parts, HTTP_OPTIONS);
  text = (await app.inject({ url: "/openapi.json", headers: { host: "localhost" } })).body;
  document = documentSchema.parse(JSON.parse(text));
  await app.close();
});

const pathOf = (url: string) => url.replaceAll(/:(\w+)/g, "{$1}");
const operations = () =>
  Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      name: `${method.toUpperCase()} ${path}`,
      operation,
    })),
  );
const operationOf = ({ method, url }: Registered) =>
  document.paths[pathOf(url)]?.[method.toLowerCase()];

describe("the OpenAPI document", () => {
  test("is valid in version 3.1", async () => {
    const validator = new Validator();
    expect(await validator.validate(JSON.parse(text))).toEqual({ valid: true });
    expect(validator.version).toBe("3.1");
  });

  test("has exactly the routes that are served", () => {
    expect(registered.length).toBeGreaterThan(8);
    expect(
      operations()
        .map(({ name }) => name)
        .toSorted(),
    ).toEqual(registered.map(({ method, url }) => `${method} ${pathOf(url)}`).toSorted());
  });

  test("has exactly the parameters of each route; those in a path are required, the others are not", () => {
    let found = 0;
    for (const route of registered) {
      const operation = operationOf(route);
      for (const [place, schema] of [
        ["path", route.schema["params"]],
        ["query", route.schema["querystring"]],
        ["header", route.schema["headers"]],
      ] as const) {
        const names = schema instanceof z.ZodObject ? Object.keys(schema.shape) : [];
        const described = operation?.parameters.filter((one) => one.in === place) ?? [];
        expect(described.map(({ name }) => name).toSorted(), `of ${route.url}`).toEqual(
          names.toSorted(),
        );
        for (const { required } of described)
          expect(required, `of ${route.url}`).toBe(place === "path");
        found += names.length;
      }
      expect(operation?.requestBody !== undefined, `of ${route.url}`).toBe(
        route.schema["body"] !== undefined,
      );
    }
    expect(found).toBeGreaterThan(10);
  });

  test("describes every parameter", () => {
    const silent = operations().flatMap(({ name, operation }) =>
      operation.parameters
        .filter(({ description }) => description === "")
        .map((parameter) => `${name}: ${parameter.name}`),
    );
    expect(silent).toEqual([]);
  });

  test("regression: states the default size of a page", () => {
    const parameters = operations().flatMap(({ name, operation }) =>
      operation.parameters.map((parameter) => ({ name, parameter })),
    );
    const sizes = parameters.filter(({ parameter }) => /^(?:limit|size)$/.test(parameter.name));
    expect(sizes.length).toBeGreaterThan(3);
    for (const { name, parameter } of sizes) {
      expect(parameter.schema, `of ${name}`).toHaveProperty("default", 100);
    }
  });

  test("regression: describes the form of session ids and the types of messages", () => {
    const form = { pattern: "^[A-Za-z0-9._:-]{1,128}$", minLength: 1, maxLength: 128 };
    const paths = operations().filter(({ name }) => name.includes("/sessions/{id}"));
    expect(paths.length).toBeGreaterThan(5);
    for (const { name, operation } of paths) {
      const id = operation.parameters.find((one) => one.in === "path");
      expect({ name, schema: id?.schema }).toMatchObject({ name, schema: form });
    }
    const bodies = operations().map(({ operation }) => operation.requestBody);
    const texts = JSON.stringify(bodies);
    const types = ["", "user", "assistant", "tool_use", "tool_result", "system", "error"];
    expect(texts).toContain(`"enum":${JSON.stringify([...types, "lifecycle"])}`);
    const connect = document.paths["/copilotkit/agent/{agent}/connect"]?.["post"]?.requestBody;
    expect(connect).toMatchObject({
      content: { "application/json": { schema: { properties: { threadId: form } } } },
    });
  });

  test("regression: lists the types of messages and events, in filters and in items", () => {
    const { components } = JSON.parse(text);
    const { Message: message, Event: event } = components.schemas;
    expect(message.properties.event_type.enum).toContain("tool_use");
    const history = document.paths["/api/ambient/v1/sessions/{id}/events/history"]?.["get"];
    const filter = history?.parameters.find(({ name }) => name === "event_type");
    const types = expect.arrayContaining(["RUN_STARTED", "TEXT_MESSAGE_CONTENT", "CUSTOM"]);
    // With VALIDATION=lenient a row has any type of this form.
    const expected = [{ enum: types }, { pattern: "^[A-Z][A-Z0-9_]{0,63}$" }];
    expect(event.properties.event_type.anyOf).toEqual(expected);
    expect(filter?.schema["items"]).toMatchObject({ type: "string", anyOf: expected });
  });

  test("regression: has no read-only parameter, and both streams have the header last-event-id", () => {
    expect(text).not.toContain("readOnly");
    for (const path of ["messages", "events"]) {
      const { parameters } = document.paths[`/api/ambient/v1/sessions/{id}/${path}`]?.["get"] ?? {};
      const headers = parameters?.filter((one) => one.in === "header").map(({ name }) => name);
      expect(headers, `of ${path}`).toEqual(["last-event-id"]);
    }
  });

  test("regression: states its server", () => {
    expect(JSON.parse(text)).toHaveProperty("servers", [{ url: "/" }]);
  });

  test("gives each operation its own id", () => {
    const ids = operations().map(({ operation }) => operation.operationId);
    expect(ids).toEqual([...new Set(ids)]);
    expect(ids).not.toContain("");
  });

  test("describes the refusals of each operation", () => {
    for (const { name, operation } of operations()) {
      if (name === "GET /openapi.json") continue;
      const { "4XX": theirs, "5XX": ours } = operation.responses;
      expect(theirs, `of ${name}`).toMatchObject({ content: { "application/problem+json": {} } });
      expect(ours, `of ${name}`).toMatchObject({ content: { "application/problem+json": {} } });
    }
  });

  test("describes bearer tokens, and the answers 401 and 403 of each operation", () => {
    expect(document).toMatchObject({
      components: { securitySchemes: { bearer: { type: "http", scheme: "bearer" } } },
      security: [{ bearer: [] }, {}],
    });
    for (const { name, operation } of operations()) {
      const { 401: unknown, 403: refused } = operation.responses;
      for (const denial of [unknown, refused]) {
        expect(denial, `of ${name}`).toMatchObject({ content: { "application/problem+json": {} } });
      }
    }
  });

  test("refers only to existing schemas, and to all of them", () => {
    const references = [...text.matchAll(/"\$ref":"#\/components\/schemas\/(\w+)"/g)];
    expect(references.length).toBeGreaterThan(0);
    const { components } = z
      .looseObject({ components: z.looseObject({ schemas: z.record(z.string(), z.unknown()) }) })
      .parse(document);
    const used = new Set(references.map(([, name]) => name));
    expect(used).toEqual(new Set(Object.keys(components.schemas)));
  });
});
