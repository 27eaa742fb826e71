/**
 * Route × parameter or member of the body × wrong value. The OpenAPI document that the service serves says
 * which there are, and of what kind. Each wrong value is a problem with its name, and stores nothing; the
 * limits of texts are those of the RPCs, which the routes call (bad-input.test.ts).
 */
import { isDeepStrictEqual } from "node:util";
import { expect, test } from "vitest";
import { z } from "zod";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { ROUTES } from "../support/every-call.ts";
import { newSession, push } from "../support/pushing.ts";
import { useService } from "../support/use-service.ts";

const { service, client } = useService();

const partSchema = z.looseObject({
  type: z.union([z.string(), z.array(z.string())]).optional(),
  format: z.string().optional(),
  minimum: z.number().optional(),
  maximum: z.number().optional(),
  enum: z.array(z.string()).optional(),
  get properties() {
    return z.record(z.string(), partSchema).optional();
  },
});
type Part = z.infer<typeof partSchema>;
const operationSchema = z.looseObject({
  parameters: z
    .array(z.looseObject({ in: z.string(), name: z.string(), schema: partSchema }))
    .default([]),
  requestBody: z
    .looseObject({ content: z.record(z.string(), z.looseObject({ schema: partSchema })) })
    .optional(),
});
type Operation = z.infer<typeof operationSchema>;
const documentSchema = z.looseObject({
  paths: z.record(z.string(), z.record(z.string(), operationSchema)),
});
const problemSchema = z.looseObject({
  reason: z.string(),
  violations: z.array(z.object({ field: z.string(), description: z.string() })).default([]),
});

interface Row {
  readonly title: string;
  readonly name: string;
  readonly query?: string;
  readonly body?: unknown;
}

const TIMES = [
  "now",
  "",
  "1970-01-01T00:00:00",
  "0000-01-01T00:00:00Z",
  "9999-12-31T23:59:59-01:00",
];

/** Texts in a query. */
function wrongTexts(part: Part): readonly string[] {
  const { type, format, minimum = 0, maximum = 2n ** 63n - 1n } = part;
  if (type === "integer") {
    const over = BigInt(maximum) + 1n;
    return ["", "x", "1.5", "1e3", "0x1", " 1", "٣", `${minimum - 1}`, `${over}`];
  }
  if (type === "boolean") return ["", "1", "yes", "TRUE"];
  if (format === "date-time") return TIMES;
  if (part.enum !== undefined) return ["", "another"];
  return type === "array" ? ["a\0"] : ["a\0b"];
}

/** Values in JSON. */
function wrongValues(part: Part): readonly unknown[] {
  const { type, format, minimum = 0, maximum } = part;
  if (type === "integer") {
    return ["x", 1.5, minimum - 1, true, ...(maximum === undefined ? [] : [maximum + 1])];
  }
  if (type === "boolean") return ["true", 1];
  if (format === "date-time") return [...TIMES, 5];
  if (type === "object") return [7, "x", []];
  if (type === "string") return [7, {}, ["x"], "a\0b", "\ud800", "a\udc00b", "\udc00\ud800"];
  return [7];
}

function wrongRows({ parameters, requestBody }: Operation, body: object): readonly Row[] {
  const members = (whole: Part, within: (member: object) => object, path: string): readonly Row[] =>
    Object.entries(whole.properties ?? {}).flatMap(([name, part]) => [
      ...wrongValues(part).map((value) => {
        const title = `${path}${name}: ${JSON.stringify(value)}`;
        return { title, name: `${path}${name}`, body: within({ [name]: value }) };
      }),
      ...members(part, (member) => within({ [name]: member }), `${path}${name}.`),
    ]);
  const json = requestBody?.content["application/json"]?.schema;
  const queries = parameters.filter((parameter) => parameter.in === "query");
  return [
    { title: "another parameter", name: "nothing", query: "nothing=1" },
    ...queries.flatMap(({ name, schema }) => [
      ...wrongTexts(schema).map((value) => {
        const query = new URLSearchParams([[name, value]]).toString();
        return { title: query, name: schema.type === "array" ? elementOf(name) : name, query };
      }),
      ...(schema.type === "array"
        ? []
        : [{ title: `${name} twice`, name, query: `${name}=1&${name}=1` }]),
      { title: `${name} with half an escape`, name, query: `${name}=%C3` },
    ]),
    ...(json === undefined ? [] : members(json, (member) => ({ ...body, ...member }), "")),
  ];
}

/** The form of a label is checked by its route, and that of a type by the RPC. */
function elementOf(list: string): string {
  return list === "labels" ? `${list}.0` : `${list}[0]`;
}

/** The route of the document in the table of calls, with a request that is accepted. */
function callOf(verb: string, path: string) {
  const route = `${verb.toUpperCase()} ${path.replaceAll(/\{(\w+)\}/g, ":$1")}`;
  const [, call] = Object.entries(ROUTES).find(([name]) => name.split("  ", 1)[0] === route) ?? [];
  if (call === undefined) throw new Error(`the table of calls has no ${route}`);
  return { verb: verb.toUpperCase(), ...call };
}

test("each wrong parameter and member is refused by its name and stores nothing", async () => {
  const sessionId = newSession();
  await push(client, "messages", { sessionId });
  const state = () => client.unary(SessionService.method.getSession, { id: sessionId });
  const origin = `http://${service.httpAddress}`;
  const document = await fetch(`${origin}/openapi.json`);
  const { paths } = documentSchema.parse(await document.json());
  const before = await state();
  const faults: string[] = [];
  let rows = 0;
  for (const [path, operations] of Object.entries(paths)) {
    if (!path.startsWith("/api/")) continue; // Those of AG-UI and CopilotKit have tests of their own.
    for (const [verb, operation] of Object.entries(operations)) {
      const call = callOf(verb, path);
      const given = call.body?.(sessionId);
      for (const row of wrongRows(operation, Object(given))) {
        rows += 1;
        const url = new URL(call.path(sessionId), origin);
        const { body = given } = row;
        const answer = await fetch(
          `${url.href}${url.search === "" ? "?" : "&"}${row.query ?? ""}`,
          {
            method: call.verb,
            headers: { "content-type": "application/json", ...call.headers },
            ...(body !== undefined && { body: JSON.stringify(body) }),
          },
        );
        const problem = answer.ok ? undefined : problemSchema.parse(await answer.json());
        await answer.body?.cancel().catch(() => undefined); // An accepted stream has no end.
        const seen = {
          status: answer.status,
          reason: problem?.reason,
          names: problem?.violations.map(({ field }) => field),
        };
        const wanted = { status: 400, reason: "INVALID_REQUEST", names: [row.name] };
        if (isDeepStrictEqual(seen, wanted)) continue;
        faults.push(`${verb} ${path}, ${row.title}: ${JSON.stringify(seen)}`);
      }
      if (!isDeepStrictEqual(await state(), before)) faults.push(`${verb} ${path} stores`);
    }
  }
  expect(faults).toEqual([]);
  expect(rows).toBeGreaterThan(300);
});
