import { expect, test } from "vitest";
import { approvalPayload, askedBy, formPayload } from "../src/model/asked.ts";

test.each(["approval", "tool_approval", "human_approval", "confirmation", "tool_call"])(
  "an interrupt with the reason %s and no schema asks for a yes or no",
  (reason) => {
    const asked = askedBy({ id: "i1", reason });

    expect(asked).toEqual({ kind: "approval", member: "approved" });
    if (asked.kind !== "approval") return;
    expect(approvalPayload(asked, true)).toEqual({ approved: true });
    expect(approvalPayload(asked, false)).toEqual({ approved: false });
  },
);

test("an interrupt with another reason and no schema asks for a text", () => {
  expect(askedBy({ id: "i1", reason: "input_required", responseSchema: {} })).toEqual({
    kind: "text",
  });
  expect(askedBy({ id: "i1" })).toEqual({ kind: "text" });
});

test("a schema with one yes or no asks for it under its own name", () => {
  const responseSchema = { type: "object", properties: { accept: { type: "boolean" } } };
  const asked = askedBy({ id: "i1", reason: "approval", responseSchema });

  expect(asked).toEqual({ kind: "approval", member: "accept" });
  const bare = askedBy({ id: "i1", responseSchema: { type: "boolean" } });
  expect(bare.kind === "approval" && approvalPayload(bare, false)).toBe(false);
});

test("a schema with simple members is a form, and its payload has the types of the schema", () => {
  const responseSchema = {
    type: "object",
    required: ["name", "seats"],
    properties: {
      name: { type: "string", title: "Your name" },
      seats: { type: "integer", description: "From 1 to 8" },
      class: { enum: ["first", "second"] },
      window: { type: "boolean" },
      note: { type: "string" },
    },
  };
  const asked = askedBy({ id: "i1", reason: "input_required", responseSchema });

  if (asked.kind !== "fields") throw new Error(`expected a form, got ${asked.kind}`);
  expect(asked.fields.map(({ name, kind, isRequired }) => [name, kind, isRequired])).toEqual([
    ["name", "text", true],
    ["seats", "number", true],
    ["class", "choice", false],
    ["window", "yes_no", false],
    ["note", "text", false],
  ]);
  const typed: Record<string, string> = {
    name: "Ann",
    seats: "2",
    class: "",
    window: "",
    note: "",
  };
  expect(formPayload(asked.fields, (name) => typed[name] ?? "")).toEqual({
    name: "Ann",
    seats: 2,
    window: false,
  });
});

test("a schema of some texts asks for one of them", () => {
  const responseSchema = { type: "string", enum: ["red", "blue"] };

  expect(askedBy({ id: "i1", responseSchema })).toEqual({
    kind: "choice",
    choices: ["red", "blue"],
  });
});

test.each([
  ["a member that is a list", { type: "object", properties: { tags: { type: "array" } } }],
  ["a choice of numbers", { type: "object", properties: { size: { enum: [1, 2] } } }],
  ["a list", { type: "array", items: { type: "string" } }],
  ["another schema", { $ref: "#/$defs/answer" }],
  ["an object without members", { type: "object", properties: {} }],
])("a schema with %s asks for JSON", (_, responseSchema) => {
  expect(askedBy({ id: "i1", responseSchema })).toEqual({ kind: "json" });
});
