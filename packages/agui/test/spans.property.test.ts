/**
 * The spans of a JSON text are what JSON.parse reads there, and a payload is accepted exactly when
 * JSON.parse accepts it as an object without a key twice.
 *
 * Method: JSON texts are printed from a random tree with random white space, escapes, number
 * spellings and repeated keys, so that the tree is the model; then broken by random edits.
 */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import { readPayload } from "@session-ledger/agui/payload";
import { elementSpans, memberSpans, outline } from "@session-ledger/agui/spans";
import { properties } from "../../../test/support/random.ts";

const space = fc.string({ unit: fc.constantFrom(" ", "\n", "\t", "\r"), maxLength: 2 });

/** A string of JSON: any UTF-16 unit, each spelled in one of the ways it may be. */
const stringText = fc
  .array(
    fc.oneof(
      fc.constantFrom("a", "b", "{", "}", "[", "]", ",", ":", " ", "é", "😀", "\u2028", "\u007f"),
      fc.constantFrom('\\"', "\\\\", "\\/", "\\n", "\\u0000", "\\u0061", "\\ud83d", "\\uDE00"),
    ),
    { maxLength: 6 },
  )
  .map((units) => `"${units.join("")}"`);

const literal = fc.constantFrom(
  "0",
  "-0",
  "1.0",
  "1e5",
  "-1.5E-3",
  "9007199254740993",
  "true",
  "null",
);

interface Node {
  readonly text: string;
  readonly depth: number;
  readonly marks: number;
  /** Texts of the keys (of an object) and values in it. */
  readonly members: readonly (readonly [string, string])[] | undefined;
  readonly elements: readonly string[] | undefined;
}

/** The bracket, and a comma between two items. */
function marksWith(items: readonly Node[]): number {
  return items.reduce((sum, { marks }) => sum + marks, Math.max(1, items.length));
}

const { node } = fc.letrec<{ node: Node; list: Node; object: Node; leaf: Node }>((tie) => ({
  leaf: fc
    .oneof(stringText, literal)
    .map((text) => ({ text, depth: 0, marks: 0, members: undefined, elements: undefined })),
  list: fc.array(fc.tuple(space, tie("node"), space), { maxLength: 3 }).map((items) => ({
    text: `[${items.map(([before, item, after]) => before + item.text + after).join(",")}]`,
    depth: 1 + Math.max(0, ...items.map(([, item]) => item.depth)),
    marks: marksWith(items.map(([, item]) => item)),
    members: undefined,
    elements: items.map(([, item]) => item.text),
  })),
  object: fc
    .array(fc.tuple(space, stringText, space, space, tie("node"), space), { maxLength: 4 })
    .map((items) => ({
      text: `{${items.map(([a, key, b, c, item, d]) => `${a}${key}${b}:${c}${item.text}${d}`).join(",")}}`,
      depth: 1 + Math.max(0, ...items.map(([, , , , item]) => item.depth)),
      marks: marksWith(items.map(([, , , , item]) => item)),
      members: items.map(([, key, , , item]) => [key, item.text] as const),
      elements: undefined,
    })),
  node: fc.oneof({ maxDepth: 4 }, tie("leaf"), tie("list"), tie("object")),
}));

const spaced = fc.tuple(space, node, space);

test("spans are at the places that JSON.parse reads", () => {
  fc.assert(
    fc.property(spaced, ([before, { text, depth, marks, members, elements }, after]) => {
      const whole = before + text + after;
      const cut = ({ start, end }: { start: number; end: number }): string =>
        whole.slice(start, end);
      const found = members && memberSpans(whole);
      expect({
        ...outline(whole),
        members: found?.map((member) => [cut(member.keySpan), cut(member.valueSpan)]),
        keys: found?.map(({ key }) => key),
        elements: elements && elementSpans(whole).map(cut),
      }).toEqual({
        depth,
        marks,
        commas: Math.max(0, (members ?? elements ?? []).length - 1),
        members,
        keys: members?.map(([key]): unknown => JSON.parse(key)),
        elements,
      });
    }),
    properties({ runs: 2_000 }),
  );
});

test("a payload is read as JSON.parse reads it, and refused when JSON.parse refuses it", () => {
  const edit = fc.record({
    at: fc.nat(),
    drop: fc.nat({ max: 2 }),
    add: fc.constantFrom("", "", '"', "\\", "{", "}", "[", "]", ",", ":", "\u0000", "1", "x"),
  });
  const broken = fc
    .tuple(spaced, fc.array(edit, { maxLength: 2 }))
    .map(([[before, { text }, after], edits]) =>
      edits.reduce(
        (whole, { at, drop, add }) => {
          const start = at % (whole.length + 1);
          return whole.slice(0, start) + add + whole.slice(start + drop);
        },
        before + text + after,
      ),
    );
  fc.assert(
    fc.property(fc.oneof(broken, fc.string(), fc.json()), (text) => {
      const expected = parsed(text);
      const read = readPayload(text);
      expect(read.ok ? read.payload : undefined).toEqual(expected && { text, value: expected });
    }),
    properties({ runs: 4_000 }),
  );
});

test("a walk over text that is not JSON ends inside the text", () => {
  fc.assert(
    fc.property(fc.string(), fc.nat({ max: 20 }), (text, at) => {
      for (const { valueSpan } of walked(() => memberSpans(text, at)))
        expect(valueSpan.end).toBeLessThanOrEqual(Math.max(text.length, valueSpan.start + 1));
      expect(elementSpans(text, at).length).toBeLessThanOrEqual(text.length + 1);
      expect(outline(text).commas).toBeLessThanOrEqual(text.length);
    }),
    properties({ runs: 2_000 }),
  );
});

/** A key that is no JSON string cannot be read; on text that JSON.parse accepted there is none. */
function walked<T>(walk: () => readonly T[]): readonly T[] {
  try {
    return walk();
  } catch (error) {
    if (error instanceof SyntaxError) return [];
    throw error;
  }
}

/** The object, unless JSON.parse refuses the text, or a key stands twice at the top of it. */
function parsed(text: string): object | undefined {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
    const keys = memberSpans(text).map(({ key }) => key);
    return keys.length === new Set(keys).size ? value : undefined;
  } catch {
    return undefined;
  }
}
