/** Masking of a complete text, pattern by pattern, and its cost. */
import { describe, expect, test, vi } from "vitest";
import { BUILT_IN } from "@session-ledger/agui/redaction/patterns";
import { createRedactor } from "@session-ledger/agui/redaction/redactor";
import { SecretSearch } from "@session-ledger/agui/redaction/search";
import { maskedWhole } from "../support/redaction-oracle.ts";

/** Only letters and digits, which every class has; not a real secret. */
function body(length: number, alphabet = "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0z"): string {
  return alphabet.repeat(Math.ceil(length / alphabet.length)).slice(0, length);
}

const UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const stars = (length: number): string => "*".repeat(length);

/** Invented secrets in the forms of the providers: the prefix stays, and the rest is masked. */
const SECRETS: readonly (readonly [kind: string, prefix: string, secret: string])[] = [
  ["anthropic", "sk-ant-", `api03-${body(93)}AA`],
  ["openai", "sk-proj-", `${body(74)}T3BlbkFJ${body(74)}`],
  ["openai", "sk-svcacct-", `${body(58)}_T3BlbkFJ-${body(58)}`],
  ["openai", "sk-", body(48)],
  ["openrouter", "sk-or-v1-", body(64, "0123456789abcdef")],
  ["aws_access_key_id", "AKIA", body(16, UPPER)],
  ["aws_access_key_id", "ASIA", body(16, UPPER)],
  ["google", "AIza", `Sy${body(33)}`],
  ["google", "GOCSPX-", body(28)],
  ["slack", "xoxb-", `781236542736-2364535789652-${body(24)}`],
  ["slack", "xoxp-", `41684372915-1320496754-45609968301-${body(32)}`],
  ["slack", "hooks.slack.com/services/", `T00000000/B00000000/${body(24)}`],
  ["github", "ghp_", body(36)],
  ["github", "ghs_", body(36)],
  ["github", "github_pat_", `${body(22)}_${body(59)}`],
  ["gitlab", "glpat-", `${body(18)}-_`],
  ["gitlab", "glpat-", `${body(27)}.01.${body(9)}`],
  ["gitlab", "glcbt-", `64_${body(20)}`],
  ["stripe", "sk_live_", body(24)],
  ["stripe", "rk_live_", body(99)],
  ["npm", "npm_", body(36)],
  ["huggingface", "hf_", body(34)],
  ["jwt", "eyJhbGciOiJIUzI1NiJ9.eyJ", `zdWIiOiIxMjM0NTY3ODkwIn0.${body(43)}`],
];

function redacting() {
  const found: string[] = [];
  const redactor = createRedactor({ secrets: BUILT_IN, keys: [] }, (kind) => found.push(kind));
  return { redactor, found };
}

describe("the built-in patterns", () => {
  test.each(SECRETS)("mask a secret of %s: %s…", (kind, prefix, secret) => {
    const { redactor, found } = redacting();
    const text = `The key is ${prefix}${secret}, "${prefix}${secret}" é ${prefix}`;
    const gone = prefix + stars(secret.length);
    expect(redactor.text(text)).toBe(`The key is ${gone}, "${gone}" é ${prefix}`);
    expect(found).toEqual([kind, kind]);
    expect(maskedWhole(text, BUILT_IN)).toBe(redactor.text(text));
  });

  test.each(SECRETS)("do not mask a short text like one of %s: %s…", (_kind, prefix, secret) => {
    const { redactor, found } = redacting();
    const text = `The key is ${prefix}${secret.slice(0, 8)} as you know`;
    expect(redactor.text(text)).toBe(text);
    expect(found).toEqual([]);
  });

  test.each([
    ["sk-ant-", 20],
    ["sk-proj-", 20],
    ["sk-", 20],
    ["sk-or-v1-", 32],
    ["AKIA", 16],
    ["SecretAccessKey=", 40],
    ["AIza", 35],
    ["GOCSPX-", 20],
    ["xoxb-", 10],
    ["xapp-", 20],
    ["ghp_", 36],
    ["glpat-", 20],
    ["sk_live_", 16],
    ["npm_", 36],
    ["hf_", 30],
    ["eyJhbGciOiJIUzI1NiJ9.eyJ", 20],
    ["-----BEGIN PRIVATE KEY-----", 16],
  ])("begin with %s and have %i characters at least, as in docs/redaction.md", (prefix, least) => {
    const { redactor } = redacting();
    const secret = body(least, UPPER);
    const short = `${prefix}${secret.slice(1)}!`;
    expect(redactor.text(short)).toBe(short);
    expect(redactor.text(`${prefix}${secret}!`)).not.toContain(secret);
  });

  test.each([
    "aws_secret_access_key = ",
    "AWS_SECRET_ACCESS_KEY=",
    'SecretAccessKey": "',
    '\\"secretAccessKey\\": \\"',
    "export AWS_SESSION_TOKEN='",
  ])("mask the secret half of an AWS key after its name: %s", (name) => {
    const { redactor, found } = redacting();
    const secret = `${body(19)}/${body(19)}+`;
    expect(redactor.text(`${name}${secret}"`)).toBe(`${name}${stars(40)}"`);
    expect(found).toEqual(["aws_secret"]);
    expect(redactor.text(`digest: ${secret}`)).toBe(`digest: ${secret}`);
  });

  test("mask the value after its name when both are strings of JSON", () => {
    const { redactor } = redacting();
    const secret = body(40);
    const json = `{ "SecretAccessKey" : "${secret}", "n": 1.0 }`;
    expect(redactor.payload(json)).toBe(json.replace(secret, stars(40)));
    const other = `{"SecretAccessKey":1,"digest":"${secret}"}`;
    expect(redactor.payload(other)).toBe(other);
  });

  test.each(["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "])(
    "mask a private key: %sPRIVATE KEY",
    (name) => {
      const { redactor, found } = redacting();
      const lines = `Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,0A1B\n\n${body(64)}\n${body(20)}==\n`;
      const begin = `-----BEGIN ${name}PRIVATE KEY-----`;
      const end = `-----END ${name}PRIVATE KEY-----\nThat was it.`;
      const masked = redactor.text(`${begin}\n${lines}${end}`);
      expect(masked.startsWith(begin)).toBe(true);
      expect(masked.endsWith(end)).toBe(true);
      expect(masked.slice(begin.length, -end.length)).toMatch(/^[*-]{100,}$/);
      expect(masked).toHaveLength(begin.length + 1 + lines.length + end.length);
      expect(found).toEqual(["private_key"]);
    },
  );

  test("mask a private key with escaped lines, in nested JSON and without an end", () => {
    const { redactor } = redacting();
    const pem = `-----BEGIN PRIVATE KEY-----\n${body(64)}\n${body(64)}\n-----END PRIVATE KEY-----\n`;
    for (const text of [pem, pem.slice(0, 120)]) {
      const inner = JSON.stringify({ pem: text });
      for (const json of [inner, JSON.stringify({ args: inner })]) {
        const masked = redactor.payload(json);
        const value: unknown = JSON.parse(masked);
        expect(value).toBeDefined();
        expect(masked).not.toContain(body(12));
        expect(masked).toContain("-----BEGIN PRIVATE KEY-----**");
      }
    }
  });
});

