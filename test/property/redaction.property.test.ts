/**
 * The search against the plain way, on texts that are made of pieces of secrets, so that begins stand
 * in secrets, secrets in begins, and everything nearly: as a whole, and as a text in parts.
 */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { BUILT_IN, oneOf, type Pattern } from "@session-ledger/agui/redaction/patterns";
import { createRedactor } from "@session-ledger/agui/redaction/redactor";
import {
  maskPlain,
  searchNext,
  SecretSearch,
  TEXT_START,
} from "@session-ledger/agui/redaction/search";
import { properties } from "../support/random.ts";
import {
  besidesDashes,
  maskedAtMost,
  maskedWhole,
  withMasksOf,
} from "../support/redaction-oracle.ts";

/** Short lengths, so that much is nearly a secret, and classes that share some of their characters. */
const SHORT: readonly Pattern[] = [
  { kind: "a", begin: oneOf("ab", "aab", "b-a"), characters: "a-c", least: 3 },
  { kind: "b", begin: "(?<![a-z])a-", characters: "ab-", least: 2 },
  { kind: "gap", begin: 'key[ =:"]{1,4}', characters: "a-ek", least: 3 },
  { kind: "before", begin: "(?<=[abc]{2})\\.ca", characters: "abc.", least: 2 },
  { kind: "pem", begin: "---b---", characters: "abc \\n-", least: 2, endsAt: "---" },
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
      fc.constantFrom(
        ..."sk-ant- sk-proj- sk- sk-or-v1- AKIA SecretAccessKey AIza ya29. xoxb- xapp- ghp_".split(
          " ",
        ),
        ..."github_pat_ glpat- GR1348941 sk_live_ npm_ hf_ eyJ .eyJ . ----- \\n = task- x é -".split(
          " ",
        ),
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----",
        " ",
        "\n",
        '"',
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
  const search = new SecretSearch(secrets);
  const redactor = createRedactor({ secrets, keys: [] }, () => undefined);

  test("mask the same as the plain search, in a text and in a string of JSON", () => {
    let masked = 0;
    fc.assert(
      fc.property(texts, (text) => {
        const expected = maskedWhole(text, secrets);
        expect(maskPlain(text, search.search(text).secrets)).toBe(expected);
        expect(JSON.parse(redactor.payload(JSON.stringify({ text })))).toEqual({ text: expected });
        if (expected !== text) masked += 1;
      }),
      properties({ runs }),
    );
    expect(masked).toBeGreaterThan(0);
  });

  test("release no character of a secret, and mask nothing that is not after a begin", () => {
    fc.assert(
      fc.property(texts, fc.array(fc.nat(60), { maxLength: 20 }), (text, cuts) => {
        const places = [0, ...cuts.filter((at) => at <= text.length), text.length];
        const ascending = places.toSorted((a, b) => a - b);
        let end = TEXT_START;
        let out = "";
        ascending.forEach((at, index) => {
          const part = text.slice(ascending[index - 1] ?? 0, at);
          const next = searchNext(search, end, part);
          out += maskPlain(part, next.findings);
          ({ end } = next);
        });
        expect(out).toHaveLength(text.length);
        const found = besidesDashes(out, text);
        const least = besidesDashes(maskedWhole(text, secrets), text);
        expect(found).toBe(withMasksOf(least, found));
        const most = besidesDashes(maskedAtMost(text, secrets), text);
        expect(most).toBe(withMasksOf(found, most));
      }),
      properties({ runs }),
    );
  });
});
