/** The words of texts and questions, without a database. */
import * as fc from "fast-check";
import { expect, test } from "vitest";
import {
  allOf,
  comparable,
  joinedWordsOf,
  partsOf,
  questionOf,
  withoutControls,
} from "../../src/search/words.ts";
import { properties } from "../support/random.ts";

test("the parts of a text are the text, and no part is long or ends inside a character", () => {
  const piece = fc.oneof(
    fc.string({ unit: "grapheme", maxLength: 50 }),
    fc.constantFrom("x".repeat(7_999), "🙂".repeat(5_000), " ", "\n", "\u0000\u0002"),
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
      const text = pieces.join("");
      const parts = partsOf(text);
      const clean = withoutControls(text);
      expect(parts.join("")).toBe(clean.trim() === "" ? "" : clean);
      for (const part of parts) {
        expect(part.length).toBeLessThanOrEqual(8_000);
        expect(part.isWellFormed()).toBe(true);
      }
    }),
    properties({ runs: 200 }),
  );
});

test("a part ends after a space, if its second half has one", () => {
  const [first, second] = partsOf(`${"word ".repeat(1_599)}${"y".repeat(20)}`);
  expect([first?.length, second]).toEqual([7_995, "y".repeat(20)]);
  expect(partsOf(` ${"z".repeat(8_010)}`).map((part) => part.length)).toEqual([8_000, 11]);
  expect(partsOf(" \n\u0007 ")).toEqual([]);
  expect(partsOf("a".repeat(300_000)).join("")).toHaveLength(256_000);
});

test("each character and each pair of a script without spaces is a word", () => {
  expect(joinedWordsOf("in 東京タワー, not").join(" ")).toBe("東 京 タ ワ ー 東京 京タ タワ ワー");
  expect(joinedWordsOf("plain words")).toEqual([]);
  expect(joinedWordsOf("𠮷野")).toEqual(["𠮷", "野", "𠮷野"]);
});

test("letters are compared in one form", () => {
  expect(comparable("ÄPFEL ＡＢＣ Cafe\u0301")).toBe("äpfel abc café");
  expect(comparable("ASCII is left to PostgreSQL")).toBeUndefined();
});

test.each([
  ["plain words", { plain: "plain words", joined: "", runs: [] }],
  ["天气 berlin", { plain: "  berlin", joined: "'天气'", runs: ["天气"] }],
  ["高", { plain: " ", joined: "'高'", runs: ["高"] }],
  ["東京タ", { plain: " ", joined: "'東京' & '京タ'", runs: ["東京タ"] }],
  ["berlin -天气", { plain: "berlin - ", joined: "!('天气')", runs: [] }],
])("the question %j", (text, question) => {
  expect(questionOf(text)).toEqual(question);
});

test("no word of a filter can be more than a word", () => {
  expect(allOf(["a'b", String.raw`c\d`, "e & !f"])).toBe(String.raw`'a''b' & 'c\\d' & 'e & !f'`);
});