describe("a text without a secret", () => {
  test.each([
    "a task-management-for-developers-of-large-systems is no key",
    "risk-0123456789abcdef0123456789abcdef and desk-aaaaaaaaaaaaaaaaaaaaaaaa",
    "from huggingface_hub import hf_hub_download_with_a_rather_long_name",
    "EURASIAPACIFICREGIONALOFFICES",
    "npm_config_registry_of_the_company_that_is_rather_long",
    "cursor eyJvZmZzZXQiOjEyMywibGltaXQiOjEwMCwic29ydCI6ImNyZWF0ZWRBdCJ9 next",
    "sk-learn, sk-…, ghp_, AKIA, xoxb-, eyJ, glpat-",
    "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
    "-----BEGIN CERTIFICATE-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A\n-----END PUBLIC KEY-----",
    "😀 ünïcödé 日本語",
  ])("stays as it is: %s", (text) => {
    const { redactor, found } = redacting();
    expect(redactor.text(text)).toBe(text);
    expect(redactor.payload(JSON.stringify({ text }))).toBe(JSON.stringify({ text }));
    expect(found).toEqual([]);
  });

  test("ends at an escaped line break of nested JSON, after which a secret may begin", () => {
    const { redactor } = redacting();
    const inner = JSON.stringify(`a\nsk-${body(48)}`);
    expect(redactor.text(`args: ${inner}`)).toContain(`\\nsk-${stars(48)}`);
  });
});

describe("a JSON payload", () => {
  const { redactor } = redacting();
  const key = `ghp_${body(36)}`;
  const gone = `ghp_${stars(36)}`;

  test("is masked in strings and member names at any depth, and no other byte changes", () => {
    const text = (secret: string): string =>
      ` { "a" : 1.0, "b":[1e5,"${secret}",{"${secret}":"x\\u00e9\\/"}],\n"n":12345678901234567890 }`;
    expect(redactor.payload(text(key))).toBe(text(gone));
  });

  test("counts an escape as one character in any spelling", () => {
    const spelled = `\\u0067hp_${body(10)}\\u0041${body(25)}`;
    expect(redactor.payload(`{"a":"${spelled}"}`)).toBe(`{"a":"\\u0067hp_${stars(36)}"}`);
  });

  test("ends a secret at the end of its string", () => {
    const text = JSON.stringify([key.slice(0, 20), key.slice(20)]);
    expect(redactor.payload(text)).toBe(text);
  });

  test.each(["{", '{"a', '"', '{"a":"\\', '{"a":"\\u12', "[1,", "", '{"a":"b\nc"}'])(
    "stays as it is when it is not JSON: %j",
    (text) => expect(redactor.payload(text)).toBe(text),
  );

  test("keeps half a surrogate pair, raw or escaped", () => {
    for (const half of ["\\ud83d", "\ud83d", "\\ude00"]) {
      const text = `{"a":"${half}${key}${half}"}`;
      expect(redactor.payload(text)).toBe(text.replace(key, gone));
    }
  });
});

/** A search examines a limited number of characters for each character of any text. */
test.each([
  ["sk-ant-"],
  ["eyJ"],
  ["aaaaaaaaaa.eyJ"],
  ["ghp_"],
  ["ghp_ghp_ghp_!"],
  ["-----BEGIN PRIVATE KEY-----"],
  ["-----BEGIN PRIVATE KEY-----\n\n"],
  ["-"],
  ["SecretAccessKey = "],
  ["SecretAccessKey:"],
  ["xoxb-AKIAglpat-sk-hf_npm_eyJ"],
  ["\\"],
  ["\\\\n"],
  ["a"],
  [" "],
])("no text of %j is expensive to search", (part) => {
  const text = part.repeat(Math.ceil(100_000 / part.length));
  const search = new SecretSearch(BUILT_IN);
  let examined = 0;
  const spy = vi.spyOn(RegExp.prototype, "test").mockImplementation(function (this: RegExp, of) {
    const before = this.lastIndex;
    const isFound = this.exec(of) !== null;
    if (this.sticky) examined += isFound ? this.lastIndex - before : 1;
    return isFound;
  });
  search.search(text);
  spy.mockRestore();
  expect(examined).toBeLessThan(64 * text.length);
});
