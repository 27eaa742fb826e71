import { describe, expect, test } from "vitest";
import {
  redactionOptions,
  redactionProblems,
  createRedactor,
} from "@session-ledger/agui/redaction/redactor";
import { protocolNames } from "@session-ledger/agui/normalise";
import { BUILT_IN } from "@session-ledger/agui/redaction/patterns";
import { loadConfig } from "../../src/config/config.ts";

function problemsOf(settings: {
  readonly patterns?: string;
  readonly keys?: string;
}): readonly string[] {
  const { patterns, keys } = settings;
  return redactionProblems(
    { redaction: "on", redactionPatterns: patterns, redactionKeys: keys },
    protocolNames,
  );
}

describe("configured patterns", () => {
  test("are masked together with the built-in ones, and counted by their own names", () => {
    const options = redactionOptions({
      redaction: "on",
      redactionPatterns: "acme=acme_[a-z0-9]{8}\n  other_1=x]y=[A-C\\]\\-=]{4}",
      redactionKeys: undefined,
    });
    expect(options?.secrets).toHaveLength(BUILT_IN.length + 2);
    const found: string[] = [];
    const redactor = createRedactor(options ?? { secrets: [], keys: [] }, (kind) =>
      found.push(kind),
    );
    expect(redactor.text("acme_abcd1234, acme_abc, x]y=A]-=B x]y=AAA")).toBe(
      "acme_********, acme_abc, x]y=***** x]y=AAA",
    );
    expect(found).toEqual(["acme", "other_1"]);
  });

  test.each([
    ["acme_[a-z]{8}", "a kind of small letters"],
    ["Acme=acme_[a-z]{8}", "a kind of small letters"],
    ["=acme_[a-z]{8}", "a kind of small letters"],
    ["acme=acme_", "[characters] and {least} at the end"],
    ["acme=acme_[a-z]", "[characters] and {least} at the end"],
    ["acme=acme_[a-z]{8,}", "[characters] and {least} at the end"],
    ["acme=acme_[a-z]{8}x", "[characters] and {least} at the end"],
    ["acme=acme_[]{8}", "[characters] and {least} at the end"],
    ["acme=a[a-z]{8}", "a prefix of 2 to 64"],
    [`acme=${"a".repeat(65)}[a-z]{8}`, "a prefix of 2 to 64"],
    ["acme=acmé[a-z]{8}", "a prefix of 2 to 64"],
    ['acme=a"b[a-z]{8}', 'a prefix without "'],
    ["acme=acme_[z-a]{8}", "ASCII characters and ranges"],
    ["acme=acme_[é]{8}", "ASCII characters and ranges"],
    ["acme=acme_[!-~]{8}", "a class without white space"],
    ["acme=acme_[a-z*]{8}", "a class without white space"],
    ["acme=acme_[a-z]{3}", "a least length from 4 to 1024"],
    ["acme=acme_[a-z]{1025}", "a least length from 4 to 1024"],
  ])("are refused with a reason: %s", (patterns, why) => {
    const problems = problemsOf({ patterns: `ok=ok__[a-z]{8} ${patterns}` });
    expect(problems).toHaveLength(1);
    expect(problems[0]).toContain(why);
    expect(problems[0]).toContain(JSON.stringify(patterns));
  });

  test("are limited in number", () => {
    const patterns = Array.from({ length: 101 }, (_, at) => `k=k${at}_[a-z]{8}`).join(" ");
    expect(problemsOf({ patterns })).toEqual([
      "REDACTION_PATTERNS: expected at most 100 patterns; got 101",
    ]);
  });
});

describe("names of members", () => {
  test("may be any except those of AG-UI, of patches and of the grouped form, in any spelling", () => {
    expect(problemsOf({ keys: "password, apiKey,pin" })).toEqual([]);
    for (const key of ["messageId", "message_id", "TYPE", "delta", "path", "accumulatedContent"])
      expect(problemsOf({ keys: `pin,${key}` })).toEqual([
        `REDACTION_KEYS: expected no name of AG-UI's own fields, because events must stay events; got ${JSON.stringify(key)}`,
      ]);
  });

  test("are limited in number", () => {
    const keys = Array.from({ length: 101 }, (_, at) => `pin${at}`).join();
    expect(problemsOf({ keys })).toEqual(["REDACTION_KEYS: expected at most 100 names; got 101"]);
  });
});

test("redaction settings without redaction are refused at the start", () => {
  const loaded = loadConfig({ REDACTION_KEYS: "pin" });
  expect(loaded).toMatchObject({
    ok: false,
    problems: ["REDACTION: expected on, because what to redact is set; got off"],
  });
  expect(loadConfig({ REDACTION: "on", REDACTION_KEYS: "pin" }).ok).toBe(true);
});

test("redaction that is off has no options", () => {
  const settings = { redactionPatterns: undefined, redactionKeys: undefined };
  expect(redactionOptions({ ...settings, redaction: "off" })).toBeUndefined();
});
