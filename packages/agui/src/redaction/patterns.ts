/**
 * The forms of secrets. A secret begins with a text that shows its kind, and continues with a least
 * number of characters of one class:
 *
 *   begin         characters, least                sk-ant-   [A-Za-z0-9_-] 20
 *
 * The mask covers the characters and not the begin, which is public and shows the kind.
 * It covers all characters of the class that follow, up to the first other one.
 *
 * The forms are from the documentation of providers and from scanners for leaked secrets, with
 * lower minimum lengths where providers have changed them before. A wrong mask is only a nuisance.
 */
export interface Pattern {
  /** The name under which it is counted. */
  readonly kind: string;
  /** A regular expression of at most TAIL_CHARS characters, with those that it looks back at. */
  readonly begin: string;
  /** ASCII, in the form of a regular expression's brackets. */
  readonly characters: string;
  readonly least: number;
  /** The secret ends before this text, although its characters are of the class. */
  readonly endsAt?: string;
}

/** A secret whose value is known. All of it is masked. */
export interface KnownValue {
  readonly kind: string;
  /** At most TAIL_CHARS characters: `knownValues` divides a longer one. */
  readonly value: string;
}

export type Secret = Pattern | KnownValue;

/** The characters of a text that a search for its next part sees again. */
export const TAIL_CHARS = 256;

/** A long value is found by its parts. */
export function knownValues(kind: string, value: string): readonly KnownValue[] {
  const parts = Math.ceil(value.length / TAIL_CHARS);
  const size = Math.ceil(value.length / parts);
  return Array.from({ length: parts }, (_, at) => ({
    kind,
    value: value.slice(at * size, (at + 1) * size),
  }));
}

/** A regular expression for one of these texts. */
export function oneOf(...texts: readonly string[]): string {
  return `(?:${texts.map((text) => text.replaceAll(/[\\^$.*+?()[\]{}|/-]/g, "\\$&")).join("|")})`;
}

/** `sk-` is also in `task-`. In JSON inside JSON a word may begin after the letter of `\n`. */
const WORD_BEGINS = String.raw`(?<!(?<!\\)(?:\\\\){0,32}[A-Za-z0-9])`;

/** From a name to its value: `aws_secret_access_key = `, `"SecretAccessKey": "`, `\": \"`. */
const GAP = "[ \\t\\n\\r\"'`:=\\\\]{1,16}";

const ALPHANUMERIC = "A-Za-z0-9";
const URL_SAFE = "A-Za-z0-9_-";

export const BUILT_IN: readonly Pattern[] = [
  { kind: "anthropic", begin: "sk-ant-", characters: URL_SAFE, least: 20 },
  {
    kind: "openai",
    begin: oneOf("sk-proj-", "sk-svcacct-", "sk-admin-"),
    characters: URL_SAFE,
    least: 20,
  },
  // OpenAI's first keys, and keys of many services with its protocol.
  { kind: "openai", begin: `${WORD_BEGINS}sk-`, characters: ALPHANUMERIC, least: 20 },
  { kind: "openrouter", begin: "sk-or-v1-", characters: ALPHANUMERIC, least: 32 },
  {
    kind: "aws_access_key_id",
    begin: WORD_BEGINS + oneOf("AKIA", "ASIA"),
    characters: "A-Z0-9",
    least: 16,
  },
  {
    kind: "aws_secret",
    begin:
      oneOf(
        "aws_secret_access_key",
        "AWS_SECRET_ACCESS_KEY",
        "SecretAccessKey",
        "secretAccessKey",
        "aws_session_token",
        "AWS_SESSION_TOKEN",
        "SessionToken",
        "sessionToken",
      ) + GAP,
    characters: "A-Za-z0-9/+",
    least: 40,
  },
  { kind: "google", begin: "AIza", characters: URL_SAFE, least: 35 },
  { kind: "google", begin: oneOf("GOCSPX-", "ya29."), characters: URL_SAFE, least: 20 },
  { kind: "slack", begin: "xox[a-eoprs]-", characters: "A-Za-z0-9%-", least: 10 },
  {
    kind: "slack",
    begin: oneOf("xapp-", "hooks.slack.com/services/"),
    characters: "A-Za-z0-9/-",
    least: 20,
  },
  {
    kind: "github",
    begin: oneOf("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    characters: "A-Za-z0-9_",
    least: 36,
  },
  {
    kind: "gitlab",
    begin: "(?:gl(?:pat|dt|rt|rtr|cbt|ptt|ft|imt|agent|oas|soat|ffct)-|GR1348941)",
    characters: "A-Za-z0-9_.-",
    least: 20,
  },
  {
    kind: "stripe",
    begin: oneOf("sk_live_", "rk_live_", "whsec_"),
    characters: ALPHANUMERIC,
    least: 16,
  },
  { kind: "npm", begin: `${WORD_BEGINS}npm_`, characters: ALPHANUMERIC, least: 36 },
  { kind: "huggingface", begin: `${WORD_BEGINS}hf_`, characters: ALPHANUMERIC, least: 30 },
  // The header of a token is no secret; its claims and its signature are.
  { kind: "jwt", begin: "(?<=[A-Za-z0-9_-]{10})\\.eyJ", characters: "A-Za-z0-9_.-", least: 20 },
  {
    kind: "private_key",
    begin:
      "-----BEGIN (?:(?:RSA |EC |DSA |ENCRYPTED |OPENSSH )?PRIVATE KEY|PGP PRIVATE KEY BLOCK)-----",
    // Base64 and its lines, in JSON inside JSON too, and headers like `Proc-Type: 4,ENCRYPTED`.
    characters: "A-Za-z0-9/+= \\t\\n\\r\\\\:,.;()_-",
    least: 16,
    endsAt: "-----",
  },
];
