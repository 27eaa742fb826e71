/** The document of the service as the page of the API shows it. */
import { beforeAll, describe, expect, test } from "vitest";
import { ApiDocument, curlOf, found, type Operation } from "../../web/src/model/openapi.ts";
import { startHttp } from "../support/http-fixture.ts";

let served: ApiDocument;

beforeAll(async () => {
  await using http = await startHttp();
  const answer = await fetch(`http://${http.server.address}/openapi.json`);
  served = new ApiDocument(await answer.json());
});

function operation(id: string): Operation {
  const named = served.operations.find((one) => one.id === id);
  if (named === undefined) throw new Error(`no operation ${id}`);
  return named;
}

describe("the served document", () => {
  test("has every operation once, with words and types", () => {
    expect(served.operations.length).toBeGreaterThan(25);
    const ids = served.operations.map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
    for (const { id, tag, summary, parameters, answers } of served.operations) {
      expect({ id, tag, summary }).not.toMatchObject({ tag: "" });
      expect({ id, summary }).not.toMatchObject({ summary: "" });
      expect({ id, answers: answers.length }).not.toMatchObject({ answers: 0 });
      for (const { name, type } of parameters) expect([id, name, type]).not.toContain("any");
    }
  });

  test("tells the parameters of a route with their limits and defaults", () => {
    const { method, path, parameters } = operation("listMessages");
    expect(`${method} ${path}`).toBe("GET /api/ambient/v1/sessions/{id}/messages");
    const typeOf = (name: string) => parameters.find((one) => one.name === name)?.type;
    expect(parameters.map(({ name }) => name)).toContain("id");
    expect(typeOf("limit")).toMatch(/^integer 1 to 1000, else \d+$/);
    expect(typeOf("after_seq")).toBe("integer (int64) from 0");
  });

  test("lists the members of an answer, those of members behind them", () => {
    const schema = operation("getSession").answers[0]?.content[0]?.schema ?? {};
    expect(served.typeOf(schema)).toBe("Session");
    const fields = served.fields(schema);
    const names = fields.map(({ name, depth }) => `${depth} ${name}`);
    expect(names.slice(0, 2)).toEqual(["0 metadata", "1 id"]);
    expect(names).toContain("0 payloadBytes");
    expect(fields.find(({ name }) => name === "id")).toMatchObject({ isRequired: true });
    expect(fields.find(({ name }) => name === "prompt")).toMatchObject({ isRequired: false });
  });

  test("gives an example of every body that is JSON", () => {
    for (const { id, body } of served.operations) {
      for (const { type, schema } of body.filter((one) => one.type === "application/json"))
        expect(JSON.stringify(served.exampleOf(schema)), `${id} ${type}`).toMatch(/^[[{]/);
    }
    const event = operation("pushEvents").body[0]?.schema ?? {};
    expect(served.exampleOf(event)).toMatchObject({ type: "TEXT_MESSAGE_CONTENT" });
    const body = operation("claimTurn").body[0]?.schema ?? {};
    expect(served.exampleOf(body)).toMatchObject({ run_started: expect.anything() });
  });

  test("is searched by words in any order", () => {
    const ids = (words: string) => found(served.operations, words).map(({ id }) => id);
    expect(ids("")).toHaveLength(served.operations.length);
    expect(ids("claim TURNS")).toEqual(["claimTurn"]);
    expect(ids("nothing like it")).toEqual([]);
  });
});

test("a command repeats the body, with quotes that a shell keeps", () => {
  const example = { payload: "it's" };
  expect(curlOf(operation("pushMessage"), "http://ledger", example)).toBe(
    [
      "curl -X POST 'http://ledger/api/ambient/v1/sessions/{id}/messages' \\",
      '  -H "Authorization: Bearer $TOKEN" \\',
      "  -H 'Content-Type: application/json' \\",
      String.raw`  -d '{"payload":"it'\''s"}'`,
    ].join("\n"),
  );
});

test("a schema that contains itself ends, and a document of another kind is empty", () => {
  const document = new ApiDocument({
    components: {
      schemas: {
        Tree: {
          type: "object",
          properties: { children: { type: "array", items: { $ref: "#/components/schemas/Tree" } } },
        },
      },
    },
  });
  const tree = { $ref: "#/components/schemas/Tree" };
  expect(document.fields(tree).map(({ depth }) => depth)).toEqual([0, 1, 2, 3]);
  expect(JSON.stringify(document.exampleOf(tree)).length).toBeLessThan(200);
  for (const wrong of [undefined, null, [], "x", { paths: { "/a": { get: 1 } } }])
    expect(new ApiDocument(wrong).operations.every(({ method }) => method === "GET")).toBe(true);
});
