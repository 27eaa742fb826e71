/**
 * The automaton against the plain way, on texts that are made of pieces of secrets, so that prefixes
 * stand in secrets, secrets in prefixes, and everything nearly: as a whole, and as a text in pieces.
 */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { compile } from "../../src/redaction/automaton.ts";
import { maskPlain, TextScan } from "../../src/redaction/text-scan.ts";
import { BUILT_IN, type Secret } from "../../src/redaction/patterns.ts";
import { createRedactor } from "../../src/redaction/redactor.ts";
import { properties } from "../support/random.ts";
import { besidesDashes, maskedWhole, withMasksOf } from "../support/redaction-oracle.ts";

/** Short lengths, so that much is nearly a secret, and classes that share some of their characters. */
const SHORT: readonly Secret[] = [
  { kind: "a", prefixes: ["ab", "aab", "b-a"], parts: [{ characters: "a-c", least: 3 }] },
  { kind: "b", prefixes: ["a-"], startsWord: true, parts: [{ characters: "ab-", least: 2 }] },
  {
    kind: "gap",
    prefixes: ["key"],
    parts: [
      { characters: ' =:"', least: 1, isGap: true },
      { characters: "a-ek", least: 3 },
    ],
  },
  {
    kind: "joint",
    prefixes: ["ca"],
    startsWord: true,
    parts: [
      { characters: "abc", least: 2, window: 4 },
      { joint: ".ca", characters: "abc.", least: 2 },
    ],
  },
  {
    kind: "pem",
    prefixes: ["---b---"],
    parts: [{ characters: "abc \n", least: 2, endsAtDashes: 3 }],
  },
];

const shortText = fc
  .array(
    fc.constantFrom(
      ...'a b c a b c - - --- ---b--- . .ca ca key = " : \\ \\n \n é 😀 a- ab'.split(" "),
      " ",
    ),
    { maxLength: 40 },
  )
  .map((parts) => parts.join(""));

const realText = fc
  .array(
    fc.oneof(
      fc.constantFrom(...BUILT_IN.flatMap(({ prefixes }) => prefixes)),
      fc.constantFrom(
        "eyJ",
        ".eyJ",
        ".",
        "-----",
        " ",
        "\n",
        "\\n",
        '"',
        "=",
        "task-",
        "x",
        "é",
        "-",
      ),
      fc.stringMatching(/^[A-Za-z0-9]{1,45}$/),
      fc.stringMatching(/^[A-Z0-9]{16}$/),
    ),
    { maxLength: 12 },
  )
  .map((parts) => parts.join(""));

describe.each([
  ["short patterns", SHORT, shortText, 3_000],
  ["the built-in patterns", BUILT_IN, realText, 1_000],
] as const)("%s", (_name, secrets, texts, runs) => {
  const automaton = compile(secrets);
  const redactor = createRedactor({ secrets, keys: [] }, () => undefined);

  test("mask the same as the plain search, in a text and in a string of JSON", () => {
    let masked = 0;
    fc.assert(
      fc.property(texts, (text) => {
        const expected = besidesDashes(maskedWhole(text, secrets), text);
        const scan = new TextScan(automaton, () => undefined);
        scan.readPlain(text);
        scan.end();
        const found = maskPlain(text, scan.masked);
        expect(besidesDashes(found, text)).toBe(expected);
        const json = redactor.payload(JSON.stringify({ text }));
        expect(JSON.parse(json)).toEqual({ text: found });
        if (expected !== text) masked += 1;
      }),
      properties({ runs }),
    );
    expect(masked).toBeGreaterThan(0);
  });

  test("mask the same in a text that comes in pieces, and settled text never changes", () => {
    fc.assert(
      fc.property(texts, fc.array(fc.nat(60), { maxLength: 20 }), (text, cuts) => {
        const scan = new TextScan(automaton, () => undefined);
        const expected = besidesDashes(maskedWhole(text, secrets), text);
        const maskedSoFar = (): string => besidesDashes(maskPlain(text, scan.masked), text);
        const places = [0, ...cuts.filter((at) => at <= text.length), text.length];
        const ascending = places.toSorted((a, b) => a - b);
        ascending.forEach((at, index) => {
          scan.readPlain(text.slice(ascending[index - 1] ?? 0, at));
          const { settled } = scan;
          expect(maskedSoFar().slice(0, settled)).toBe(expected.slice(0, settled));
        });
        scan.end();
        expect(maskedSoFar()).toBe(expected);
      }),
      properties({ runs }),
    );
  });

  test("release no unit of a secret at any early release", () => {
    fc.assert(
      fc.property(texts, fc.array(fc.nat(60), { maxLength: 20 }), (text, cuts) => {
        const scan = new TextScan(automaton, () => undefined);
        const expected = besidesDashes(maskedWhole(text, secrets), text);
        let out = "";
        for (let at = 0; at < text.length; at += 1) {
          scan.readPlain(text.charAt(at));
          if (cuts.includes(at)) scan.letGo();
          out += maskPlain(text.slice(0, scan.settled), scan.masked).slice(out.length);
        }
        scan.letGo();
        out += maskPlain(text, scan.masked).slice(out.length);
        expect(out).toHaveLength(text.length);
        expect(besidesDashes(out, text)).toBe(withMasksOf(expected, besidesDashes(out, text)));
      }),
      properties({ runs }),
    );
  });
});
