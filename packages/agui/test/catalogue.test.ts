import { readFileSync } from "node:fs";
import { EventSchema } from "@ag-ui/core/schemas";
import { describe, expect, test } from "vitest";
import {
  CATALOGUE,
  isCompressible,
  lookup,
  type CatalogueEntry,
} from "@session-ledger/agui/catalogue";
import { fieldsOfType } from "@session-ledger/agui/normalise";
import { violationsIn } from "@session-ledger/agui/validate";

type ProtocolVersion = NonNullable<(typeof CATALOGUE)[number]["firstVersion"]>;

const VERSIONS: readonly ProtocolVersion[] = ["0.0.57", "0.0.59", "1.0.0"];

function typesOf(version: ProtocolVersion): readonly string[] {
  const at = (name: ProtocolVersion | undefined): number => (name ? VERSIONS.indexOf(name) : NaN);
  return CATALOGUE.filter(
    ({ firstVersion, lastVersion }) =>
      at(firstVersion) <= at(version) && at(version) <= at(lastVersion),
  ).map(({ type }) => type);
}

describe("catalogue", () => {
  test("is the union of the versions in use, plus META", () => {
    expect(CATALOGUE).toHaveLength(37);
    expect(new Set(CATALOGUE.map(({ type }) => type)).size).toBe(37);
    expect(VERSIONS.map((version) => typesOf(version).length)).toEqual([33, 36, 31]);
    expect(lookup("META")).toMatchObject({ firstVersion: undefined, lastVersion: undefined });
  });

  test("has the types of the published 1.0.0", () => {
    const published = EventSchema.options.map(({ shape }) => shape.type.value as string);
    expect(typesOf("1.0.0").toSorted()).toEqual(published.toSorted());
  });

  test("merges exactly the types that carry a fragment", () => {
    expect(CATALOGUE.filter(({ type }) => isCompressible(type)).map(({ type }) => type)).toEqual([
      "TEXT_MESSAGE_CONTENT",
      "TEXT_MESSAGE_CHUNK",
      "TOOL_CALL_ARGS",
      "TOOL_CALL_CHUNK",
      "THINKING_TEXT_MESSAGE_CONTENT",
      "REASONING_MESSAGE_CONTENT",
      "REASONING_MESSAGE_CHUNK",
    ]);
    for (const { role, fragmentField } of CATALOGUE)
      expect(fragmentField).toBe(role === "fragment" ? "delta" : undefined);
  });

  test("does not find unknown types or the properties of every object", () => {
    for (const type of ["USAGE_METADATA", "", "text_message_start", "constructor", "__proto__"]) {
      expect(lookup(type)).toBeUndefined();
      expect(isCompressible(type)).toBe(false);
    }
  });

  test("names ids and fragments that are fields of the type's schema", () => {
    for (const { type, idField } of CATALOGUE) {
      const fields = [...(fieldsOfType(type)?.bySnakeName.values() ?? [])];
      expect({ type, hasId: idField === undefined || fields.includes(idField) }).toEqual({
        type,
        hasId: true,
      });
    }
  });
});

/** The fields that every version requires. */
function requiredFields(type: CatalogueEntry["type"]): readonly string[] {
  return violationsIn(type, { type }).map(({ field }) => field.replace("payload.", ""));
}

/** A line for each category and range of versions: its types, each with its required fields. */
function documentedLines(): readonly string[] {
  const lines = new Map<string, string[]>();
  for (const { type, category, firstVersion, lastVersion } of CATALOGUE) {
    const versions = firstVersion === undefined ? "draft" : `${firstVersion} – ${lastVersion}`;
    const head = `- ${category}, ${versions}`;
    const fields = requiredFields(type).map((name) => `\`${name}\``);
    const shown = fields.length === 0 ? `\`${type}\`` : `\`${type}\` (${fields.join(", ")})`;
    lines.set(head, [...(lines.get(head) ?? []), shown]);
  }
  return [...lines].map(([head, types]) => `${head}: ${types.join(", ")}`);
}

test("docs/ag-ui.md lists the whole catalogue", () => {
  const text = readFileSync(new URL("../../../docs/ag-ui.md", import.meta.url), "utf8");
  for (const line of documentedLines()) expect(text).toContain(`${line}\n`);
  const section = text.slice(text.indexOf("## Accepted"), text.indexOf("## Normalised"));
  const listed = section.match(/^- \w+, .*$/gm) ?? [];
  expect(listed).toEqual(documentedLines());
});
